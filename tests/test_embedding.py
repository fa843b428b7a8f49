"""Chapter 2: one learned matrix turns each patch into a vector."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.embedding import (
    PatchEmbedding,
    conv_to_linear,
    linear_to_conv,
    rgb_to_grey,
)
from course_utils.patches import patchify, unpatchify

SIDES = st.integers(1, 4)


def noise(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def embedding(
    patch_size: int | tuple[int, int], in_chans: int, embed_dim: int
) -> PatchEmbedding:
    """A patch embedding in double precision with known weights."""
    layer = PatchEmbedding(patch_size, in_chans, embed_dim).double()
    with torch.no_grad():
        layer.proj.weight.copy_(noise(*layer.proj.weight.shape, seed=1))
        layer.proj.bias.copy_(noise(embed_dim, seed=2))  # type: ignore[union-attr]
    return layer


def test_one_patch_is_embedded_as_by_hand() -> None:
    matrix = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, -1.0]])  # (4, 2)
    layer = PatchEmbedding(2, 1, 2)
    with torch.no_grad():
        layer.proj.weight.copy_(linear_to_conv(matrix, 2, 1))
        layer.proj.bias.copy_(torch.tensor([10.0, 20.0]))  # type: ignore[union-attr]
    # 1·1 + 3·2 + 10 and 2·1 - 4·1 + 20
    assert layer(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist() == [[[17, 18]]]


@given(st.integers(1, 3), st.integers(1, 4), SIDES, SIDES, SIDES, SIDES, SIDES)
@settings(deadline=None, max_examples=60)
def test_embedding_is_a_convolution_whose_stride_is_its_kernel(
    B: int, C: int, h: int, w: int, P: int, Q: int, D: int
) -> None:
    layer, images = embedding((P, Q), C, D), noise(B, C, h * P, w * Q)
    maps = F.conv2d(images, layer.proj.weight, layer.proj.bias, stride=(P, Q))
    assert maps.shape == (B, D, h, w)
    torch.testing.assert_close(layer(images), maps.flatten(2).transpose(1, 2))


@given(st.integers(1, 3), st.integers(1, 4), SIDES, SIDES, SIDES, SIDES, SIDES)
@settings(deadline=None, max_examples=60)
def test_embedding_is_one_matrix_product_with_the_patches(
    B: int, C: int, h: int, w: int, P: int, Q: int, D: int
) -> None:
    layer, images = embedding((P, Q), C, D), noise(B, C, h * P, w * Q)
    E = conv_to_linear(layer.proj.weight)
    assert E.shape == (P * Q * C, D)
    torch.testing.assert_close(
        layer(images), patchify(images, (P, Q)) @ E + layer.proj.bias
    )


def test_embedding_is_a_loop_over_patches_and_outputs_in_numpy() -> None:
    layer, images = embedding((2, 3), 3, 5), noise(2, 3, 4, 9)
    weight = layer.proj.weight.detach().numpy()  # (D, C, P, Q)
    bias = layer.proj.bias.detach().numpy()  # type: ignore[union-attr]
    tokens = np.zeros((2, 6, 5))
    for b, k, d in np.ndindex(tokens.shape):
        top, left = (k // 3) * 2, (k % 3) * 3
        piece = images[b, :, top : top + 2, left : left + 3].numpy()
        tokens[b, k, d] = (piece * weight[d]).sum() + bias[d]
    np.testing.assert_allclose(layer(images).detach().numpy(), tokens)


@given(st.integers(1, 4), SIDES, SIDES, SIDES)
@settings(deadline=None, max_examples=40)
def test_linear_and_convolution_weights_convert_both_ways_exactly(
    C: int, P: int, Q: int, D: int
) -> None:
    matrix, weight = noise(P * Q * C, D), noise(D, C, P, Q)
    assert linear_to_conv(matrix, (P, Q), C).shape == (D, C, P, Q)
    assert torch.equal(conv_to_linear(linear_to_conv(matrix, (P, Q), C)), matrix)
    assert torch.equal(linear_to_conv(conv_to_linear(weight), (P, Q), C), weight)


def test_a_trained_matrix_gives_the_same_tokens_as_a_convolution() -> None:
    matrix, images = noise(4 * 4 * 3, 6), noise(2, 3, 8, 12)
    maps = F.conv2d(images, linear_to_conv(matrix, 4, 3), stride=4)
    torch.testing.assert_close(
        maps.flatten(2).transpose(1, 2), patchify(images, 4) @ matrix
    )


def test_copying_weights_without_reordering_them_gives_other_tokens() -> None:
    matrix, images = noise(4 * 4 * 3, 6), noise(2, 3, 8, 12)
    copied = matrix.T.reshape(6, 3, 4, 4)  # the right shape, the wrong order
    maps = F.conv2d(images, copied, stride=4).flatten(2).transpose(1, 2)
    assert not torch.allclose(maps, patchify(images, 4) @ matrix)


def test_each_column_of_the_matrix_is_a_filter_the_size_of_a_patch() -> None:
    layer = embedding((2, 3), 3, 5)
    E = conv_to_linear(layer.proj.weight)
    for d in range(5):
        as_image = unpatchify(E[:, d].reshape(1, 1, -1), (2, 3), (2, 3))[0]
        assert torch.equal(as_image, layer.proj.weight[d])


def test_every_patch_meets_the_same_matrix() -> None:
    layer, tile = embedding(4, 3, 6), noise(1, 3, 4, 4)
    tokens = layer(tile.repeat(1, 1, 2, 3))  # six equal tiles
    torch.testing.assert_close(tokens, tokens[:, :1].expand(-1, 6, -1))


def test_a_shift_by_one_patch_shifts_the_tokens() -> None:
    layer, images = embedding(4, 1, 6), noise(1, 1, 4, 16)
    shifted = layer(images.roll(4, dims=-1))
    torch.testing.assert_close(shifted, layer(images).roll(1, dims=1))


def test_the_photo_has_590_592_embedding_parameters() -> None:
    layer = PatchEmbedding(16, 3, 768)
    assert sum(p.numel() for p in layer.parameters()) == 768 * 768 + 768 == 590_592
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "proj.weight": (768, 3, 16, 16),
        "proj.bias": (768,),
    }


@pytest.mark.parametrize("B", [0, 1, 7])
def test_images_of_a_batch_do_not_meet(B: int) -> None:
    layer, images = embedding(2, 3, 4), noise(B, 3, 4, 6)
    tokens = layer(images)
    assert tokens.shape == (B, 6, 4)
    for image, own in zip(images, tokens, strict=True):
        torch.testing.assert_close(layer(image[None])[0], own)


def test_gradients_are_those_of_the_convolution() -> None:
    layer, images = embedding((2, 3), 3, 5), noise(2, 3, 4, 9)
    conv = nn.Conv2d(3, 5, (2, 3), (2, 3)).double()
    conv.load_state_dict(layer.proj.state_dict())
    ours, theirs = images.clone().requires_grad_(), images.clone().requires_grad_()
    layer(ours).square().sum().backward()
    conv(theirs).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    for own, other in zip(layer.parameters(), conv.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_tokens_have_the_type_of_the_model(dtype: torch.dtype) -> None:
    layer, images = embedding(2, 3, 4), noise(2, 3, 4, 6)
    tokens = layer.to(dtype)(images.to(dtype))
    assert tokens.dtype == dtype
    torch.testing.assert_close(
        tokens.double(), layer.double()(images), atol=0.1, rtol=0.05
    )


def test_a_grey_picture_is_embedded_the_same_as_grey_and_as_rgb() -> None:
    colour, grey, images = embedding(4, 3, 6), embedding(4, 1, 6), noise(2, 1, 8, 12)
    with torch.no_grad():
        grey.proj.weight.copy_(rgb_to_grey(colour.proj.weight))
    as_rgb = images.expand(-1, 3, -1, -1)
    torch.testing.assert_close(grey(images), colour(as_rgb))
    mean = colour.proj.weight.mean(1, keepdim=True)
    assert not torch.allclose(rgb_to_grey(colour.proj.weight), mean)


# Errors name what came and what was expected.


@pytest.mark.parametrize("size", [(222, 222), (121, 256), (224, 120)])
def test_no_border_is_dropped(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=rf"{size[0]}x{size[1]} image.*16x16 patches"):
        PatchEmbedding(16, 3, 4)(torch.zeros(1, 3, *size))


def test_an_image_without_a_batch_axis_is_refused() -> None:
    # A convolution would take it, and what came out would be scrambled.
    with pytest.raises(ValueError, match=r"\(3, 8, 12\); expected \(B, C, H, W\)"):
        PatchEmbedding(4, 3, 8)(torch.zeros(3, 8, 12))


def test_grey_filters_refuse_a_colour_image() -> None:
    with pytest.raises(ValueError, match=r"3 channels.*1"):
        PatchEmbedding(4, 1, 8)(torch.zeros(2, 3, 8, 12))


@pytest.mark.parametrize("shape", [(47, 5), (48,), (1, 48, 5)])
def test_a_matrix_of_another_patch_is_refused(shape: tuple[int, ...]) -> None:
    message = re.escape(f"{shape}; 4x4 patches of 3 channels need (48, D)")
    with pytest.raises(ValueError, match=message):
        linear_to_conv(torch.zeros(shape), 4, 3)


def test_weights_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(48, 5\); expected \(D, C, P, Q\)"):
        conv_to_linear(torch.zeros(48, 5))
    with pytest.raises(ValueError, match=r"\(5, 1, 4, 4\); expected \(D, 3, P, Q\)"):
        rgb_to_grey(torch.zeros(5, 1, 4, 4))
