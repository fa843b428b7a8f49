"""Patch to vector: the page multiplies as PyTorch does, whichever way it goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator, Page
from torch import Tensor
from torch.nn import functional as F
from widget_page import (
    Held,
    faults,
    open_tables,
    open_widgets,
    read_canvas,
    read_facts,
    read_out,
)

from course_utils.checkpoints import load_digit_model
from course_utils.embedding import conv_to_linear
from course_utils.patches import patchify
from course_utils.widgets import PatchVector

ROUNDED = 0.00051  # three decimals


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def weights() -> tuple[Tensor, Tensor]:
    """Filters (D, 1, P, P) and biases (D,)."""
    proj = load_digit_model().patch_embed.proj
    assert proj.bias is not None
    return proj.weight.detach(), proj.bias.detach()


def column(widget: PatchVector) -> tuple[Tensor, Tensor, float]:
    """The patch, the filter as a column of E, (49,) each, and the bias."""
    filters, biases = weights()
    pixels = patchify(widget.image[None], 7)[0, widget.patch]
    d = widget.filter
    return pixels, conv_to_linear(filters)[:, d], biases[d].item()


# In Python


def test_patch_and_filter_count_from_zero() -> None:
    widget = PatchVector(patch=15, filter=63)
    with pytest.raises(ValueError, match=r"patch is 16; there are 16.*0 to 15"):
        widget.patch = 16
    with pytest.raises(ValueError, match=r"filter is 64; there are 64.*0 to 63"):
        widget.filter = 64
    with pytest.raises(ValueError, match="filter is -1"):
        PatchVector(filter=-1)
    assert (widget.patch, widget.filter) == (15, 63)


def test_the_figure_says_the_number() -> None:
    widget = PatchVector(digit=7, patch=5, filter=40)
    pixels, weight, bias = column(widget)
    figure = widget.figure()
    assert f"{(pixels @ weight).item() + bias:.3f}, number 40" in figure.caption
    assert "patch 5: from 0 to 0.992" in figure.alt
    assert "filter 40" in figure.alt


# In the page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("patch-vector")
    with open_widgets(browser, folder) as seen:
        yield seen.page


@pytest.fixture
def held(page: Page) -> Iterator[Held]:
    held = Held(page, PatchVector())
    yield held
    held.unmount()


def surface(page: Page, name: str) -> Locator:
    return page.get_by_role("application", name=name, exact=True)


def picture(name: str) -> str:
    """The selector of the picture on a board."""
    return f'.vit-board:has([aria-label="{name}"]) > .vit-pixels'


def click(page: Page, name: str, x: float, y: float) -> None:
    """Click on a board; x and y are shares of its size."""
    box = surface(page, name).bounding_box()
    assert box
    surface(page, name).click(position={"x": x * box["width"], "y": y * box["height"]})
    page.mouse.move(0, 0)


@pytest.mark.browser
def test_sum_bias_and_number_are_pytorch_s(held: Held) -> None:
    for digit, patch, d in ((3, 6, 12), (8, 9, 63), (1, 0, 5)):
        widget = PatchVector(digit=digit, patch=patch, filter=d)
        held.set(digit=digit, patch=patch, filter=d)
        pixels, weight, bias = column(widget)
        total = (pixels @ weight).item()
        shown = [number(text) for text in read_facts(held.page).values()]
        assert shown == pytest.approx([total, bias, total + bias], abs=ROUNDED)
        assert f"Patch {patch} times filter {d}:" in read_out(held.page)


@pytest.mark.browser
def test_the_convolution_gives_the_same_number_on_each_patch(held: Held) -> None:
    held.set(digit=5, patch=10, filter=17)
    filters, biases = weights()
    image = PatchVector(digit=5).image[None]
    slid = F.conv2d(image, filters, biases, stride=7)[0, 17].flatten()  # (N,)
    cells = held.page.locator(".vit-map td")
    texts = cells.all_inner_texts()
    assert [number(text) for text in texts] == pytest.approx(slid.tolist(), abs=ROUNDED)
    chosen = held.page.locator(".vit-map .vit-chosen").all_inner_texts()
    assert chosen == [texts[10]] == [[*read_facts(held.page).values()][2]]
    assert f"For patch 10 that is {texts[10]}: the same" in held.page.inner_text("main")


@pytest.mark.browser
def test_the_table_holds_every_pixel_weight_and_product(held: Held) -> None:
    pixels, weight, _ = column(PatchVector())
    open_tables(held.page)
    rows = held.page.locator(".vit-table tbody tr")
    cells = [row.split("\t") for row in rows.all_inner_texts()]
    assert [row[:3] for row in cells] == [
        [str(i), str(i // 7), str(i % 7)] for i in range(49)
    ]
    values = np.array([[number(cell) for cell in row[3:]] for row in cells])
    wanted = torch.stack([pixels, weight, pixels * weight], dim=1).numpy()
    assert values == pytest.approx(wanted, abs=ROUNDED)


@pytest.mark.browser
def test_pictures_show_the_numbers_on_scales_that_do_not_move(held: Held) -> None:
    pixels, _, _ = column(PatchVector())
    grey = read_canvas(held.page, "canvas.vit-tile")[..., 0]
    assert np.array_equal(grey.flatten(), (255 * pixels).round().numpy())
    filters, biases = weights()
    vector = patchify(PatchVector().image[None], 7)[0, 6] @ conv_to_linear(filters)
    strip = read_canvas(held.page, picture("The 64 numbers of the vector"))
    assert strip.shape == (1, 64, 4)
    redder = (
        strip[0, :, 0].astype(int) - strip[0, :, 2]
    )  # orange above zero, blue below
    clear = (vector + biases).abs() > 0.05
    assert np.array_equal(
        np.sign(redder)[clear.numpy()], (vector + biases).sign()[clear].numpy()
    )
    flat = read_canvas(held.page, picture("Pixels, weights and products, flattened"))
    assert flat.shape == (3, 49, 4)
    assert np.array_equal(flat[0, :, 0], grey.flatten())


@pytest.mark.browser
def test_a_click_chooses_a_patch_and_a_filter(held: Held) -> None:
    page = held.page
    click(page, "Patches of the digit", 0.9, 0.1)
    assert held.get("patch") == 3
    click(page, "Filters", 0.05, 0.95)
    assert held.get("filter") == 56
    click(page, "The 64 numbers of the vector", 20.5 / 64, 0.5)
    assert held.get("filter") == 20
    page.get_by_role("radio", name="7", exact=True).check()
    assert held.get("digit") == 7
    assert "Patch 3 times filter 20:" in read_out(page)


@pytest.mark.browser
def test_pointing_shows_a_filter_before_it_is_chosen(held: Held) -> None:
    surface(held.page, "Filters").hover(position={"x": 5, "y": 5})
    assert "filter 0:" in read_out(held.page)
    assert held.get("filter") == 12
    held.page.mouse.move(0, 0)
    assert "filter 12:" in read_out(held.page)


@pytest.mark.browser
def test_keys_do_what_a_pointer_does(held: Held) -> None:
    page = held.page
    page.locator(".vit-digits input:checked").focus()
    for key in ("Tab", "ArrowLeft", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert held.get("patch") == 9
    for key in ("Tab", "End", "Enter"):
        page.keyboard.press(key)
    assert held.get("filter") == 63
    for key in ("Tab", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    pixels, weight, _ = column(PatchVector(patch=9, filter=63))
    words = read_out(page)
    assert words.startswith("Pixel in row 1, column 1:")
    shown = [
        number(part) for part in words[:-1].split(": ")[1].replace("=", "×").split("×")
    ]
    wanted = [pixels[8], weight[8], pixels[8] * weight[8]]
    assert shown == pytest.approx([value.item() for value in wanted], abs=ROUNDED)


@pytest.mark.browser
def test_a_view_can_end_and_begin_again(held: Held) -> None:
    held.unmount()
    assert held.page.locator(".vit-widget").count() == 0
    held.set(filter=30)
    held.mount()
    assert "filter 30:" in read_out(held.page)


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1000, "dark")])
def test_nothing_is_wrong_with_the_page(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    widget = PatchVector(digit=7, patch=9)  # numbers on the darkest grounds
    with open_widgets(browser, tmp_path, widget, width=width, scheme=scheme) as seen:
        open_tables(seen.page)
        assert faults(seen.page) == []
