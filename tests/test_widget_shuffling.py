"""Shuffling: the page's two models answer as PyTorch's do, in any order of patches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import Tensor
from widget_page import Held, faults, open_widgets, read_canvas, read_out

from course_utils.checkpoints import load_digit_model
from course_utils.patches import patchify, unpatchify
from course_utils.widgets import Shuffling
from course_utils.widgets.shuffling import MIXED

OWN = list(range(16))
MODELS = ("positions", "no positions")


def in_order(image: Tensor, order: list[int]) -> Tensor:
    """A digit (1, 28, 28) with its patches in another order."""
    return unpatchify(patchify(image[None], 7)[:, order], 7, 28)[0]


def logits(name: str, image: Tensor) -> Tensor:
    with torch.no_grad():
        return load_digit_model(name)(image[None])[0]


def shown(page: Page, model: int) -> tuple[list[str], str]:
    """What the page says of a model: its ten probabilities, and its change."""
    pair = page.locator(".vit-pair > div").nth(model)
    change = pair.locator("dd").evaluate("(dd) => dd.firstChild.textContent")
    return pair.locator(".vit-bar-value").all_inner_texts(), change


def expected(widget: Shuffling, name: str) -> tuple[list[str], str]:
    before = logits(name, widget.image)
    now = logits(name, in_order(widget.image, widget.order))
    change = (now - before).abs().max().item()
    bars = [f"{100 * p:.1f} %" for p in now.softmax(0).tolist()]
    return bars, "0" if change < 1e-4 else f"{change:.2f}"


def tap(page: Page, place: int) -> None:
    box = page.locator(".vit-surface").first.bounding_box()
    assert box
    x, y = place % 4 + 0.5, place // 4 + 0.5
    page.mouse.click(box["x"] + x * box["width"] / 4, box["y"] + y * box["height"] / 4)


# In Python


def test_an_order_holds_each_patch_once() -> None:
    widget = Shuffling(order=MIXED)
    assert widget.order == MIXED
    for wrong, words in (
        ([0, 1, 2], "holds 3 numbers"),
        ([0, *range(15)], "without 15"),
        ([*range(15), 16], "without 15"),
        ([*OWN, 3], "too many"),
    ):
        with pytest.raises(ValueError, match=words):
            widget.order = wrong
    assert widget.order == MIXED


def test_the_figure_says_what_both_models_read() -> None:
    figure = Shuffling(digit=7).figure()
    readings = [
        int(logits(name, in_order(Shuffling(digit=7).image, order)).argmax())
        for order in (OWN, MIXED)
        for name in MODELS
    ]
    assert readings[:2] == [7, 7]
    sentence = "{}: with positions a {}, without positions a {}"
    assert sentence.format("In order", *readings[:2]) in figure.alt
    assert sentence.format("Shuffled", *readings[2:]) in figure.alt
    assert "without by 0.0000" in figure.caption


# In the page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("shuffling")
    with open_widgets(browser, folder) as seen:
        yield seen.page


@pytest.fixture
def held(page: Page) -> Iterator[Held]:
    held = Held(page, Shuffling())
    yield held
    held.unmount()


@pytest.mark.browser
def test_in_any_order_both_models_answer_as_in_pytorch(held: Held) -> None:
    widget = Shuffling()
    generator = torch.Generator().manual_seed(0)
    for digit in (0, 5, 9):
        widget.digit = digit
        widget.order = torch.randperm(16, generator=generator).tolist()
        held.set(digit=digit, order=widget.order)
        for i, name in enumerate(MODELS):
            assert shown(held.page, i) == expected(widget, name)


@pytest.mark.browser
def test_without_positions_nothing_changes_and_the_widget_says_so(held: Held) -> None:
    assert "Shuffle it" in read_out(held.page)
    held.set(order=MIXED)
    assert shown(held.page, 1)[1] == "0"
    assert shown(held.page, 0)[1] != "0"
    assert "Without: still 7, the change is 0, up to rounding." in read_out(held.page)


@pytest.mark.browser
def test_the_page_shows_the_digit_that_the_models_get(held: Held) -> None:
    held.set(order=MIXED)
    image = in_order(Shuffling().image, MIXED)
    grey = read_canvas(held.page, ".vit-pixels")[..., 0]
    assert (torch.from_numpy(grey.copy()) == (255 * image[0]).round()).all()
    numbers = held.page.locator(".vit-in-cells > span").all_inner_texts()
    assert [int(number) for number in numbers] == MIXED


@pytest.mark.browser
def test_a_tap_on_two_patches_swaps_them(held: Held) -> None:
    tap(held.page, 2)
    assert "Patch 2 is picked" in held.page.locator("main").inner_text()
    assert held.get("order") == OWN
    tap(held.page, 13)
    assert held.get("order") == [0, 1, 13, *range(3, 13), 2, 14, 15]
    tap(held.page, 4)
    tap(held.page, 4)
    assert held.get("order") == [0, 1, 13, *range(3, 13), 2, 14, 15]


@pytest.mark.browser
def test_keys_swap_two_patches_too(held: Held) -> None:
    page = held.page
    page.locator(".vit-digits input:checked").focus()
    for key in ("Tab", "ArrowRight", "Enter", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert "Place 9 holds patch 9." in read_out(page)
    page.keyboard.press("Enter")
    assert held.get("order") == [0, 9, *range(2, 9), 1, *range(10, 16)]
    for key in ("Enter", "Escape", "Home", "Enter", "Escape"):
        page.keyboard.press(key)
    assert held.get("order") == [0, 9, *range(2, 9), 1, *range(10, 16)]
    assert page.locator(".vit-mark-picked").is_hidden()


@pytest.mark.browser
def test_the_buttons_shuffle_and_put_back(held: Held) -> None:
    page = held.page
    page.get_by_role("button", name="Shuffle").click()
    first = held.get("order")
    assert first != OWN
    assert sorted(first) == OWN
    page.get_by_role("button", name="Shuffle").click()
    assert held.get("order") != first
    page.get_by_role("button", name="Put back in order").click()
    assert held.get("order") == OWN
    page.get_by_role("radio", name="4", exact=True).check()
    assert held.get("digit") == 4


@pytest.mark.browser
def test_a_view_can_end_and_begin_again(held: Held) -> None:
    held.unmount()
    assert held.page.locator(".vit-widget").count() == 0
    held.set(order=MIXED)
    held.mount()
    assert shown(held.page, 0) == expected(Shuffling(order=MIXED), "positions")


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1000, "dark")])
def test_nothing_is_wrong_with_the_page(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    two = Shuffling(), Shuffling(digit=2, order=MIXED)
    with open_widgets(browser, tmp_path, *two, width=width, scheme=scheme) as seen:
        tap(seen.page, 0)
        assert faults(seen.page) == []
