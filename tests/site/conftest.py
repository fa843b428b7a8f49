from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_checks import Anchors, read_anchors, serve

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
NOT_BUILT = "run make book first"


def readable_pages() -> list[str]:
    """The pages that a reader reads: all but those that only lead on."""
    anchors = read_anchors(HTML) if HTML.is_dir() else {}
    return [name for name, page in anchors.items() if not page.redirects]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for a page on each page that was built."""
    if "page_name" in metafunc.fixturenames:
        # Without a book the test still runs, and fails: see the fixture `html`.
        metafunc.parametrize("page_name", readable_pages() or [NOT_BUILT])


@pytest.fixture(scope="session")
def html() -> Path:
    """The folder of the built book."""
    if not (HTML / "index.html").is_file():
        pytest.fail(f"There is no built book in {HTML}: {NOT_BUILT}", pytrace=False)
    return HTML


@pytest.fixture(scope="session")
def anchors(html: Path) -> dict[str, Anchors]:
    """The links and anchors of every page."""
    return read_anchors(html)


@pytest.fixture(scope="session")
def site(html: Path) -> Iterator[str]:
    """The address at which the built book is served."""
    with serve(html) as address:
        yield address
