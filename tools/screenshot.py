"""Take the picture of a chapter that README.md shows: `python tools/screenshot.py`.

The page comes from the built book (`make book` first). The picture is the light form of
the page in a window of 1200x800, drawn at twice that size, and kept small by a palette.

    python tools/screenshot.py                          the first chapter, from its top
    python tools/screenshot.py book/06-vit --at "#head" another page, from that place on
"""

from __future__ import annotations

import argparse
import sys
from io import BytesIO
from pathlib import Path

from chromium import NoChromiumError, chromium
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / ".github" / "chapter.png"
WINDOW = (1200, 800)
MAX_BYTES = 200_000

READY = """async () => {
  await document.fonts.ready;
  await window.MathJax?.startup?.promise;
}"""
SCROLL = """place => {
  const bar = document.querySelector(".bd-header-article");
  const top = place.getBoundingClientRect().top + scrollY;
  scrollTo({ top: top - (bar?.offsetHeight ?? 0) - 24, behavior: "instant" });
}"""


def photograph(page: Path, at: str | None = None) -> Image.Image:
    """Return what a reader sees of a page, 2400x1600 pixels.

    Raises:
        ValueError: if nothing on the page matches the CSS selector ``at``.
    """
    width, height = WINDOW
    with chromium() as browser:
        tab = browser.new_page(
            viewport={"width": width, "height": height},
            device_scale_factor=2,
            color_scheme="light",
            reduced_motion="reduce",
        )
        tab.goto(page.as_uri())
        tab.evaluate(READY)
        if at is not None:
            place = tab.query_selector(at)
            if place is None:
                raise ValueError(f"Nothing on {page.name} matches {at!r}.")
            place.evaluate(SCROLL)
        # Widgets and lazy pictures draw when they come into view.
        tab.wait_for_timeout(1_000)
        return Image.open(BytesIO(tab.screenshot())).convert("RGB")


def compress(picture: Image.Image, limit: int = MAX_BYTES) -> bytes:
    """Return the picture as PNG within the limit, with as many colours as fit.

    Raises:
        ValueError: if it has too much detail for the limit, even with 16 colours.
    """
    size = 0
    for colours in (256, 128, 64, 32, 16):
        few = picture.quantize(colours, dither=Image.Dither.NONE)
        buffer = BytesIO()
        few.save(buffer, format="PNG", optimize=True)
        size = buffer.tell()
        if size <= limit:
            return buffer.getvalue()
    raise ValueError(
        f"With 16 colours the picture still takes {size:,} bytes, over {limit:,}: "
        "choose a part of the page with fewer photographs (--at)."
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", nargs="?", default="book/01-patches")
    parser.add_argument("--at", help="a CSS selector: begin the picture there")
    parser.add_argument("--output", type=Path, default=TARGET)
    options = parser.parse_args(arguments)
    page = ROOT / "_build" / "html" / f"{options.page.removesuffix('.html')}.html"
    if not page.is_file():
        print(f"{page} is not there: run `make book` first.", file=sys.stderr)
        return 1
    try:
        data = compress(photograph(page, options.at))
    except (NoChromiumError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_bytes(data)
    print(f"{options.output}: {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
