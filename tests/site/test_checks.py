"""The checks of the pages find what they are for, on small bad pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import page_checks as checks
import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

PAGE = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <link rel="icon" href="data:," />
    <title>A page</title>
    {head}
  </head>
  <body>
    <main class="bd-article"><h1>A page</h1>{body}</main>
  </body>
</html>
"""

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAUwAOw=="

Open = Callable[..., checks.Visit]


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Serve and open one page with the given body."""
    with checks.serve(tmp_path) as home, browser.new_context() as context:

        def open_with(body: str = "", head: str = "") -> checks.Visit:
            # A name of its own: within a second the browser would take a changed
            # file for the one it has kept.
            name = f"page-{len(context.pages)}.html"
            page = PAGE.format(body=body, head=head)
            (tmp_path / name).write_text(page, encoding="utf-8")
            return checks.visit(context, home, name)

        yield open_with


def test_a_good_page_passes(open_page: Open) -> None:
    seen = open_page(
        f'<p>Words, <a href="#end">a link</a>.</p><img src="{PIXEL}" alt="A dot">'
        '<svg role="img" aria-label="Nothing" width="9" height="9"></svg>'
        '<p id="end"></p>'
    )
    complaints = (
        checks.noise(seen) + checks.strangers(seen) + checks.failed_requests(seen)
    )
    for check in (
        checks.overflow,
        checks.nameless_images,
        checks.unset_formulas,
        checks.unreachable_scrollers,
        checks.axe,
        checks.unseen_focus,
    ):
        complaints += check(seen.page)
    assert complaints == []


@pytest.mark.parametrize(
    "script",
    ["console.error('broken')", "console.warn('broken')", "throw Error('broken')"],
)
def test_noise_in_the_console_is_heard(open_page: Open, script: str) -> None:
    (complaint,) = checks.noise(open_page(f"<script>{script}</script>"))
    assert "broken" in complaint


@pytest.mark.parametrize(
    "body",
    [
        '<img src="https://elsewhere.invalid/dot.png" alt="A dot">',
        '<script src="//elsewhere.invalid/library.js"></script>',
        "<style>@import url('https://elsewhere.invalid/fonts.css')</style>",
        "<script>fetch('https://elsewhere.invalid/').catch(() => {})</script>",
    ],
)
def test_a_request_to_another_host_is_seen(open_page: Open, body: str) -> None:
    (complaint,) = checks.strangers(open_page(body))
    assert "elsewhere.invalid" in complaint


def test_a_missing_file_is_seen(open_page: Open) -> None:
    seen = open_page('<img src="missing.png" alt="A dot">')
    (complaint,) = checks.failed_requests(seen)
    assert complaint.endswith("missing.png: status 404")
    (complaint,) = checks.nameless_images(seen.page)
    assert complaint.startswith("not loaded")


def test_what_is_too_wide_is_named(open_page: Open) -> None:
    wide = '<div id="culprit" style="width: 3000px">wide</div>'
    first, culprit = checks.overflow(open_page(wide).page)
    assert "the page is" in first
    assert "culprit" in culprit


def test_what_scrolls_by_itself_is_not_too_wide_but_must_be_reachable(
    open_page: Open,
) -> None:
    inner = '<div style="width: 3000px">wide</div>'
    page = open_page(f'<div style="overflow: auto">{inner}</div>').page
    assert checks.overflow(page) == []
    assert len(checks.unreachable_scrollers(page)) == 1
    named = 'tabindex="0" role="group" aria-label="Wide"'
    page = open_page(f'<div style="overflow: auto" {named}>{inner}</div>').page
    assert checks.unreachable_scrollers(page) == []


@pytest.mark.parametrize(
    "body",
    [
        f'<img src="{PIXEL}">',
        f'<img src="{PIXEL}" alt=" ">',
        '<svg width="9" height="9"></svg>',
        '<svg role="img" width="9" height="9"></svg>',
        '<svg role="img" aria-label="" width="9" height="9"></svg>',
    ],
)
def test_a_picture_without_words_is_seen(open_page: Open, body: str) -> None:
    assert len(checks.nameless_images(open_page(body).page)) == 1


def test_a_formula_that_is_not_set_is_seen(open_page: Open) -> None:
    page = open_page(r'<span class="math">\(x^2\)</span>').page
    assert checks.unset_formulas(page) == [r"not set: \(x^2\)"]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ('<p style="color: #bbb">Faint words.</p>', "color-contrast"),
        ("<button></button>", "button-name"),
        ("<h3>A level left out</h3>", "heading-order"),
        ("<label>Words</label><input>", "label"),
    ],
)
def test_axe_is_at_work(open_page: Open, body: str, rule: str) -> None:
    complaints = checks.axe(open_page(body).page)
    assert [line.partition(":")[0] for line in complaints] == [rule]


def test_focus_that_does_not_show_is_seen(open_page: Open) -> None:
    bare = '<a id="bare" href="#a" style="outline: none">a link</a>'
    (complaint,) = checks.unseen_focus(open_page(bare).page)
    assert "focus does not show" in complaint
    away = '<a href="#a" style="position: absolute; left: -999px">a link</a>'
    (complaint,) = checks.unseen_focus(open_page(away).page)
    assert "focus is out of sight" in complaint
    assert checks.unseen_focus(open_page().page) == ["the Tab key reaches nothing"]


def test_links_that_lead_nowhere_are_seen(tmp_path: Path) -> None:
    good = '<a href="other.html#there">a</a> <a href="#here">b</a> <p id="here"></p>'
    bad = (
        '<a href="gone.html">a</a> <a href="other.html#gone">b</a> <a href="#no">c</a>'
    )
    (tmp_path / "other.html").write_text('<p id="there"></p>')
    (tmp_path / "page.html").write_text(good)
    assert checks.broken_links(tmp_path, checks.read_anchors(tmp_path)) == []
    (tmp_path / "page.html").write_text(bad)
    assert len(checks.broken_links(tmp_path, checks.read_anchors(tmp_path))) == 3
