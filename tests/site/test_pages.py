"""Every page of the built book, in a browser: whole, quiet, alone and for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from page_checks import (
    Anchors,
    Visit,
    axe,
    broken_links,
    failed_requests,
    nameless_images,
    noise,
    overflow,
    strangers,
    unreachable_scrollers,
    unseen_focus,
    unset_formulas,
    visit,
)
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.browser

Open = Callable[..., Visit]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open a page of a site in a window of its own."""
    contexts = []

    def open_in(
        home: str, name: str, width: int = 1280, scheme: str = "light"
    ) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        return visit(context, home, name)

    yield open_in
    for context in contexts:
        context.close()


def test_the_book_has_every_page_of_its_table_of_contents(
    anchors: dict[str, Anchors],
) -> None:
    def files(entry: object) -> Iterator[str]:
        if isinstance(entry, dict):
            for key, value in entry.items():
                yield from [value] if key in ("root", "file") else files(value)
        elif isinstance(entry, list):
            for item in entry:
                yield from files(item)

    contents = {
        f"{name.removesuffix('.md').removesuffix('.ipynb')}.html"
        for name in files(yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8")))
    }
    assert "book/index.html" in contents
    assert contents | {"index.html", "search.html", "genindex.html"} <= anchors.keys()


def test_links_between_pages_lead_somewhere(
    html: Path, anchors: dict[str, Anchors]
) -> None:
    assert sum(len(page.links) for page in anchors.values()) > 0
    assert broken_links(html, anchors) == []


def test_the_front_door_leads_into_the_book(site: str, browser: Browser) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site}/")
        page.wait_for_url(f"{site}/book/index.html")
        assert page.locator(".bd-article h1").is_visible()


def test_a_page_opens_without_a_complaint_and_asks_nobody_else(
    site: str, page_name: str, open_page: Open
) -> None:
    seen = open_page(site, page_name)
    assert len(seen.requests) > 1
    assert noise(seen) + strangers(seen) + failed_requests(seen) == []


def test_a_page_works_from_disk(html: Path, page_name: str, open_page: Open) -> None:
    seen = open_page(html.as_uri(), page_name)
    assert noise(seen) + strangers(seen) + failed_requests(seen) == []
    assert unset_formulas(seen.page) + nameless_images(seen.page) == []


def test_pictures_load_and_have_words_and_formulas_are_set(
    site: str, page_name: str, open_page: Open
) -> None:
    page = open_page(site, page_name).page
    assert nameless_images(page) + unset_formulas(page) == []


@pytest.mark.parametrize("width", [390, 320])
def test_a_page_fits_a_phone(
    site: str, page_name: str, width: int, open_page: Open
) -> None:
    page = open_page(site, page_name, width).page
    assert overflow(page) + unreachable_scrollers(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(
    site: str, page_name: str, scheme: str, open_page: Open
) -> None:
    page = open_page(site, page_name, scheme=scheme).page
    assert page.locator("html").get_attribute("data-theme") == scheme
    assert axe(page) == []


def test_axe_finds_no_fault_on_a_phone(
    site: str, page_name: str, open_page: Open
) -> None:
    assert axe(open_page(site, page_name, 390).page) == []


def test_the_keyboard_sees_where_it_is(
    site: str, page_name: str, open_page: Open
) -> None:
    assert unseen_focus(open_page(site, page_name).page) == []


def test_the_first_stop_of_the_keyboard_skips_to_the_text(
    site: str, open_page: Open
) -> None:
    page = open_page(site, "book/index.html").page
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.inner_text() == "Skip to main content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_search_finds_a_page(site: str, open_page: Open) -> None:
    seen = open_page(site, "search.html?q=patches")
    seen.page.wait_for_selector("#search-results li a")
    assert noise(seen) + strangers(seen) + failed_requests(seen) == []


def test_a_page_is_light(site: str, open_page: Open) -> None:
    """What each page costs beyond its own text, before compression."""
    page = open_page(site, "book/index.html").page
    sizes = page.evaluate("""async () => Object.fromEntries(await Promise.all(
      performance.getEntriesByType("resource").map(async ({ name }) =>
        [name, (await (await fetch(name)).arrayBuffer()).byteLength])))""")
    fonts = {name: size for name, size in sizes.items() if name.endswith(".woff2")}
    assert fonts
    assert sum(fonts.values()) < 300_000
    assert not [name for name in sizes if "fontawesome" in name]
    assert sum(sizes.values()) < 1_000_000 or "mathjax" in " ".join(sizes)
