"""What every widget is: an anywidget that also lives on a page without a kernel.

Behind a kernel (JupyterLab, VS Code, Colab) a widget is an ordinary anywidget. In its
``text/html`` form, which the site shows, the same JavaScript runs on the same traits,
started by ``host.js``. README.md beside this file tells how the pieces fit.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import anywidget

from course_utils.data import embedded
from course_utils.figures import Figure

FOLDER = Path(__file__).parent
_IMPORT = re.compile(r'^import [^;"]+ from "\./([^"]+)";$', re.MULTILINE)


class File(NamedTuple):
    """A file as pages get it.

    Attributes:
        digest: tells this content, with all it imports, from any other.
        content: the text of JavaScript or CSS; of others the bytes, deflated, base64.
    """

    digest: str
    content: str


@cache
def files(module: str) -> dict[str, File]:
    """Collect a module and all that it imports, straight or in turn: name → file.

    Trained weights are taken from the package's data, everything else stands here.

    Raises:
        FileNotFoundError: if an import leads nowhere.
    """
    if module.endswith(".safetensors"):
        raw = embedded(module)
    else:
        raw = (FOLDER / module).read_bytes()
    found: dict[str, File] = {}
    if module.endswith((".js", ".css")):
        content = raw.decode("utf-8")
        for name in _IMPORT.findall(content):
            found |= files(name)
    else:
        content = base64.b64encode(zlib.compress(raw, 9)).decode()
    digest = sha256(content.encode())
    for name, file in sorted(found.items()):
        digest.update(f"{name} {file.digest}".encode())
    return {**found, module: File(digest.hexdigest()[:16], content)}


def as_json(value: object) -> str:
    """Write JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _files_json(module: str) -> str:
    return as_json({name: file._asdict() for name, file in files(module).items()})


class CourseWidget(anywidget.AnyWidget):
    """A widget of the course. A subclass names its module and draws its figure.

    Attributes:
        module: the JavaScript file beside this one; its default export has `render`.
    """

    module: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "module" in cls.__dict__:  # traitlets makes a class of its own per widget
            cls._esm = (
                f"{_text('link.js')}\n"
                f"const files = {_files_json(cls.module)};\n"
                f'const linked = await linkModule("{cls.module}", files);\n'
                "export default linked.default;\n"
            )
        super().__init_subclass__(**kwargs)

    def figure(self) -> Figure:
        """Draw the widget as it is now, for paper and where scripts don't run."""
        raise TypeError(f"{type(self).__name__} has no figure; give it one")

    @property
    def traits_in_page(self) -> dict[str, Any]:
        """The traits that the JavaScript reads and writes, as JSON can hold them."""
        inherited = anywidget.AnyWidget.class_trait_names()
        own = [
            name
            for name in self.trait_names(sync=True)
            if name not in inherited and not name.startswith("_")
        ]
        return self.get_state(own)

    @property
    def html(self) -> str:
        """The widget as one element that needs no kernel and nothing else."""
        state = as_json({"module": self.module, "traits": self.traits_in_page})
        return (
            f'<div class="course-widget" data-widget="{type(self).__name__}">'
            f"{STYLE}"
            f'<div class="course-widget-figure">{self.figure().html}</div>'
            '<script type="application/json" class="course-widget-state">'
            f"{state}</script>"
            '<script type="application/json" class="course-widget-files">'
            f"{_files_json(self.module)}</script>"
            f'<script class="course-widget-host">{start_script()}</script>'
            "</div>"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:  # a host without widgets
            data["text/html"] = self.html
        return bundle


# The figure makes room for the living widget, and comes back on paper.
STYLE = (
    "<style>.course-widget-is-live>.course-widget-figure{display:none}"
    "@media print{.course-widget-is-live>.course-widget-figure{display:block}"
    ".course-widget-is-live>.course-widget-live{display:none}}</style>"
)


def start_script() -> str:
    """The script that brings all widgets of a page to life."""
    return _text("link.js") + _text("host.js")
