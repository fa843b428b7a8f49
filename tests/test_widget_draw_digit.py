"""Draw a digit: prepared as MNIST's were, and read in the page as PyTorch reads it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import interpolate
from widget_page import (
    Held,
    faults,
    open_tables,
    open_widgets,
    read_canvas,
    read_out,
)

from course_utils.checkpoints import load_digit_model
from course_utils.data import load_digits
from course_utils.inspection import attention
from course_utils.widgets import DrawDigit
from course_utils.widgets.base import FOLDER, files
from course_utils.widgets.draw_digit import as_mnist

Grey = NDArray[np.uint8]
BLANK = np.zeros((28, 28), np.uint8)

# Digits as a hand draws them on 28 × 28 pixels: corners (x, y) that lines join.
STROKES = {
    0: [
        (14, 4),
        (8, 8),
        (6, 14),
        (8, 21),
        (14, 24),
        (19, 21),
        (21, 14),
        (19, 8),
        (14, 4),
    ],
    1: [(14, 4), (14, 24)],
    2: [(7, 9), (10, 5), (16, 5), (19, 9), (17, 14), (7, 23), (21, 23)],
    3: [(8, 5), (18, 5), (13, 12), (18, 15), (19, 20), (14, 24), (8, 22)],
    4: [(9, 5), (7, 14), (19, 14), (18, 5), (17, 24)],
    5: [(19, 5), (10, 5), (9, 12), (17, 13), (19, 19), (14, 24), (8, 22)],
    6: [(16, 4), (9, 12), (8, 20), (13, 24), (18, 20), (15, 15), (9, 17)],
    7: [(6, 6), (20, 6), (12, 24)],
    8: [
        (14, 13),
        (9, 9),
        (14, 4),
        (19, 8),
        (14, 13),
        (8, 19),
        (14, 24),
        (20, 19),
        (14, 13),
    ],
    9: [(19, 8), (13, 5), (8, 9), (12, 13), (18, 10), (19, 8), (17, 24)],
}


def drawings(count: int = 40) -> list[Grey]:
    """Scribbles of any size and place, and the smallest and largest there are."""
    generator = np.random.default_rng(0)
    corner = BLANK.copy()
    corner[27, 0] = 200
    scribbles = [corner, np.full((28, 28), 255, np.uint8)]
    for _ in range(count):
        h, w = generator.integers(1, 29, 2)
        y, x = generator.integers(0, 29 - h), generator.integers(0, 29 - w)
        scribble = BLANK.copy()
        scribble[y : y + h, x : x + w] = generator.integers(1, 256, (h, w))
        scribbles.append(scribble)
    return scribbles


def by_other_means(drawing: Grey) -> Grey:
    """MNIST's preparation from PyTorch's resizing and SciPy's centre of mass."""
    if not drawing.any():
        return drawing
    box = drawing[ndimage.find_objects((drawing > 0).astype(int))[0]]
    size = [max(1, int(side * 20 / max(box.shape) + 0.5)) for side in box.shape]
    # PyTorch repeats the first pixel of a column one pixel wide; a row it resizes well.
    upright = box.shape[1] > 1
    scaled = interpolate(
        torch.from_numpy((box if upright else box.T).astype(np.float64))[None, None],
        size if upright else size[::-1],
        mode="bilinear",
        antialias=True,
    )[0, 0]
    scaled = scaled if upright else scaled.T
    ink = (scaled + 0.5).floor().numpy()
    corner = [
        int(np.clip(np.floor(14 - centre + 0.5), 0, 28 - side))
        for centre, side in zip(ndimage.center_of_mass(ink), size, strict=True)
    ]
    after = [28 - start - side for start, side in zip(corner, size, strict=True)]
    room = list(zip(corner, after, strict=True))
    return np.pad(ink, room).astype(np.uint8)


def packed(grey: Grey) -> str:
    return base64.b64encode(grey.tobytes()).decode()


def answer(prepared: Grey, positions: bool = True) -> tuple[list[str], Tensor]:
    """PyTorch's ten shares as the page writes them, and what [CLS] reads, (T,)."""
    model = load_digit_model("positions" if positions else "no positions")
    image = torch.from_numpy(prepared / 255).float()[None, None]
    with torch.no_grad():
        shares = model(image).softmax(dim=1)[0]
    row = attention(model, image)[0, -1].mean(dim=0)[0]
    return [f"{100 * p:.1f} %" for p in shares.tolist()], row


def shares(page: Page) -> list[str]:
    return page.locator(".vit-bar-value").all_inner_texts()


def weights(page: Page) -> list[str]:
    """What [CLS] reads from each patch, as the table has it."""
    return page.locator("details td").all_text_contents()


def best(page: Page) -> str:
    return page.locator(".vit-best th").inner_text()


