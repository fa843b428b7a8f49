"""What every picture of the course shares: its palette, and a figure to display.

A figure is inline SVG. Its colours are CSS variables with the light value as fallback,
so that it follows the theme of the site and stays readable where the site's styles do
not reach. Every figure carries alternative text that states the facts it shows.
"""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass

COLOURS = {
    "1": "#0B6E74",
    "2": "#C8551B",
    "3": "#4C5FA8",
    "4": "#A8518A",
    "5": "#6B7F1E",
    "6": "#8A6D3B",
    "ink": "#1F2933",
    "muted": "#5B6770",
    "surface": "#FFFFFF",
    "line": "#D5DBDF",
    "highlight": "#D9480F",
}
"""The palette in its light values; the site's course.css holds both themes."""

FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
)
"""The font of figures: the reader's own."""


@dataclass(frozen=True, repr=False)
class Figure:
    """A picture that a notebook displays, with the words that stand in for it.

    Attributes:
        svg: one element, as `svg_element` makes it.
        alt: what the picture shows.
        caption: what to see in it.
        png: the same picture on a light ground, for hosts that cannot show SVG.

    Raises:
        ValueError: if `alt` says nothing.
    """

    svg: str
    alt: str
    caption: str = ""
    png: bytes | None = None

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError(
                f"alt is {self.alt!r}; a figure needs alternative text: pass alt='…', "
                "a sentence that says what it shows to a reader who cannot see it"
            )

    def __repr__(self) -> str:
        return f"Figure(alt={self.alt!r})"

    @property
    def html(self) -> str:
        """The figure as one HTML element, readable with and without course.css."""
        width = re.search(r' width="(\d+)', self.svg)
        caption = (
            '<figcaption style="margin:.6rem 0 0;font-size:.9em;line-height:1.45;'
            f'color:{colour("muted")}">{html.escape(self.caption)}</figcaption>'
        )
        return (
            '<figure class="course-figure" style="box-sizing:border-box;'
            f"max-width:{int(width[1]) + 16 if width else 720}px;"
            "margin:1rem auto;padding:.5rem;border-radius:6px;"
            f'background:{colour("surface")};color:{colour("ink")}">'
            f"{self.svg}{caption if self.caption else ''}</figure>"
        )

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        data = {"text/html": self.html, "text/plain": self.alt}
        if self.png is None:
            return {**data, "image/svg+xml": self.svg}, {}
        data["image/png"] = base64.b64encode(self.png).decode()
        return data, {"image/png": {"alt": self.alt}}


def colour(name: str) -> str:
    """Name a colour of the palette in CSS, such as ``var(--course-ink, #1F2933)``."""
    return f"var(--course-{name}, {COLOURS[name]})"


def svg_element(body: str, width: float, height: float, alt: str, view: str) -> str:
    """Wrap the inside of an SVG in one accessible element.

    Args:
        body: the drawing.
        width: in CSS pixels; where there is less room it shrinks in proportion.
        height: in CSS pixels.
        alt: what the drawing shows.
        view: the viewBox, "left top width height" in the units of the drawing.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" '
        f'width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{html.escape(" ".join(alt.split()))}" '
        'style="display:block;width:100%;height:auto;'
        f"font-family:{FONT};font-variant-numeric:tabular-nums;"
        f'fill:{colour("ink")};stroke-linejoin:round">{body}</svg>'
    )
