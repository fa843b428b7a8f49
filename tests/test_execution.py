"""The built book shows what its chapters gave, and a faulty chapter stops the build.

Runs after `make book`.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from jupyter_cache import get_cache
from lint_notebooks import NOTEBOOK_METADATA
from set_repository import chapters, read_repository
from set_repository import main as set_address
from setup_cell import setup_cell

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = chapters(ROOT)

Notebook = dict[str, Any]


def kept_run(chapter: Path, root: Path = ROOT) -> list[dict[str, Any]]:
    """A chapter's cells as the build ran them; the cache knows it by their code."""
    folder = root / "_build" / ".jupyter_cache"
    if not folder.is_dir():
        pytest.fail(f"There is no built book in {root / '_build'}: run make book")
    cache = get_cache(str(folder))
    try:
        record = cache.match_cache_file(str(chapter))
    except KeyError:
        pytest.fail(f"The book does not show {chapter.name} as it is: run make book")
    cells: list[dict[str, Any]] = cache.get_cache_bundle(record.pk).nb.cells
    return cells


def page_of(chapter: Path, root: Path = ROOT) -> str:
    """The built page of a chapter."""
    page = (root / "_build/html" / chapter.relative_to(root)).with_suffix(".html")
    if not page.is_file():
        pytest.fail(f"There is no page {page}: run make book")
    return page.read_text(encoding="utf-8")


def words_of(page: str) -> str:
    """A page's text, with one space between words."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


def links_of(page: str) -> list[str]:
    """Where a page's links lead."""
    return [html.unescape(link) for link in re.findall(r'\bhref="([^"]+)"', page)]


def launch_links(page: str) -> list[str]:
    """The links that open a chapter elsewhere."""
    hosts = ("colab.research.google.com", "mybinder.org")
    return [link for link in links_of(page) if urlsplit(link).hostname in hosts]


each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)


def test_there_are_chapters() -> None:
    assert CHAPTERS


@each_chapter
def test_every_cell_of_a_chapter_ran_without_an_error(chapter: Path) -> None:
    run = [cell for cell in kept_run(chapter) if cell["cell_type"] == "code"]
    source = json.loads(chapter.read_text(encoding="utf-8"))["cells"]
    assert len(run) == sum(cell["cell_type"] == "code" for cell in source)
    for cell in run:
        assert cell["execution_count"], cell["source"]
        kinds = [output["output_type"] for output in cell["outputs"]]
        assert "error" not in kinds, cell["source"]
        names = [output.get("name") for output in cell["outputs"]]
        assert "stderr" not in names, cell["source"]
    assert any(cell["outputs"] for cell in run)


@each_chapter
def test_a_page_shows_the_text_that_its_cells_printed(chapter: Path) -> None:
    shown = words_of(page_of(chapter))
    for cell in kept_run(chapter):
        if "remove-cell" in cell["metadata"].get("tags", []):
            continue
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            printed = output.get("text") or data.get("text/plain", "")
            # What has a richer form is shown in that form.
            if set(data) <= {"text/plain"}:
                assert " ".join(printed.split()) in shown, cell["source"]


@each_chapter
def test_launch_buttons_lead_to_the_chapter_or_are_not_there(chapter: Path) -> None:
    links = launch_links(page_of(chapter))
    if read_repository() is None:
        assert links == []
    else:
        place = f"/blob/main/{chapter.relative_to(ROOT).as_posix()}"
        assert [link for link in links if link.endswith(place)]


# ------------------------------------------------------------------ a small book


def write_chapter(path: Path, title: str, *cells: str) -> None:
    notebook = {
        "cells": [
            {
                "cell_type": "markdown",
                "id": "title",
                "metadata": {},
                "source": [f"# {title}\n"],
            },
            setup_cell(None),
            *(
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "id": f"cell-{index}",
                    "metadata": {},
                    "outputs": [],
                    "source": text.splitlines(keepends=True),
                }
                for index, text in enumerate(cells)
            ),
        ],
        "metadata": NOTEBOOK_METADATA,
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(notebook), encoding="utf-8")


