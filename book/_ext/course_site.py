"""What the site needs beyond its theme.

- No widget state, icon script or source map that the pages do not use.
- Chapter numbers and cards ("Pause and think") get names of their own, so that
  the style sheet can set them; notebooks hold plain Markdown.
- Drawings (SVG images) stand in the page itself and follow its colours.
- The site's front door, ``index.html``, is a complete page.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform

CHAPTER = re.compile(r"(?:Chapter\s+)?(\d+)\s*[.:·–—]?\s+(?=\S)")
ICON_SCRIPT = re.compile(r"<script [^>]*fontawesome\.js[^>]*></script>")

# Written into _static by the theme, and asked for by no page.
UNUSED = (
    "**/*.map",
    "**/*.ttf",
    "scripts/fontawesome.js*",
    "*webpack-macros.html",
)

FRONT_DOOR = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta http-equiv="refresh" content="0; url={target}" />
    <link rel="canonical" href="{target}" />
    <title>{title}</title>
  </head>
  <body>
    <main>
      <h1>{title}</h1>
      <p><a href="{target}">Open the book</a></p>
    </main>
  </body>
</html>
"""


def drop_widget_state(app: Sphinx, pagename: str, *_: Any) -> None:
    """Leave out ipywidgets' state and scripts: our widgets carry their own."""
    NbMetadataCollector.get_js_files(app.env, pagename).clear()


def without_icon_script(head: str) -> str:
    """A page's head without its largest script: course.css draws the icons."""
    return ICON_SCRIPT.sub("", head)


def offer_to_templates(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], *_: Any
) -> None:
    """Give our layout what it calls."""
    context["without_icon_script"] = without_icon_script


def use_templates(app: Sphinx, config: Config) -> None:
    """Look for templates beside this file first."""
    config.templates_path.insert(0, str(Path(__file__).parent / "templates"))


class MarkChapterAndCards(SphinxPostTransform):
    """Name what the style sheet sets in its own way."""

    default_priority = 400
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Mark the chapter's number in the page's title, and every card."""
        if titles := list(self.document.findall(nodes.title)):
            mark_chapter(titles[0])
        for quote in self.document.findall(nodes.block_quote):
            mark_card(quote)


def mark_chapter(title: nodes.title) -> None:
    """Set a leading number apart: "1 · Patches"."""
    first = title[0]
    if isinstance(first, nodes.Text) and (found := CHAPTER.match(first)):
        number = nodes.inline("", found[1], classes=["chapter-number"])
        title[0:1] = [number, nodes.Text(" " + first[found.end() :])]


def mark_card(quote: nodes.block_quote) -> None:
    """Make a card of a quotation that opens with bold words."""
    inlines = (
        child
        for paragraph in quote.children[:1]
        if isinstance(paragraph, nodes.paragraph)
        for child in paragraph.children
        if child.astext()  # Markdown leaves an empty text in front
    )
    label = next(inlines, None)
    if isinstance(label, nodes.strong):
        quote["classes"].append("course-card")
        label["classes"].append("course-card-label")


class InlineDrawings(SphinxPostTransform):
    """Put SVG images into the page, where they can use its colours."""

    default_priority = 400
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace each image of ours that is an SVG by the drawing itself."""
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.app.srcdir, image["uri"])
            if path.suffix == ".svg" and path.is_file():
                drawing = inline_svg(
                    path.read_text("utf-8"), image.get("alt", "")
                )
                image.replace_self(nodes.raw("", drawing, format="html"))


def inline_svg(text: str, alt: str) -> str:
    """The root element of an SVG file, named for screen readers by ``alt``."""
    start = text.index("<svg")
    label = html.escape(alt)
    return f'<svg role="img" aria-label="{label}"{text[start + len("<svg") :]}'


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the front door, and remove what no page uses."""
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    target = app.builder.get_target_uri(app.config.root_doc)
    if target != "index.html":
        title = html.escape(app.config.html_title)
        page = FRONT_DOOR.format(target=target, title=title)
        (out / "index.html").write_text(page, encoding="utf-8")
    for pattern in UNUSED:
        for path in (out / "_static").glob(pattern):
            path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("config-inited", use_templates)
    app.connect("html-page-context", drop_widget_state, priority=400)
    app.connect("html-page-context", offer_to_templates)
    app.add_post_transform(MarkChapterAndCards)
    app.add_post_transform(InlineDrawings)
    # Before the table of contents' extension, which writes a barer index.html.
    app.connect("build-finished", finish, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
