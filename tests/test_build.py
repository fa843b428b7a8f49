"""What the build of the book takes for changed, without building it."""

from __future__ import annotations

from pathlib import Path

import build_book
import pytest
from build_book import BEHIND, BOOK, key


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small course."""
    for name in (
        "_config.yml",
        "_toc.yml",
        "requirements.txt",
        "README.md",
        "book/01-patches.ipynb",
        "book/_static/course.css",
        "course_utils/patches.py",
        "course_utils/data/digits.npz",
        "tools/build_book.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return tmp_path


def keys(tree: Path) -> tuple[str, str]:
    return key(tree, BEHIND), key(tree, BEHIND + BOOK)


@pytest.mark.parametrize(
    "name",
    ["course_utils/patches.py", "course_utils/data/digits.npz", "requirements.txt"],
)
def test_a_change_behind_the_chapters_runs_them_again(name: str, tree: Path) -> None:
    before = keys(tree)
    (tree / name).write_text("changed", encoding="utf-8")
    after = keys(tree)
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize(
    "name",
    ["_config.yml", "_toc.yml", "book/01-patches.ipynb", "book/_static/course.css"],
)
def test_a_change_in_the_book_builds_it_again_with_the_results_kept(
    name: str, tree: Path
) -> None:
    before = keys(tree)
    (tree / name).write_text("changed", encoding="utf-8")
    after = keys(tree)
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_file_that_is_new_gone_or_renamed_is_a_change(tree: Path) -> None:
    seen = {keys(tree)[0]}
    file = tree / "course_utils" / "patches.py"
    file.with_name("positions.py").write_text("new", encoding="utf-8")
    seen.add(keys(tree)[0])
    file.rename(file.with_name("pieces.py"))
    seen.add(keys(tree)[0])
    file.with_name("pieces.py").unlink()
    seen.add(keys(tree)[0])
    assert len(seen) == 4


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "course_utils/__pycache__/patches.cpython-311.pyc",
        "book/.ipynb_checkpoints/01-patches-checkpoint.ipynb",
        "book/.ruff_cache/0.1/123",
        "book/.DS_Store",
        "tools/lint_notebooks.py",
    ],
)
def test_what_no_page_depends_on_is_no_change(name: str, tree: Path) -> None:
    before = keys(tree)
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed", encoding="utf-8")
    assert keys(tree) == before


def test_a_hidden_folder_above_the_course_hides_nothing_in_it(tree: Path) -> None:
    (tree / "course_utils").rename(tree / "kept")
    hidden = tree / ".hidden"
    hidden.mkdir()
    (tree / "kept").rename(hidden / "course_utils")
    empty = key(tree, ["course_utils"])
    assert key(hidden, ["course_utils"]) != empty


class Builds:
    """Stands in for Jupyter Book: counts the builds, and ends them as it is told."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.count = 0
        self.status = 0
        self.problems: list[str] = []
        self.edits: Path | None = None
        self.found_results = False

    def __call__(self, root: Path) -> tuple[int, list[str]]:
        self.count += 1
        cached = root / "_build" / ".jupyter_cache" / "result"
        self.found_results = cached.is_file()
        cached.write_text("42", encoding="utf-8")
        page = root / "_build" / "html" / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text("a page", encoding="utf-8")
        if self.edits is not None:
            self.edits.write_text("edited meanwhile", encoding="utf-8")
        return self.status, list(self.problems)


@pytest.fixture
def builds(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Builds:
    stand_in = Builds(tree)
    monkeypatch.setattr(build_book, "run_jupyter_book", stand_in)
    return stand_in


def test_nothing_is_built_when_nothing_changed(
    tree: Path, builds: Builds, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build_book.main(tree) == 0
    assert build_book.main(tree) == 0
    assert builds.count == 1
    page = (tree / "_build/html/index.html").as_uri()
    assert f"The book is up to date: {page}" in capsys.readouterr().out


def test_a_book_that_somebody_removed_is_built_again(
    tree: Path, builds: Builds
) -> None:
    build_book.main(tree)
    (tree / "_build/html/index.html").unlink()
    build_book.main(tree)
    assert builds.count == 2


def test_a_page_that_the_book_no_longer_has_goes(tree: Path, builds: Builds) -> None:
    build_book.main(tree)
    old = tree / "_build/html/old.html"
    old.write_text("an old page", encoding="utf-8")
    (tree / "_toc.yml").write_text("changed", encoding="utf-8")
    build_book.main(tree)
    assert not old.exists()


def test_results_are_kept_until_what_stands_behind_them_changes(
    tree: Path, builds: Builds
) -> None:
    build_book.main(tree)
    (tree / "book/01-patches.ipynb").write_text("changed", encoding="utf-8")
    build_book.main(tree)
    assert builds.found_results
    (tree / "course_utils/patches.py").write_text("changed", encoding="utf-8")
    build_book.main(tree)
    assert not builds.found_results


def test_a_build_that_failed_is_not_taken_for_good(
    tree: Path, builds: Builds, capsys: pytest.CaptureFixture[str]
) -> None:
    builds.status, builds.problems = 1, ["book/index.md:3: WARNING: no such page"]
    assert build_book.main(tree) == 1
    assert "WARNING: no such page" in capsys.readouterr().err
    assert build_book.main(tree) == 1
    builds.status = 0
    assert build_book.main(tree) == 0
    assert builds.count == 3


def test_a_package_edited_during_the_build_spoils_it(
    tree: Path, builds: Builds, capsys: pytest.CaptureFixture[str]
) -> None:
    builds.edits = tree / "course_utils/patches.py"
    assert build_book.main(tree) == 1
    assert "changed while it was built" in capsys.readouterr().err
    builds.edits = None
    assert build_book.main(tree) == 0
    assert not builds.found_results