def draw(page: Page, corners: list[tuple[int, int]]) -> None:
    """Draw a line through corners in pixels of the drawing surface."""
    box = page.locator(".vit-paper").bounding_box()
    assert box
    unit = box["width"] / 28
    places = [(box["x"] + x * unit, box["y"] + y * unit) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()


def settle(page: Page) -> None:
    """Wait until a frame has been drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => done()))")


# In Python


def test_mnists_own_digits_are_prepared_already() -> None:
    _, test = load_digits()
    digits = (255 * test.images[:, 0]).round().byte().numpy()
    assert all((as_mnist(digit) == digit).all() for digit in digits)


def test_a_drawing_is_prepared_as_mnists_digits_were() -> None:
    for drawing in drawings():
        prepared = as_mnist(drawing)
        assert np.abs(prepared - by_other_means(drawing).astype(int)).max() <= 1
    assert not as_mnist(BLANK).any()


def test_a_small_digit_in_a_corner_is_read_as_the_same_in_the_middle() -> None:
    ink = BLANK.copy()
    ink[2:12, 3] = 255
    elsewhere = np.roll(ink, (14, 20), (0, 1))
    assert (as_mnist(ink) == as_mnist(elsewhere)).all()
    assert as_mnist(ink).any(axis=1).sum() == 20


def test_the_drawing_is_set_and_read_as_an_image() -> None:
    widget = DrawDigit(digit=4)
    assert widget.drawing == ""
    assert torch.equal(torch.from_numpy(widget.pixels / 255).float(), widget.image[0])
    image = drawings()[5]
    widget.pixels = image
    assert (widget.pixels == image).all()
    assert (widget.prepared == as_mnist(image)).all()
    widget.pixels = torch.from_numpy(image[None] / 255)
    assert (widget.pixels == image).all()
    widget.digit = 5  # takes a test digit, and the drawing goes
    assert widget.drawing == ""
    assert (DrawDigit(pixels=image).pixels == image).all()


@pytest.mark.parametrize(
    ("image", "error", "words"),
    [
        (np.zeros((20, 20)), ValueError, r"\(20, 20\)"),
        (np.full((28, 28), 255.0), ValueError, "255 to 255; .* divide by 255"),
        (np.zeros((28, 28), np.int64), TypeError, "int64"),
    ],
)
def test_an_image_of_another_kind_is_refused(
    image: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        DrawDigit(pixels=image)


def test_a_damaged_drawing_is_refused() -> None:
    widget = DrawDigit()
    with pytest.raises(ValueError, match=r"2 grey values .* has 784"):
        widget.drawing = base64.b64encode(b"no").decode()
    with pytest.raises(ValueError, match="no base64"):
        widget.drawing = "ä"


def test_the_figure_says_how_the_digit_is_read() -> None:
    assert "read as a 3, 98.7%" in DrawDigit(digit=3).figure().alt
    assert "An empty drawing." in DrawDigit(pixels=BLANK).figure().alt


# In the page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("draw")
    with open_widgets(browser, folder, touch=True) as seen:
        yield seen.page


@pytest.fixture
def held(page: Page) -> Iterator[Held]:
    held = Held(page, DrawDigit())
    yield held
    held.unmount()


@pytest.mark.browser
def test_the_page_prepares_drawings_as_python_does(page: Page) -> None:
    link = (FOLDER / "link.js").read_text("utf-8")
    contents = {name: file._asdict() for name, file in files("mnist.js").items()}
    given = [BLANK, *drawings()]
    made = page.evaluate(
        """async ([link, files, drawings]) => {
          const { asMnist } = await (0, eval)(`(${link})`)("mnist.js", files);
          return drawings.map((drawing) => [...asMnist(drawing)]);
        }""",
        [link, contents, [drawing.ravel().tolist() for drawing in given]],
    )
    for drawing, values in zip(given, made, strict=True):
        assert np.abs(by_other_means(drawing).ravel() - np.array(values)).max() <= 1


@pytest.mark.browser
@pytest.mark.parametrize("positions", [True, False])
def test_a_drawing_is_read_as_in_pytorch(held: Held, positions: bool) -> None:
    held.set(positions=positions)
    _, test = load_digits()
    for drawing in (255 * test.images[20:23, 0]).round().byte().numpy():
        moved = np.roll(drawing[4:24, 4:24].repeat(1, 0), 3, 0)
        sheet = np.pad(moved, ((0, 8), (8, 0)))
        held.set(drawing=packed(sheet))
        prepared = read_canvas(held.page, ".vit-pixels")[..., 0]
        assert np.abs(prepared - as_mnist(sheet).astype(int)).max() <= 1
        bars, row = answer(prepared, positions)
        assert shares(held.page) == bars
        assert weights(held.page) == [f"{w:.2f}" for w in row[1:].tolist()]
        patch = int(row[1:].argmax())
        sentence = f"attends most to patch {patch} ({row[1:].max():.2f})"
        assert sentence in read_out(held.page)


@pytest.mark.browser
def test_the_attention_lies_on_the_digit_where_its_numbers_are(held: Held) -> None:
    _, row = answer(DrawDigit().prepared)
    heat = read_canvas(held.page, ".vit-heat")[..., 3].ravel()
    full = 0.5
    for alpha, weight in zip(heat.tolist(), row[1:].tolist(), strict=True):
        assert alpha == pytest.approx(255 * 0.8 * min(1, weight / full), abs=1)
    held.page.get_by_role("switch").uncheck()
    assert held.get("show_attention") is False
    assert held.page.locator(".vit-heat").is_hidden()


@pytest.mark.browser
@pytest.mark.parametrize("digit", STROKES)
def test_the_model_reads_what_the_mouse_draws(held: Held, digit: int) -> None:
    page = held.page
    page.get_by_role("button", name="Clear").click()
    draw(page, STROKES[digit])
    assert best(page) == str(digit)
    grey = np.frombuffer(base64.b64decode(held.get("drawing")), np.uint8)
    prepared = as_mnist(grey.reshape(28, 28))
    shown = read_canvas(page, ".vit-pixels")[..., 0]
    assert np.abs(shown - prepared.astype(int)).max() <= 1


@pytest.mark.browser
def test_the_model_reads_along_before_the_stroke_has_ended(held: Held) -> None:
    page = held.page
    page.get_by_role("button", name="Clear").click()
    box = page.locator(".vit-paper").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.8)
    settle(page)
    assert best(page) == "1"
    page.mouse.up()


@pytest.mark.browser
def test_an_empty_drawing_gets_no_answer(held: Held) -> None:
    page = held.page
    page.get_by_role("button", name="Clear").click()
    assert read_out(page).startswith("Nothing is drawn")
    assert shares(page) == ["–"] * 10
    assert weights(page) == ["–"] * 16
    assert page.locator(".vit-best").count() == 0
    assert page.locator(".vit-digits input:checked").count() == 0


@pytest.mark.browser
def test_undo_brings_back_drawing_by_drawing(held: Held) -> None:
    page = held.page
    page.get_by_role("radio", name="6", exact=True).check()
    page.get_by_role("button", name="Clear").click()
    empty = held.get("drawing")
    draw(page, STROKES[1])
    assert held.get("drawing") != empty
    undo = page.get_by_role("button", name="Undo")
    undo.click()
    assert held.get("drawing") == empty
    undo.click()
    assert (held.get("drawing"), held.get("digit"), best(page)) == ("", 6, "6")
    undo.click()
    assert (held.get("digit"), best(page)) == (3, "3")
    undo.click()  # there is nothing more
    assert held.get("digit") == 3


@pytest.mark.browser
def test_the_keyboard_draws_too(held: Held) -> None:
    page = held.page
    page.get_by_role("button", name="Clear").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.className").endswith("vit-paper")
    page.keyboard.press("ArrowRight")
    assert "Pen up" in read_out(page)
    assert shares(page) == ["–"] * 10
    page.keyboard.press("Space")
    for _ in range(15):
        page.keyboard.press("ArrowDown")
    assert "Pen down" in read_out(page)
    page.keyboard.press("Space")
    settle(page)
    assert best(page) == "1"
    assert read_out(page).startswith("Pen up at row 22, column 15.")
    page.keyboard.press("Control+z")
    assert shares(page) == ["–"] * 10


@pytest.mark.browser
def test_a_finger_draws_on_the_surface_and_scrolls_beside_it(held: Held) -> None:
    page = held.page
    page.get_by_role("button", name="Clear").click()
    box = page.locator(".vit-paper").bounding_box()
    assert box
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    grey = np.frombuffer(base64.b64decode(held.get("drawing")), np.uint8)
    assert grey.reshape(28, 28)[12:16, 12:16].max() > 250
    touch = "(element) => getComputedStyle(element).touchAction"
    assert page.locator(".vit-paper").evaluate(touch) == "none"
    assert page.locator(".vit-board .vit-surface").last.evaluate(touch) != "none"


@pytest.mark.browser
def test_a_view_can_end_and_begin_again(held: Held) -> None:
    held.unmount()
    assert held.page.locator(".vit-widget").count() == 0
    held.set(digit=8)
    held.mount()
    assert best(held.page) == "8"


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1000, "dark")])
def test_nothing_is_wrong_with_the_page(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    two = DrawDigit(), DrawDigit(pixels=BLANK)
    with open_widgets(browser, tmp_path, *two, width=width, scheme=scheme) as seen:
        open_tables(seen.page)
        assert faults(seen.page) == []
