"""What a page of the site must satisfy: each check returns a list of complaints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

from playwright.sync_api import BrowserContext, Page

AXE = Path(__file__).parent / "site" / "vendor" / "axe.min.js"

# --------------------------------------------------------------------- serving


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine; its address."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# -------------------------------------------------------------------- visiting


@dataclass
class Visit:
    """An open page, and what happened while it opened."""

    page: Page
    home: str  # where all requests may go
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


SETTLE = """async () => {
  await document.fonts.ready;
  await window.MathJax?.startup?.promise;
  const pause = () => new Promise((done) => setTimeout(done, 60));
  const step = innerHeight * 0.9;
  for (let y = 0; y < document.documentElement.scrollHeight; y += step) {
    scrollTo({ top: y, behavior: "instant" });
    await pause();
  }
  scrollTo({ top: 0, behavior: "instant" });
  await pause();
}"""


def visit(context: BrowserContext, home: str, path: str) -> Visit:
    """Open a page, wait for fonts and formulas, and scroll it to its end and back."""
    page = context.new_page()
    seen = Visit(page, home)
    page.on(
        "console",
        lambda message: (
            seen.console.append(f"console {message.type}: {message.text}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    page.on("pageerror", lambda error: seen.console.append(f"uncaught: {error}"))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on(
        "requestfailed",
        lambda request: seen.failures.append(f"{request.url}: {request.failure}"),
    )
    page.on(
        "response",
        lambda response: (
            seen.failures.append(f"{response.url}: status {response.status}")
            if response.status >= 400
            else None
        ),
    )
    page.goto(f"{home}/{path}", wait_until="load")
    page.evaluate(SETTLE)
    return seen


# ---------------------------------------------------------------------- checks


def noise(seen: Visit) -> list[str]:
    """Errors and warnings in the console, and uncaught exceptions."""
    return seen.console


def strangers(seen: Visit) -> list[str]:
    """Requests that went to another host."""
    local = (seen.home, "data:", "blob:", "about:")
    return [
        f"asked another host: {url}"
        for url in seen.requests
        if not url.startswith(local)
    ]


def failed_requests(seen: Visit) -> list[str]:
    """Requests that got no good answer."""
    return seen.failures


def overflow(page: Page) -> list[str]:
    """What makes the page scroll sideways, if it does."""
    return page.evaluate("""() => {
      const root = document.documentElement;
      if (root.scrollWidth <= root.clientWidth) return [];
      const clipped = (element) => {
        for (let box = element.parentElement; box && box !== document.body;
             box = box.parentElement) {
          const style = getComputedStyle(box);
          if (style.overflowX !== "visible" || style.position === "fixed") return true;
        }
        return getComputedStyle(element).position === "fixed";
      };
      const wide = [...document.body.querySelectorAll("*")].filter((element) =>
        element.getBoundingClientRect().right > root.clientWidth + 0.5
        && !clipped(element));
      return [`the page is ${root.scrollWidth} wide on ${root.clientWidth}`,
        ...wide.slice(0, 8).map((element) => element.outerHTML.slice(0, 120))];
    }""")


def nameless_images(page: Page) -> list[str]:
    """Images that did not load, and pictures that say nothing to a screen reader."""
    return page.evaluate("""() => {
      const said = [];
      const say = (words, element) =>
        said.push(`${words}: ${element.outerHTML.slice(0, 160)}`);
      for (const image of document.images) {
        if (!image.complete || image.naturalWidth === 0) say("not loaded", image);
        // Outside the text a picture may be an ornament, but must say so.
        if (image.closest("header, nav, button, [aria-hidden=true]")
            ? !image.hasAttribute("alt") : !image.alt.trim()) say("no alt", image);
      }
      for (const drawing of document.querySelectorAll("svg")) {
        if (drawing.parentElement.closest("svg, button, mjx-container")) continue;
        if (drawing.closest("[aria-hidden=true]")) continue;
        const label = drawing.getAttribute("aria-label")
          ?? document.getElementById(drawing.getAttribute("aria-labelledby"))
            ?.textContent;
        if (drawing.getAttribute("role") !== "img" || !label?.trim())
          say("not a labelled image", drawing);
      }
      return said;
    }""")


def unset_formulas(page: Page) -> list[str]:
    """Formulas that MathJax did not set, or could not read."""
    return page.evaluate(r"""() => {
      const said = [];
      for (const formula of document.querySelectorAll(".math")) {
        if (!formula.querySelector("mjx-container"))
          said.push(`not set: ${formula.textContent.trim().slice(0, 80)}`);
        for (const wrong of formula.querySelectorAll("mjx-merror, [data-mjx-error]"))
          said.push(`not understood: ${wrong.textContent.slice(0, 80)}`);
      }
      return said;
    }""")


def unreachable_scrollers(page: Page) -> list[str]:
    """Boxes that scroll sideways but that no keyboard reaches, or that have no name."""
    return page.evaluate("""() =>
      [...document.querySelectorAll(".bd-article *")].filter((box) => {
        const { overflowX } = getComputedStyle(box);
        return ["auto", "scroll"].includes(overflowX)
          && box.scrollWidth > box.clientWidth + 1
          && !(box.tabIndex === 0 && box.getAttribute("aria-label"));
      }).map((box) => `scrolls, unreachable: ${box.outerHTML.slice(0, 120)}`)""")


# Faults of the theme that cannot be mended from outside, as (rule, selector, why).
NOT_OURS: tuple[tuple[str, str, str], ...] = ()


def axe(page: Page) -> list[str]:
    """What axe-core finds wrong."""
    page.add_script_tag(path=AXE)
    found = page.evaluate("""async () => {
      const { violations } = await axe.run(document, { resultTypes: ["violations"] });
      return violations.flatMap(({ id, help, nodes }) =>
        nodes.map(({ target, html, any }) => ({
          id, help, target: target.flat().join(" "), html: html.slice(0, 160),
          why: any.map(({ message }) => message).join("; ") })));
    }""")
    excluded = {(rule, selector) for rule, selector, _ in NOT_OURS}
    return [
        f"{fault['id']}: {fault['help']} at {fault['target']} ({fault['why']})"
        f"\n    {fault['html']}"
        for fault in found
        if (fault["id"], fault["target"]) not in excluded
    ]


FOCUSED = """() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  let box = element.getBoundingClientRect();
  // A link that covers its card has no size of its own.
  if (!box.width || !box.height) box = element.parentElement.getBoundingClientRect();
  const style = getComputedStyle(element);
  const ring = [element, ...element.querySelectorAll("*"), element.parentElement]
    .map((part) => getComputedStyle(part))
    .some((part) => part.outlineStyle !== "none" && parseFloat(part.outlineWidth) > 0);
  return {
    html: element.outerHTML.slice(0, 120),
    ring: ring || style.boxShadow !== "none",
    seen: box.width > 0 && box.height > 0 && style.visibility === "visible"
      && box.right > 0 && box.left < innerWidth && box.bottom > 0
      && box.top < innerHeight,
  };
}"""


def unseen_focus(page: Page, stops: int = 60) -> list[str]:
    """Stops of the Tab key where nothing shows where the focus is."""
    complaints = []
    reached = 0
    for _ in range(stops):
        page.keyboard.press("Tab")
        # Sliding into view (the skip link) takes a moment.
        page.wait_for_timeout(20 if reached else 250)
        stop = page.evaluate(FOCUSED)
        if stop is None:
            break
        reached += 1
        if not stop["ring"]:
            complaints.append(f"focus does not show: {stop['html']}")
        if not stop["seen"]:
            complaints.append(f"focus is out of sight: {stop['html']}")
    return complaints if reached else ["the Tab key reaches nothing"]


# ----------------------------------------------------------------------- links


class Anchors(HTMLParser):
    """The identifiers and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.redirects = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids.update(filter(None, (values.get("id"), values.get("name"))))
        target = values.get("src" if tag in ("img", "script") else "href")
        if target is not None:
            self.links.append(target)
        if tag == "meta" and (values.get("http-equiv") or "").lower() == "refresh":
            self.redirects = True
            self.links.append((values.get("content") or "").partition("url=")[2])


def read_anchors(folder: Path) -> dict[str, Anchors]:
    """Every page of a folder, by its path."""
    return {
        path.relative_to(folder).as_posix(): Anchors(path.read_text("utf-8"))
        for path in sorted(folder.rglob("*.html"))
    }


def broken_links(folder: Path, pages: dict[str, Anchors]) -> list[str]:
    """Links between pages, and to files and anchors, that lead nowhere."""
    complaints = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (folder / name).parent / unquote(parts.path)
            target = (target if parts.path else folder / name).resolve()
            if not target.is_file() or folder.resolve() not in target.parents:
                complaints.append(f"{name}: no such file: {link}")
            elif parts.fragment and target.suffix == ".html":
                there = pages[target.relative_to(folder.resolve()).as_posix()]
                if unquote(parts.fragment) not in there.ids:
                    complaints.append(f"{name}: no such anchor: {link}")
    return complaints
