"""Chapters 3 and 4: the [CLS] token, and where each patch belongs."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from course_utils.positions import (
    position_similarity,
    prepend_cls,
    resize_positions,
    sincos2d,
)

Grid = tuple[int, int]
GRIDS = st.tuples(st.integers(1, 8), st.integers(1, 8))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# [CLS]


@pytest.mark.parametrize("B", [0, 1, 7])
def test_every_image_gets_the_same_first_token_and_keeps_its_patches(B: int) -> None:
    tokens, cls = noise(B, 4, 3), noise(1, 1, 3, seed=1)
    x = prepend_cls(tokens, cls)
    assert x.shape == (B, 5, 3)
    assert torch.equal(x[:, 0], cls[0].expand(B, -1))
    assert torch.equal(x[:, 1:], tokens)


def test_cls_learns_from_every_image_of_the_batch() -> None:
    cls = torch.zeros(1, 1, 3, requires_grad=True)
    prepend_cls(noise(7, 4, 3), cls)[:, 0].sum().backward()
    assert cls.grad is not None
    assert cls.grad.tolist() == [[[7, 7, 7]]]


# Sines and cosines


def sincos_by_hand(grid: Grid, D: int, base: float = 10_000) -> NDArray[np.float64]:
    table = np.zeros((grid[0] * grid[1], D))
    for k in range(len(table)):
        for part, place in enumerate((k // grid[1], k % grid[1])):
            for i in range(D // 4):
                angle = place / base ** (i / (D // 4))
                table[k, (2 * part) * (D // 4) + i] = math.sin(angle)
                table[k, (2 * part + 1) * (D // 4) + i] = math.cos(angle)
    return table


@pytest.mark.parametrize(
    ("grid", "D"), [((4, 4), 64), ((3, 5), 8), ((5, 3), 16), ((1, 7), 4), ((7, 1), 12)]
)
def test_sincos_table_is_the_formula_written_as_loops(grid: Grid, D: int) -> None:
    table = sincos2d(grid, D)
    assert table.shape == (1, 1 + grid[0] * grid[1], D)
    assert table.dtype == torch.float32
    np.testing.assert_allclose(table[0, 1:], sincos_by_hand(grid, D), atol=1e-6)
    other = sincos2d(grid, D, base=100)
    np.testing.assert_allclose(other[0, 1:], sincos_by_hand(grid, D, 100), atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_frequencies_fall_from_1_to_about_one_ten_thousandth(axis: int) -> None:
    quarter = 192
    grid = (2, 1) if axis == 0 else (1, 2)
    step = sincos2d(grid, 4 * quarter, num_prefix=0)[0, 1].double()
    # One step along an axis turns each pair (sine, cosine) by its own frequency.
    sines, cosines = step.reshape(2, 2, quarter)[axis]
    frequencies = torch.atan2(sines, cosines)
    assert frequencies[0].item() == pytest.approx(1, rel=1e-6)
    assert frequencies[-1].item() == pytest.approx(1e-4, rel=0.06)
    ratios = frequencies[1:] / frequencies[:-1]
    assert (ratios < 1).all()
    torch.testing.assert_close(ratios, ratios[:1].expand_as(ratios), rtol=1e-4, atol=0)


@given(GRIDS, st.sampled_from([4, 8, 32]))
@settings(deadline=None, max_examples=30)
def test_sincos_similarity_depends_on_the_offset_alone(grid: Grid, D: int) -> None:
    rows = sincos2d(grid, D, num_prefix=0)[0].double()
    gram = rows @ rows.T
    by_offset: dict[Grid, float] = {}
    for i in range(len(rows)):
        for j in range(len(rows)):
            down = abs(i // grid[1] - j // grid[1])
            across = abs(i % grid[1] - j % grid[1])
            seen = by_offset.setdefault((down, across), gram[i, j].item())
            assert gram[i, j].item() == pytest.approx(seen, abs=1e-5)
    assert by_offset[0, 0] == pytest.approx(D / 2)


def test_sincos_tells_all_patches_apart_in_both_directions() -> None:
    rows = sincos2d((14, 14), 64, num_prefix=0)[0]
    distance = torch.cdist(rows, rows) + 9 * torch.eye(196)
    assert distance.min() > 0.5
    table = rows.reshape(14, 14, 4, 16)
    assert torch.equal(table[:, :1, :2].expand(-1, 14, -1, -1), table[:, :, :2])
    assert torch.equal(table[:1, :, 2:].expand(14, -1, -1, -1), table[:, :, 2:])


def test_width_4_is_the_smallest_table_and_holds_numbers() -> None:
    table = sincos2d((3, 3), 4)
    assert table.isfinite().all()
    assert table[0, 1:].unique(dim=0).shape == (9, 4)


@pytest.mark.parametrize("num_prefix", [0, 1, 2])
def test_prefix_rows_of_a_fixed_table_are_zero(num_prefix: int) -> None:
    table = sincos2d((2, 3), 8, num_prefix)
    assert table.shape == (1, num_prefix + 6, 8)
    assert not table[:, :num_prefix].any()
    assert torch.equal(table[:, num_prefix:], sincos2d((2, 3), 8, 0))


@pytest.mark.parametrize(("D", "remedy"), [(6, 8), (5, 8), (63, 64), (2, 4)])
def test_a_width_that_four_does_not_divide_is_refused(D: int, remedy: int) -> None:
    with pytest.raises(
        ValueError, match=f"embed_dim is {D}; .*multiple of 4, such as {remedy}"
    ):
        sincos2d((2, 2), D)
    sincos2d((2, 2), remedy)


# Another grid


def bicubic_matrix(old: int, new: int, a: float = -0.75) -> NDArray[np.float64]:
    """Weights (new, old) of cubic convolution (Keys 1981), by hand."""

    def cubic(t: float) -> float:
        t = abs(t)
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0

    matrix = np.zeros((new, old))
    for i in range(new):
        centre = (i + 0.5) * old / new - 0.5
        for j in range(math.floor(centre) - 1, math.floor(centre) + 3):
            matrix[i, min(max(j, 0), old - 1)] += cubic(centre - j)
    return matrix


@given(GRIDS, GRIDS, st.integers(0, 2))
@settings(deadline=None, max_examples=80)
def test_resized_rows_are_bicubic_interpolation_by_hand(
    old: Grid, new: Grid, num_prefix: int
) -> None:
    table = noise(1, num_prefix + old[0] * old[1], 3)
    resized = resize_positions(table, old, new, num_prefix=num_prefix)
    assert resized.shape == (1, num_prefix + new[0] * new[1], 3)
    assert torch.equal(resized[:, :num_prefix], table[:, :num_prefix])
    maps = table[0, num_prefix:].reshape(*old, 3).double().numpy()
    down, across = bicubic_matrix(old[0], new[0]), bicubic_matrix(old[1], new[1])
    expected = np.einsum("ih,jw,hwd->ijd", down, across, maps).reshape(-1, 3)
    np.testing.assert_allclose(resized[0, num_prefix:], expected, atol=1e-5)


def test_every_grid_of_14_to_29_patches_a_side_is_exact_up_and_down() -> None:
    matrices = {
        (old, new): bicubic_matrix(old, new)
        for old in range(14, 30)
        for new in range(14, 30)
    }
    small, wide = noise(1, 1 + 14 * 14, 2), noise(1, 1 + 29 * 20, 2, seed=1)
    for table, old in [(small, (14, 14)), (wide, (29, 20))]:
        maps = table[0, 1:].reshape(*old, 2).double().numpy()
        for h in range(14, 30):
            for w in range(14, 30):
                resized = resize_positions(table, old, (h, w))
                assert resized.shape == (1, 1 + h * w, 2), (h, w)
                assert torch.equal(resized[:, 0], table[:, 0])
                down, across = matrices[old[0], h], matrices[old[1], w]
                expected = np.einsum(
                    "ih,hwd,jw->ijd", down, maps, across, optimize=True
                )
                np.testing.assert_allclose(
                    resized[0, 1:].reshape(h, w, 2), expected, atol=3e-5
                )


def test_as_many_patches_in_another_shape_are_another_grid() -> None:
    table = noise(1, 1 + 14 * 28, 3)
    turned = resize_positions(table, (14, 28), (28, 14))
    assert turned.shape == table.shape
    assert not torch.allclose(turned, table)
    maps = table[:, 1:].reshape(1, 14, 28, 3).permute(0, 3, 1, 2)
    expected = F.interpolate(maps, (28, 14), mode="bicubic", align_corners=False)
    torch.testing.assert_close(turned[0, 1:], expected[0].flatten(1).T)


@given(GRIDS)
@settings(deadline=None, max_examples=20)
def test_the_same_grid_changes_nothing(grid: Grid) -> None:
    table = noise(1, 1 + grid[0] * grid[1], 4)
    assert torch.equal(resize_positions(table, grid, grid), table)


def test_224_to_384_turns_197_rows_into_577() -> None:
    resized = resize_positions(noise(1, 197, 8), (14, 14), (24, 24))
    assert resized.shape == (1, 577, 8)
    wide = resize_positions(noise(1, 197, 8), (14, 14), (14, 21))
    assert wide.shape == (1, 295, 8)


def test_rows_stay_rows_and_columns_stay_columns() -> None:
    h, w = torch.meshgrid(torch.arange(3.0), torch.arange(5.0), indexing="ij")
    table = torch.stack([h, w], dim=-1).reshape(1, 15, 2)
    row, column = (
        resize_positions(table, (3, 5), (6, 8), num_prefix=0)
        .reshape(6, 8, 2)
        .unbind(-1)
    )
    torch.testing.assert_close(row, row[:, :1].expand(6, 8))
    torch.testing.assert_close(column, column[:1].expand(6, 8))
    assert (row[:, 0].diff() > 0).all()
    assert (column[0].diff() > 0).all()


def test_sixteen_rows_say_nothing_of_the_grid_they_came_from() -> None:
    table = noise(1, 16, 4)
    grids = [(4, 4), (2, 8), (8, 2)]
    made = [resize_positions(table, grid, (6, 6), num_prefix=0) for grid in grids]
    assert not torch.allclose(made[0], made[1])
    assert not torch.allclose(made[1], made[2])


def test_196_rows_may_be_a_table_without_cls() -> None:
    table = noise(1, 196, 4)
    resized = resize_positions(table, (14, 14), (7, 7), num_prefix=0)
    assert resized.shape == (1, 49, 4)
    with pytest.raises(ValueError, match=r"\(1, 196, 4\).*1 prefix.*\(1, 197, D\)"):
        resize_positions(table, (14, 14), (7, 7))


def test_a_table_of_1370_rows_does_not_pass_for_257() -> None:
    table = noise(1, 1370, 4)
    with pytest.raises(
        ValueError, match=r"\(1, 1370, 4\); a 16x16 grid.*\(1, 257, D\).*Give the grid"
    ):
        resize_positions(table, (16, 16), (37, 37))
    assert resize_positions(table, (37, 37), (16, 16)).shape == (1, 257, 4)


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (1, 4, 4), (1, 6, 4)])
def test_a_table_of_the_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"shape {shape}; a 2x2 grid")):
        resize_positions(torch.zeros(shape), (2, 2), (3, 3))


def test_a_shrinking_table_is_smoothed_when_asked_and_only_then() -> None:
    stripes = torch.tensor([1.0, -1.0]).repeat(32).reshape(1, 64, 1)
    sharp, smooth = (
        resize_positions(stripes, (8, 8), (3, 3), num_prefix=0, antialias=antialias)
        for antialias in (False, True)
    )
    assert smooth.abs().mean() < sharp.abs().mean() / 2
    maps = F.interpolate(
        stripes.reshape(1, 1, 8, 8), (3, 3), mode="bicubic", antialias=True
    )
    torch.testing.assert_close(smooth, maps.reshape(1, 9, 1))


def test_antialias_takes_a_softer_cubic_where_the_table_grows() -> None:
    table = noise(1, 36, 2)
    smooth = resize_positions(table, (6, 6), (9, 11), num_prefix=0, antialias=True)
    down, across = bicubic_matrix(6, 9, -0.5), bicubic_matrix(6, 11, -0.5)
    maps = table[0].reshape(6, 6, 2).double().numpy()
    # Near the border the two differ in another way too: look within.
    expected = np.einsum("ih,jw,hwd->ijd", down, across, maps)[3:-3, 4:-4]
    inner = smooth.reshape(9, 11, 2)[3:-3, 4:-4]
    np.testing.assert_allclose(inner, expected, atol=1e-5)
    sharp = resize_positions(table, (6, 6), (9, 11), num_prefix=0)
    assert not torch.allclose(smooth, sharp, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_table_keeps_its_type(dtype: torch.dtype) -> None:
    table = noise(1, 17, 4)
    resized = resize_positions(table.to(dtype), (4, 4), (6, 5))
    assert resized.dtype == dtype
    torch.testing.assert_close(
        resized.float(), resize_positions(table, (4, 4), (6, 5)), atol=0.03, rtol=0.03
    )


def test_positions_can_still_learn_through_the_interpolation() -> None:
    table = noise(1, 17, 4).requires_grad_()
    resize_positions(table, (4, 4), (6, 6)).square().sum().backward()
    assert table.grad is not None
    assert (table.grad.abs().sum(-1) > 0).all()


# Similarity


@pytest.mark.parametrize("num_prefix", [0, 1, 2])
def test_similarity_is_the_cosine_of_two_rows(num_prefix: int) -> None:
    table = noise(1, num_prefix + 6, 5)
    similarity = position_similarity(table, (2, 3), num_prefix)
    assert similarity.shape == (2, 3, 2, 3)
    rows = table[0, num_prefix:].double().numpy()
    for i, j, k, m in np.ndindex(2, 3, 2, 3):
        one, other = rows[i * 3 + j], rows[k * 3 + m]
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert similarity[i, j, k, m].item() == pytest.approx(cosine, abs=1e-6)


def test_a_patch_is_most_like_itself() -> None:
    similarity = position_similarity(sincos2d((4, 6), 32), (4, 6))
    for i, j in np.ndindex(4, 6):
        assert similarity[i, j].argmax() == i * 6 + j
        assert similarity[i, j, i, j].item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("shape", [(1, 6, 4), (1, 8, 4), (7, 4), (2, 7, 4)])
def test_similarity_refuses_a_table_of_another_grid(shape: tuple[int, ...]) -> None:
    message = re.escape(f"{shape}; a 2x3 grid with 1 prefix rows needs (1, 7, D)")
    with pytest.raises(ValueError, match=message):
        position_similarity(torch.zeros(shape), (2, 3))
