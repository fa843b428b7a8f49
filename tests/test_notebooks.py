"""The rules of the chapters, the setup cell, and the repository's address."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import lint_notebooks
import pytest
import set_repository
import yaml
from lint_notebooks import NOTEBOOK_METADATA, check, fix, plain_words
from set_repository import normalise, read_repository
from setup_cell import setup_cell, setup_source

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
URL = "https://github.com/someone/vit-course"

Notebook = dict[str, Any]


def code(text: str, identity: str = "some-code", **metadata: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": identity,
        "metadata": metadata,
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }


def words(text: str, identity: str = "some-words") -> dict[str, Any]:
    return {
        "cell_type": "markdown",
        "id": identity,
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }


def chapter(*cells: dict[str, Any], url: str | None = None) -> Notebook:
    """A chapter that keeps every rule, and the cells of a test at its end."""
    opening = words("# 1 · Patches\n\nWhat is one *token* of an image?", "opening")
    first = setup_cell(read_repository() if url is None else url)
    return {
        "cells": [opening, first, *copy.deepcopy(cells)],
        "metadata": copy.deepcopy(NOTEBOOK_METADATA),
        "nbformat": 4,
        "nbformat_minor": 5,
    }


# ------------------------------------------------------------------ the rules


@pytest.mark.parametrize(
    "cell",
    [
        words("| a | b |\n|---|---|\n| 1 | $x_{1}$ |"),
        words("$$\n\\{z\\} = {`x`}\n$$"),
        words("<details><summary>Answer</summary>\n\nIt has 16 patches.\n\n</details>"),
        words("> **Pause and think.** How many patches?"),
        words("```python\nnot_just = '!'\n```\n\nand `!pip`, `color`, `{term}`."),
        words("![a digit cut into patches](attachment:digit.png)"),
        words("A span `f{x}` and `{x}` then `y`."),
        words("The paper *Color constancy, optimized*, and “color” in quotes."),
        code("%matplotlib inline\nfigure(fig, alt=words, caption='')"),
        code("x = 1  # " + "-" * 71),
    ],
)
def test_a_good_chapter_breaks_no_rule(cell: dict[str, Any]) -> None:
    assert check(chapter(cell)) == []


@pytest.mark.parametrize(
    ("rule", "cell"),
    [
        ("no_outputs", {**code("1 + 1"), "outputs": [{"output_type": "stream"}]}),
        ("no_outputs", {**code("1 + 1"), "execution_count": 3}),
        ("clean_metadata", code("1 + 1", collapsed=True)),
        ("cell_ids", code("1 + 1", "no good id")),
        ("cell_ids", code("1 + 1", "opening")),
        ("cell_ids", {k: v for k, v in code("1 + 1").items() if k != "id"}),
        ("no_empty_cells", code(" \n")),
        ("short_lines", code("x = 1  # " + "-" * 72)),
        ("short_cells", code("x = 1\n" * 26)),
        ("figures_have_alt", code("figure(fig)")),
        ("figures_have_alt", code("figure(fig, alt='')")),
        ("figures_have_alt", code("not python at all")),
        ("plain_markdown", words("```{note}\nA directive.\n```")),
        ("plain_markdown", words(":::{note}\nA directive.\n:::")),
        ("plain_markdown", words("See {ref}`the patches <patches>`.")),
        ("plain_markdown", words("(patches)=\n## Patches")),
        ("plain_markdown", words("It has {{ count }} patches.")),
        ("plain_markdown", words("A footnote.[^1]\n\n[^1]: This one.")),
        ("plain_markdown", words("> [!NOTE]\n> An alert.")),
        ("plain_markdown", words("$$a = b$$ (eq:ab)")),
        ("plain_markdown", words("+++\nnext")),
        ("images_have_alt", words("![](attachment:digit.png)")),
        ("images_have_alt", words("![a digit](digit.png)")),
        ("images_have_alt", words('<img src="data:,">')),
        ("images_have_alt", words('<img src="data:," alt=" ">')),
        ("words_of_chapters", words("This is simply a patch.")),
        ("words_of_chapters", words("A patch!")),
        ("words_of_chapters", words("A patch \N{ROCKET}")),
        ("words_of_chapters", words("Normalize the color.")),
    ],
)
def test_each_rule_finds_what_breaks_it(rule: str, cell: dict[str, Any]) -> None:
    messages = check(chapter(cell))
    broken = {message.rsplit("[", 1)[1] for message in messages}
    # An alert has an exclamation mark in it; nothing else breaks two rules at once.
    assert broken - {"words_of_chapters]"} <= {f"{rule}]"}, messages
    assert f"{rule}]" in broken, messages


def test_the_kernel_is_python3_and_the_format_4_5() -> None:
    notebook = chapter()
    notebook["metadata"]["kernelspec"]["name"] = "my-env"
    notebook["nbformat_minor"] = 4
    assert check(notebook) == [
        "the kernel is 'my-env', not 'python3' [clean_metadata]",
        "the format is 4.4, not 4.5 [cell_ids]",
    ]


def test_half_of_the_code_cells_are_short() -> None:
    long = [code("x = 1\n" * 9, f"long-{index}") for index in range(2)]
    assert "[short_cells]" in "".join(check(chapter(*long)))
    short = [code("x = 1", f"short-{index}") for index in range(2)]
    assert check(chapter(*long, *short)) == []


@pytest.mark.parametrize("change", ["missing", "edited", "second", "retagged"])
def test_the_setup_cell_is_the_first_code_word_for_word(change: str) -> None:
    notebook = chapter(code("1 + 1"))
    cells = notebook["cells"]
    if change == "missing":
        del cells[1]
    elif change == "edited":
        cells[1]["source"][-1] += " --upgrade"
    elif change == "second":
        cells.insert(1, cells.pop())
    else:
        cells[1]["metadata"] = {}
    assert "[starts_with_setup]" in "".join(check(notebook))


def test_mending_gives_a_chapter_that_breaks_no_rule_and_nothing_is_mended_twice() -> (
    None
):
    notebook = chapter(
        {**code("1 + 1", "opening"), "execution_count": 2, "outputs": [{}]},
        {**code("2 + 2", "not an id", collapsed=True), "source": "2 + 2"},
        code(""),
    )
    del notebook["cells"][1]
    notebook["metadata"] = {"kernelspec": {"name": "my-env"}, "widgets": {}}
    notebook["nbformat_minor"] = 2
    before = copy.deepcopy(notebook)
    mended = fix(notebook)
    assert check(mended) == []
    assert fix(mended) == mended
    assert notebook == before
    assert ["".join(cell["source"]) for cell in mended["cells"]] == [
        "# 1 · Patches\n\nWhat is one *token* of an image?",
        setup_source(read_repository()),
        "1 + 1",
        "2 + 2",
    ]


def test_an_older_setup_cell_is_replaced_not_joined() -> None:
    notebook = chapter(code("1 + 1"), url="https://github.com/old/place")
    notebook["cells"][1]["id"] = "abc"
    assert fix(notebook) == chapter(code("1 + 1"))


def test_prose_is_read_without_code_formulas_and_addresses() -> None:
    text = "[see](https://x.test/color!) `just!` $a!$\n```\nsimply!\n```\n<b>ok</b>"
    assert list(plain_words(text)) == []
    assert list(plain_words(":::{note}\nJust so.\n:::")) == ["the filler word 'Just'"]


def test_the_check_reports_a_fault_with_its_file_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = tmp_path / "bad.ipynb", tmp_path / "good.ipynb"
    bad.write_text(json.dumps(chapter(words("A patch!"))), encoding="utf-8")
    good.write_text(json.dumps(chapter(words("A patch."))), encoding="utf-8")
    assert lint_notebooks.main([str(good)]) == 0
    assert lint_notebooks.main([str(good), str(bad)]) == 1
    assert f"{bad}: cell 3 ('A patch!'): an exclamation" in capsys.readouterr().err


def test_a_book_without_chapters_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book").mkdir()
    assert lint_notebooks.main([], root=tmp_path) == 1
    assert "not one chapter" in capsys.readouterr().err


# ------------------------------------------------------------------ the setup cell

# Runs the cell in IPython, on a Colab that is made of one empty module, and with a
# `%pip` that notes what it is asked.
SIMULATION = """
import json, sys, types
from importlib import util
from IPython.core.interactiveshell import InteractiveShell

