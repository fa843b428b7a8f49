"""Chapter 1: an image is a sequence of square pieces in reading order."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from course_utils.patches import as_pair, patch_grid, patchify, unpatchify

SIDES = st.integers(1, 5)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def numbered(*shape: int) -> torch.Tensor:
    """An image in which no two numbers are alike, so that nothing can hide."""
    return torch.arange(np.prod(shape)).reshape(shape)


def test_a_numbered_image_is_cut_as_by_hand() -> None:
    patches = patchify(numbered(1, 1, 4, 4), 2)
    assert patches.tolist() == [
        [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    ]


def test_a_colour_patch_keeps_the_channels_of_each_pixel_together() -> None:
    red, green = numbered(1, 1, 2, 2), 100 + numbered(1, 1, 2, 2)
    assert patchify(torch.cat([red, green], dim=1), 2).tolist() == [
        [[0, 100, 1, 101, 2, 102, 3, 103]]
    ]


@given(st.integers(0, 3), st.integers(1, 4), SIDES, SIDES, SIDES, SIDES)
@settings(deadline=None, max_examples=80)
def test_unpatchify_undoes_patchify_bit_for_bit(
    B: int, C: int, h: int, w: int, P: int, Q: int
) -> None:
    images = noise(B, C, h * P, w * Q)
    patches = patchify(images, (P, Q))
    assert patches.shape == (B, h * w, P * Q * C)
    assert torch.equal(unpatchify(patches, (P, Q), (h * P, w * Q)), images)


@given(st.integers(1, 3), st.integers(1, 4), SIDES, SIDES, SIDES, SIDES)
@settings(deadline=None, max_examples=80)
def test_patch_k_is_the_slice_of_the_image_it_names(
    B: int, C: int, h: int, w: int, P: int, Q: int
) -> None:
    images = numbered(B, C, h * P, w * Q)
    patches = patchify(images, (P, Q))
    for k in range(h * w):
        top, left = (k // w) * P, (k % w) * Q
        piece = images[:, :, top : top + P, left : left + Q]
        piece = piece.permute(0, 2, 3, 1).flatten(1)  # (B, P*Q*C)
        assert torch.equal(patches[:, k], piece)


@given(st.integers(1, 3), st.integers(1, 4), SIDES, SIDES, SIDES, SIDES)
@settings(deadline=None, max_examples=60)
def test_patchify_equals_unfold_but_for_the_order_within_a_patch(
    B: int, C: int, h: int, w: int, P: int, Q: int
) -> None:
    images = noise(B, C, h * P, w * Q)
    columns = F.unfold(images, (P, Q), stride=(P, Q))  # (B, C*P*Q, N)
    columns = columns.reshape(B, C, P, Q, h * w)
    expected = columns.permute(0, 4, 2, 3, 1).reshape(B, h * w, P * Q * C)
    assert torch.equal(patchify(images, (P, Q)), expected)


def test_a_plain_reshape_has_the_right_shape_and_the_wrong_patches() -> None:
    images = noise(2, 3, 8, 12)
    patches, wrong = patchify(images, 4), images.reshape(2, 6, 48)
    assert wrong.shape == patches.shape
    assert not torch.equal(wrong, patches)


def test_the_same_patches_make_another_image_on_another_grid() -> None:
    patches = patchify(numbered(1, 1, 4, 4), 2)
    wide = unpatchify(patches, 2, (2, 8))
    assert wide[0, 0, 0].tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert not torch.equal(wide.reshape(1, 1, 4, 4), numbered(1, 1, 4, 4))


@pytest.mark.parametrize(
    ("img_size", "patch_size", "grid"),
    [
        (28, 7, (4, 4)),
        (224, 16, (14, 14)),
        (224, 14, (16, 16)),
        (384, 16, (24, 24)),
        ((224, 336), 16, (14, 21)),
        ((224, 112), (16, 8), (14, 14)),
        (7, 7, (1, 1)),
        (28, 1, (28, 28)),
    ],
)
def test_the_grid_has_a_cell_for_each_patch(
    img_size: int | tuple[int, int],
    patch_size: int | tuple[int, int],
    grid: tuple[int, int],
) -> None:
    assert patch_grid(img_size, patch_size) == grid


@pytest.mark.parametrize(
    ("shape", "patch_size", "tokens", "numbers"),
    [
        ((1, 28, 28), 7, 16, 49),
        ((3, 224, 224), 16, 196, 768),
        ((3, 224, 224), 14, 256, 588),
        ((3, 224, 224), 8, 784, 192),
    ],
)
def test_the_digit_and_the_photo_give_the_tokens_of_the_lesson(
    shape: tuple[int, int, int], patch_size: int, tokens: int, numbers: int
) -> None:
    assert patchify(torch.zeros(1, *shape), patch_size).shape == (1, tokens, numbers)


def test_half_the_patch_side_is_four_times_the_tokens_and_sixteen_times_the_pairs() -> (
    None
):
    few, many = (np.prod(patch_grid(224, P)) for P in (16, 8))
    assert many == 4 * few
    assert many**2 == 16 * few**2


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bool, torch.int64, torch.bfloat16, torch.float64]
)
def test_patches_keep_the_type_of_the_pixels(dtype: torch.dtype) -> None:
    images = (255 * noise(2, 3, 4, 6)).to(dtype)
    patches = patchify(images, 2)
    assert patches.dtype == dtype
    assert torch.equal(unpatchify(patches, 2, (4, 6)), images)


def test_the_layout_in_memory_does_not_matter() -> None:
    images = noise(2, 3, 8, 12)
    expected = patchify(images, 4)
    channels_last = images.contiguous(memory_format=torch.channels_last)
    transposed = images.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(patchify(channels_last, 4), expected)
    assert torch.equal(patchify(transposed, 4), expected)


def test_each_pixel_gets_its_own_gradient_through_the_cut() -> None:
    images = noise(2, 3, 4, 6).requires_grad_()
    weights = noise(2, 6, 12, seed=1)
    (patchify(images, 2) * weights).sum().backward()
    assert images.grad is not None
    assert torch.equal(images.grad, unpatchify(weights, 2, (4, 6)))


# Nothing is cut off silently.


@pytest.mark.parametrize(
    ("size", "patch"), [((222, 222), 16), ((121, 256), 16), ((256, 121), 16)]
)
def test_a_patch_that_does_not_divide_the_image_is_refused(
    size: tuple[int, int], patch: int
) -> None:
    names_both = rf"{size[0]}x{size[1]} image.*{patch}x{patch} patches"
    with pytest.raises(ValueError, match=names_both):
        patch_grid(size, patch)
    with pytest.raises(ValueError, match=names_both):
        patchify(torch.zeros(1, 3, *size), patch)
    with pytest.raises(ValueError, match=names_both):
        unpatchify(torch.zeros(1, 1, patch * patch), patch, size)


@given(*[st.integers(8, 60)] * 2, *[st.integers(1, 8)] * 2)
@settings(deadline=None, max_examples=80)
def test_the_remedies_in_the_message_work(H: int, W: int, P: int, Q: int) -> None:
    try:
        assert patch_grid((H, W), (P, Q)) == (H / P, W / Q)
    except ValueError as error:
        sizes = re.findall(r"(?:Crop the image|pad it) to (\d+)x(\d+)", str(error))
        (ch, cw), (ph, pw) = [(int(h), int(w)) for h, w in sizes]
        assert H - P < ch <= H <= ph < H + P
        assert W - Q < cw <= W <= pw < W + Q
        assert patch_grid((ch, cw), (P, Q)) == (H // P, W // Q)
        assert patch_grid((ph, pw), (P, Q)) == (-(-H // P), -(-W // Q))


def test_a_patch_larger_than_the_image_is_not_told_to_crop_to_nothing() -> None:
    with pytest.raises(ValueError, match=r"8x8 image.*16x16 patches") as error:
        patch_grid(8, 16)
    assert "0x0" not in str(error.value)


@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28), (1, 1, 1, 28, 28)])
def test_images_without_a_batch_or_channel_axis_are_refused(
    shape: tuple[int, ...],
) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{shape}; expected (B, C, H, W)")):
        patchify(torch.zeros(shape), 7)


@pytest.mark.parametrize("shape", [(16, 49), (1, 15, 49), (1, 16, 50), (1, 1, 16, 49)])
def test_patches_that_do_not_fill_the_image_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(shape))) as error:
        unpatchify(torch.zeros(shape), 7, 28)
    for part in ("28x28 image", "7x7 patches", "(B, 16, 49*C)", "Check img_size"):
        assert part in str(error.value)


@pytest.mark.parametrize("size", [7.0, "7", None, True, (7,), (7, 7, 7), (7, 7.0)])
def test_a_size_that_is_not_one_or_two_whole_numbers_is_refused(size: object) -> None:
    with pytest.raises(TypeError, match=re.escape(f"patch_size is {size!r}; give one")):
        as_pair(size, "patch_size")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -7, (7, 0), (-1, 7)])
def test_a_side_without_pixels_is_refused(size: int | tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"patch_size is {size!r}")):
        patch_grid(28, size)


def test_a_list_and_a_numpy_whole_number_are_sizes_too() -> None:
    assert patch_grid([28, 14], 7) == (4, 2)  # type: ignore[arg-type]
    assert patch_grid(28, np.int64(7)) == (4, 4)  # type: ignore[arg-type]
    grid = patch_grid(tuple(np.array([28, 14])), 7)
    assert grid == (4, 2)
    assert [type(side) for side in grid] == [int, int]