def build(root: Path) -> subprocess.CompletedProcess[str]:
    start = "import sys, pathlib, build_book; "
    start += "sys.exit(build_book.main(pathlib.Path(sys.argv[1])))"
    return subprocess.run(
        [sys.executable, "-c", start, str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools"), "MPLBACKEND": "none"},
        capture_output=True,
        text=True,
        timeout=240,
    )


class Attempts(NamedTuple):
    """A book with two faulty chapters, built, mended, and built again."""

    root: Path
    faulty: subprocess.CompletedProcess[str]
    mended: subprocess.CompletedProcess[str]
    again: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    root = tmp_path_factory.mktemp("course")
    for name in ("_config.yml", "pyproject.toml", "README.md", "CITATION.cff"):
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(ROOT / "book" / "_ext", root / "book" / "_ext")
    static = root / "book" / "_static"
    static.mkdir()
    for name in ("course.css", "course-site.js", "favicon.svg"):
        shutil.copy(ROOT / "book" / "_static" / name, static / name)
    (root / "book" / "index.md").write_text("# A small book\n", encoding="utf-8")
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n"
        + "".join(f"  - file: book/{name}\n" for name in ("good", "raises", "warns")),
        encoding="utf-8",
    )
    note = root / "runs.txt"
    good = f"with open({str(note)!r}, 'a') as notes:\n    notes.write('run ')\n6 * 7"
    backend = "import matplotlib\nmatplotlib.get_backend()"
    write_chapter(root / "book/good.ipynb", "Good", good, backend)
    write_chapter(root / "book/raises.ipynb", "Raises", "1 + 1", "1 / 0")
    warn = "import warnings\nwarnings.warn('a doubtful thing')"
    write_chapter(root / "book/warns.ipynb", "Warns", warn)
    faulty = build(root)
    write_chapter(root / "book/raises.ipynb", "Raises", "1 + 1")
    write_chapter(root / "book/warns.ipynb", "Warns", "1 + 1")
    if set_address(["https://github.com/someone/vit-course"], root=root):
        pytest.fail("The address could not be set.")
    mended = build(root)
    return Attempts(root, faulty, mended, build(root))


def test_a_faulty_chapter_stops_the_build_and_is_named(attempts: Attempts) -> None:
    assert attempts.faulty.returncode != 0
    assert "The book was not built." in attempts.faulty.stderr
    named = attempts.faulty.stderr
    assert "book/raises.ipynb: ZeroDivisionError: division by zero" in named
    assert re.search(r"book/warns\.ipynb.*stderr", named)
    assert "good.ipynb" not in named


def test_a_mended_book_is_built_and_then_left_alone(attempts: Attempts) -> None:
    page = (attempts.root / "_build/html/index.html").as_uri()
    assert attempts.mended.returncode == 0, attempts.mended.stderr
    assert re.search(r"The book is built \(\d+ s\): " + page, attempts.mended.stdout)
    assert attempts.again.returncode == 0
    assert attempts.again.stdout == f"The book is up to date: {page}\n"


def test_charts_go_into_the_notebook_whatever_the_shell_asks_for(
    attempts: Attempts,
) -> None:
    good = attempts.root / "book/good.ipynb"
    outputs = [cell.get("outputs") for cell in kept_run(good, attempts.root)]
    assert "inline" in outputs[-1][0]["data"]["text/plain"]


def test_with_an_address_the_buttons_lead_to_the_chapter(attempts: Attempts) -> None:
    good = attempts.root / "book/good.ipynb"
    links = launch_links(page_of(good, attempts.root))
    place = "someone/vit-course/blob/main/book/good.ipynb"
    assert f"https://colab.research.google.com/github/{place}" in links
    binder = next(link for link in links if "mybinder.org" in link)
    assert "/gh/someone/vit-course/main?" in binder
    assert "book/good.ipynb" in binder
