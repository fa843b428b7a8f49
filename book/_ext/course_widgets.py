"""Lets the widgets of a page share what they have in common.

In its HTML form a widget of `course_utils.widgets` carries all that it needs.
On the site the files behind it (modules, style sheet, trained weights) become
scripts of their own in ``_static/widgets``: each is loaded once, by the first
widget that needs it and only when that comes near, and the browser keeps it for
the other pages. Scripts, because a page opened from disk may load nothing else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from course_utils.widgets.base import as_json, start_script

FILES = re.compile(
    r'(<script type="application/json" class="course-widget-files">)'
    r"(.*?)(?=</script>)",
    re.DOTALL,
)
HOST = re.compile(r'<script class="course-widget-host">.*?</script>', re.DOTALL)
START = "course-widgets.js"
SHELF = 'globalThis[Symbol.for("vit-course.files")]'


class ShareFiles(SphinxPostTransform):
    """Replace what the widgets of a page carry by where it stands."""

    default_priority = 400
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Go through the page's raw HTML."""
        shared = Path(self.app.outdir) / "_static" / "widgets"
        up = "../" * self.env.docname.count("/")

        def move(found: re.Match[str]) -> str:
            places = {
                name: shelve(shared, name, **file, up=up)
                for name, file in json.loads(found[2]).items()
            }
            return found[1] + as_json(places)

        for raw in self.document.findall(nodes.raw):
            if 'class="course-widget"' in raw.astext():
                without_host = HOST.sub("", raw.astext())
                raw.children = [nodes.Text(FILES.sub(move, without_host))]
                raw.rawsource = raw.astext()


def shelve(
    shared: Path, name: str, digest: str, content: str, up: str
) -> dict[str, str]:
    """Write a file as a script, once; return what a page says of it."""
    path = shared / f"{name}-{digest}.js"
    if not path.exists():
        shared.mkdir(parents=True, exist_ok=True)
        line = f'({SHELF} ??= {{}})["{digest}"] = {json.dumps(content)};\n'
        path.write_text(line, encoding="utf-8")
    return {"digest": digest, "src": f"{up}_static/widgets/{path.name}"}


def start_widgets(
    app: Sphinx,
    pagename: str,
    template: str,
    context: dict[str, Any],
    doctree: Any,
) -> None:
    """Load the script that brings widgets to life, on pages that have any."""
    if doctree is not None and any(
        'class="course-widget"' in raw.astext()
        for raw in doctree.findall(nodes.raw)
    ):
        app.add_js_file(f"widgets/{START}", loading_method="defer")


def write_start(app: Sphinx) -> None:
    """Put that script among the site's own files."""
    if app.builder.format == "html":
        shared = Path(app.outdir) / "_static" / "widgets"
        shared.mkdir(parents=True, exist_ok=True)
        (shared / START).write_text(start_script(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_post_transform(ShareFiles)
    app.connect("builder-inited", write_start)
    app.connect("html-page-context", start_widgets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