colab, installed, source = json.loads(sys.argv[1])
if colab:
    sys.modules["google.colab"] = types.ModuleType("google.colab")
find = util.find_spec
util.find_spec = lambda name, *rest: (
    find(name, *rest) if installed or name != "course_utils" else None
)
shell, asked = InteractiveShell(), []
shell.register_magic_function(asked.append, "line", "pip")
result = shell.run_cell(source, silent=True)
error = result.error_before_exec or result.error_in_exec
print(json.dumps([asked, error and str(error)]), file=sys.stderr)
"""


def run_setup(colab: bool, installed: bool, url: str | None, home: Path) -> Any:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SIMULATION,
            json.dumps([colab, installed, setup_source(url)]),
        ],
        env={**os.environ, "IPYTHONDIR": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stderr.splitlines()[-1])


def test_on_colab_the_setup_cell_installs_the_course_and_nothing_else(
    tmp_path: Path,
) -> None:
    asked, error = run_setup(True, False, URL, tmp_path)
    assert (asked, error) == ([f"install --quiet git+{URL}"], None)


@pytest.mark.parametrize(("colab", "installed"), [(False, False), (True, True)])
def test_where_there_is_nothing_to_do_the_setup_cell_does_nothing(
    colab: bool, installed: bool, tmp_path: Path
) -> None:
    assert run_setup(colab, installed, URL, tmp_path) == [[], None]
    assert run_setup(colab, installed, None, tmp_path) == [[], None]


def test_on_colab_a_course_without_an_address_says_what_is_missing(
    tmp_path: Path,
) -> None:
    asked, error = run_setup(True, False, None, tmp_path)
    assert asked == []
    assert "no repository yet: see README, 'Colab'" in error
    assert "**Colab.**" in (ROOT / "README.md").read_text(encoding="utf-8")


# ------------------------------------------------------------------ the address


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that carry the address, with one chapter, and no address yet."""
    for name in ("pyproject.toml", "_config.yml", "README.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path / name)
    if read_repository() is not None:
        pytest.fail("These tests start from a course whose address is not set.")
    (tmp_path / "book").mkdir()
    text = set_repository.write_notebook(chapter())
    (tmp_path / "book" / "01-patches.ipynb").write_text(text, encoding="utf-8")
    return tmp_path


def contents(tree: Path) -> dict[str, str]:
    return {
        path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


def test_until_an_address_is_set_nothing_links_to_one(tree: Path) -> None:
    for name, text in contents(tree).items():
        for host in ("colab.research.google.com", "mybinder.org", "://github.com/some"):
            assert host not in text, name
    config = yaml.safe_load((tree / "_config.yml").read_text(encoding="utf-8"))
    assert "repository" not in config
    assert "launch_buttons" not in config


def test_one_command_writes_the_address_everywhere(tree: Path) -> None:
    before = contents(tree)
    assert set_repository.main([f"{URL}.git/"], root=tree) == 0
    after = contents(tree)
    assert all(URL in text and ".git/" not in text for text in after.values()), after
    assert before.keys() == after.keys()

    assert read_repository(tree) == URL
    assert tomllib.loads(after["pyproject.toml"])["project"]["urls"] == {
        "Repository": URL
    }
    config = yaml.safe_load(after["_config.yml"])
    assert config["repository"] == {
        "url": URL,
        "branch": "main",
        "path_to_book": "",
    }
    assert config["launch_buttons"]["colab_url"] == "https://colab.research.google.com"
    assert config["html"]["use_repository_button"] is True
    assert config["html"]["favicon"] == "book/_static/favicon.svg"
    assert yaml.safe_load(after["CITATION.cff"])["repository-code"] == URL
    notebook = json.loads(after["book/01-patches.ipynb"])
    assert "".join(notebook["cells"][1]["source"]) == setup_source(URL)
    assert notebook == chapter(url=URL)


def test_the_links_of_the_readme_lead_to_a_chapter_that_is_there(tree: Path) -> None:
    set_repository.main([URL], root=tree)
    text = (tree / "README.md").read_text(encoding="utf-8")
    links = text.split("<!-- repository -->")[1].split("<!-- /repository -->")[0]
    place = "https://colab.research.google.com/github/someone/vit-course/blob/main/"
    file = links.split(place)[1].split(")")[0]
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert file.removesuffix(".ipynb") in [entry["file"] for entry in toc["chapters"]]


def test_setting_it_again_changes_nothing(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_repository.main([URL], root=tree)
    once = contents(tree)
    capsys.readouterr()
    assert set_repository.main([URL], root=tree) == 0
    assert capsys.readouterr().out == f"Every file names {URL}.\n"
    assert contents(tree) == once


def test_another_address_leaves_nothing_of_the_first(tree: Path) -> None:
    set_repository.main([URL], root=tree)
    set_repository.main(["https://github.com/other/name"], root=tree)
    moved = contents(tree)
    assert not any("someone" in text for text in moved.values())
    assert set_repository.main([URL], root=tree) == 0
    assert "other/name" not in "".join(contents(tree).values())


def test_the_check_reports_what_disagrees_and_changes_nothing(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set_repository.main(["--check"], root=tree) == 0
    set_repository.main([URL], root=tree)
    assert set_repository.main(["--check"], root=tree) == 0
    citation = tree / "CITATION.cff"
    text = citation.read_text(encoding="utf-8").replace("someone", "nobody")
    citation.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert set_repository.main(["--check"], root=tree) == 1
    assert capsys.readouterr().out == "differs: CITATION.cff\n"
    assert citation.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "someone/vit-course",
        "git@github.com:someone/vit-course.git",
        "http://github.com/someone/vit-course",
        "https://gitlab.com/someone/vit-course",
        "https://github.com/someone",
        "https://github.com/someone/vit-course/tree/main",
        "https://github.com/some one/vit-course",
        "https://github.com/someone/vit'course",
        "https://github.com/someone/vit-course\n",
    ],
)
def test_what_is_no_address_is_refused_and_nothing_written(
    url: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(tree)
    assert set_repository.main([url], root=tree) == 2
    printed = capsys.readouterr()
    assert "https://github.com/OWNER/NAME" in printed.out + printed.err
    assert contents(tree) == before


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("README.md", "<!-- repository -->"),
        ("_config.yml", "\nhtml:\n"),
        ("pyproject.toml", "[project.optional-dependencies]"),
        ("book/01-patches.ipynb", '"id": "setup"'),
    ],
)
def test_a_file_with_no_place_for_the_address_stops_the_command(
    name: str, lost: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tree / name
    text = path.read_text(encoding="utf-8")
    assert lost in text
    path.write_text(text.replace(lost, lost.swapcase()), encoding="utf-8")
    before = contents(tree)
    assert set_repository.main([URL], root=tree) == 2
    assert f"{name}: it " in capsys.readouterr().err
    assert contents(tree) == before


def test_an_address_is_written_in_one_form() -> None:
    for form in (URL, f"{URL}/", f"{URL}.git", f"{URL}.git/"):
        assert normalise(form) == URL
    assert normalise("https://github.com/o/my.git.repo") == (
        "https://github.com/o/my.git.repo"
    )
