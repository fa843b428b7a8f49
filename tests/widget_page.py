"""Widgets in a page of their own, opened from disk: no kernel, no site, no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from page_checks import Visit, axe, failed_requests, noise, overflow, strangers
from page_checks import visit as visit_page
from playwright.sync_api import Browser, Page

from course_utils.widgets.base import FOLDER, CourseWidget, files

GROUND = {"light": "#ffffff", "dark": "#14181b"}
INK = {"light": "#1f2933", "dark": "#e6eaed"}
LIVE = ".course-widget-is-live"


def page_of(*widgets: CourseWidget, scheme: str = "light") -> str:
    """Write a whole page that holds widgets one below the other, and nothing else."""
    body = "\n".join(widget.html for widget in widgets)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Widgets</title>'
        f'<body style="background:{GROUND[scheme]};color:{INK[scheme]}">'
        f"<main><h1>Widgets</h1>{body}</main></body></html>"
    )


@contextmanager
def open_widgets(
    browser: Browser,
    folder: Path,
    *widgets: CourseWidget,
    width: int = 1000,
    scheme: str = "light",
    touch: bool = False,
) -> Iterator[Visit]:
    """Open widgets in a page of their own; wait until each is alive.

    Afterwards the page must have been quiet and alone, or the test fails.
    """
    (folder / "widgets.html").write_text(
        page_of(*widgets, scheme=scheme), encoding="utf-8"
    )
    with browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        reduced_motion="reduce",
        has_touch=touch,
    ) as context:
        seen = visit_page(context, folder.as_uri(), "widgets.html")
        seen.page.wait_for_function(
            f"document.querySelectorAll('{LIVE}').length === {len(widgets)}"
        )
        yield seen
        assert noise(seen) + strangers(seen) + failed_requests(seen) == []


def faults(page: Page) -> list[str]:
    """Whatever axe finds, and what makes the page wider than its window."""
    return axe(page) + overflow(page)


def read_out(page: Page) -> str:
    """The sentence under the first widget."""
    return page.locator(".vit-readout").first.inner_text()


def read_facts(page: Page) -> dict[str, str]:
    """The named values of the first list of facts: name → its main text."""
    return page.evaluate("""() => Object.fromEntries(
      [...document.querySelector(".vit-facts").children].map((fact) => [
        fact.querySelector("dt").textContent,
        fact.querySelector("dd").firstChild.textContent,
      ]))""")


def open_tables(page: Page) -> None:
    """Open the tables under the widgets, where they are not yet; then they fill."""
    page.evaluate("""() => {
      for (const details of document.querySelectorAll("details")) details.open = true;
    }""")
    page.wait_for_function("""() => [...document.querySelectorAll("details table")]
      .every((table) => table.querySelector("tbody tr"))""")


def read_canvas(page: Page, selector: str) -> NDArray[np.uint8]:
    """The pixels of a canvas, (H, W, 4)."""
    width, height, data = page.locator(selector).first.evaluate("""(canvas) => {
      const { width, height } = canvas;
      // From a copy: Chromium warns of a canvas that is read again and again.
      const copy = new OffscreenCanvas(width, height).getContext("2d");
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(0, 0, width, height);
      let text = "";
      for (let i = 0; i < data.length; i += 4096) {
        text += String.fromCharCode(...data.subarray(i, i + 4096));
      }
      return [width, height, btoa(text)];
    }""")
    pixels = np.frombuffer(base64.b64decode(data), np.uint8)
    return pixels.reshape(height, width, 4)


HOLD = """async ([link, module, files, traits]) => {
  const { default: widget } = await (0, eval)(`(${link})`)(module, files);
  const listeners = {};
  const model = {
    get: (name) => traits[name],
    set(name, value) {
      traits[name] = value;
      for (const listener of listeners[`change:${name}`] ?? []) listener();
    },
    on: (event, listener) => (listeners[event] ??= new Set()).add(listener),
    off: (event, listener) => listeners[event].delete(listener),
    save_changes() { throw new Error("This host has no kernel."); },
  };
  const el = document.createElement("div");
  const mount = async () => {
    globalThis.unmount = await widget.render({ model, el });
  };
  await mount();
  document.querySelector("main").append(el);
  Object.assign(globalThis, { model, mount });
}"""


class Held:
    """A widget in a page whose traits a test reads and sets, as a kernel would.

    It is drawn before it stands in the page, and its host throws at `save_changes`.
    """

    def __init__(self, page: Page, widget: CourseWidget) -> None:
        self.page = page
        module = widget.module
        contents = {name: file._asdict() for name, file in files(module).items()}
        link = (FOLDER / "link.js").read_text("utf-8")
        page.evaluate(HOLD, [link, module, contents, widget.traits_in_page])

    def get(self, name: str) -> Any:
        """A trait as it is now in the page."""
        return self.page.evaluate("(name) => model.get(name)", name)

    def set(self, **traits: Any) -> None:
        """Set traits from outside, one after the other."""
        for item in traits.items():
            self.page.evaluate("([name, value]) => model.set(name, value)", item)

    def unmount(self) -> None:
        """End the view."""
        self.page.evaluate("() => unmount()")

    def mount(self) -> None:
        """Make a new view of the same traits in the same place."""
        self.page.evaluate("() => mount()")
