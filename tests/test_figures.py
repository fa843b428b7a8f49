"""Statements about what every picture of the course is: accessible, themed, small."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from course_utils.figures import COLOURS, Figure, colour, svg_element


class Elements(HTMLParser):
    """The start tags of some HTML, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def a_figure(alt="A circle.", caption="", png=None):
    return Figure(
        svg_element('<circle r="1"/>', 30, 20, alt, "0 0 3 2"), alt, caption, png
    )


@pytest.mark.parametrize("alt", ["", "  ", "\n"])
def test_a_figure_without_alternative_text_is_refused(alt):
    with pytest.raises(ValueError, match="needs alternative text: pass alt="):
        Figure("<svg/>", alt)


def test_the_alternative_text_is_the_name_of_an_image():
    (svg,) = Elements(a_figure("Two circles.").html).all("svg")
    assert svg["role"] == "img"
    assert svg["aria-label"] == "Two circles."


def test_whatever_stands_in_the_words_stays_words():
    words = 'He said "a < b & c"\n<script>alert(1)</script>'
    page = Elements(a_figure(words, caption=words).html)
    assert [tag for tag, _ in page.found] == ["figure", "svg", "circle", "figcaption"]
    assert page.all("svg")[0]["aria-label"] == " ".join(words.split())
    assert page.words == words


def test_a_caption_is_shown_only_if_there_is_one():
    assert "<figcaption" not in a_figure().html
    assert Elements(a_figure(caption="See the round shape.").html).words == (
        "See the round shape."
    )


def test_a_figure_is_never_wider_than_it_was_made_or_than_its_page():
    (figure, svg) = (Elements(a_figure().html).all(tag)[0] for tag in ("figure", "svg"))
    assert "max-width:46px" in figure["style"]  # 30 and 8 of padding on each side
    assert "width:100%;height:auto" in svg["style"]
    assert (svg["width"], svg["height"], svg["viewbox"]) == ("30", "20", "0 0 3 2")


def test_a_notebook_gets_html_and_words_and_an_image_where_svg_is_not_shown():
    data, metadata = a_figure(png=b"\x89PNG")._repr_mimebundle_()
    assert set(data) == {"text/html", "text/plain", "image/png"}
    assert data["text/plain"] == metadata["image/png"]["alt"] == "A circle."
    assert data["image/png"] == "iVBORw=="
    data, _ = a_figure()._repr_mimebundle_()
    assert set(data) == {"text/html", "text/plain", "image/svg+xml"}
    assert repr(a_figure()) == "Figure(alt='A circle.')"


@pytest.mark.parametrize("name", COLOURS)
def test_a_colour_follows_the_site_and_has_a_light_value_without_it(name):
    assert colour(name) == f"var(--course-{name}, {COLOURS[name]})"
    assert re.fullmatch("#[0-9A-F]{6}", COLOURS[name])


def test_the_palette_is_that_of_the_sites_style_sheet(pytestconfig):
    sheet = pytestconfig.rootpath / "book" / "_static" / "course.css"
    light = re.findall(r"--course-(\w+): (#\w{6});", sheet.read_text(encoding="utf-8"))
    first = {name: value.upper() for name, value in reversed(light)}
    assert {name: first[name] for name in COLOURS} == COLOURS


def test_no_matplotlib_is_needed_for_them():
    code = (
        "import sys, course_utils.figures; "
        "sys.exit(bool({'matplotlib', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
