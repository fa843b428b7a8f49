"""Chapters 4, 5, 6 and 9: what a ViT looks at, and what such maps do not show.

`attention` and `layer_features` ask a model; all else works on the tensors that they
give, on any device, so one pass serves every picture. The weights say which tokens a
block reads from. They do not say what it reads there, nor why the model decides as it
does: set each map beside that of a `random_control`.

Axes: B images, C channels, H W image, h w grid, P patch (P high, Q wide), N patches,
T tokens, L blocks, A heads, D width.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from course_utils.patches import Size, as_pair
from course_utils.vit import VisionTransformer

Heads = Literal["mean", "max", "min"]
_JOIN: dict[str, Callable[..., Tensor]] = {
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
}


# Asking the model


def attention(model: VisionTransformer, images: Tensor, batch_size: int = 64) -> Tensor:
    """Collect the attention weights of every block and head.

    The model is in evaluation mode meanwhile and left as it was. ViT-B/16 at 224×224
    has 12·12·197² weights an image: 22 MB in single precision, so take a few images.

    Args:
        model: any VisionTransformer.
        images: (B, C, H, W), floating point; they are taken to the model's device and
            precision, `batch_size` at a time.
        batch_size: how many images the model sees at once.

    Returns:
        (B, L, A, T, T), on the model's device and in its precision; row q of a map
        says how much token q reads from each token, and sums to one. In half precision
        it does so to two or three digits; NumPy has no bfloat16, so take `.float()`
        before you plot.

    Raises:
        TypeError: if the images are not floating point.
        ValueError: if their shape is not the configured one.
    """

    def look(batch: Tensor) -> Tensor:
        _, blocks = model(batch, return_attention=True)
        return torch.stack(blocks, dim=1)

    return _in_batches(model, images, batch_size, look)


def layer_features(
    model: VisionTransformer, images: Tensor, batch_size: int = 64
) -> Tensor:
    """Collect the tokens before the first block and after each block.

    They are the stream of tokens itself, as the next block finds it, so the final norm
    is not in it: `model.norm` of the last entry is what the head reads, and of an
    earlier one what the head would read if the encoder ended there.

    Args:
        model: any VisionTransformer; in evaluation mode meanwhile, left as it was.
        images: (B, C, H, W), floating point; they are taken to the model's device and
            precision, `batch_size` at a time.
        batch_size: how many images the model sees at once.

    Returns:
        (B, L + 1, T, D), on the model's device and in its precision.

    Raises:
        TypeError: if the images are not floating point.
        ValueError: if their shape is not the configured one.
    """

    def look(batch: Tensor) -> Tensor:
        stream = [model.embed(batch)]
        for block in model.blocks:
            stream.append(block(stream[-1]))
        return torch.stack(stream, dim=1)

    return _in_batches(model, images, batch_size, look)


def random_control(model: VisionTransformer, seed: int) -> VisionTransformer:
    """Copy a model and draw all its weights anew: the control for every map.

    What the copy shows too comes from the images and the architecture, and is nothing
    that was learned. Source: Adebayo et al. 2018, "Sanity Checks for Saliency Maps".

    Args:
        model: stays as it is.
        seed: of the new weights; no global random state is read or moved.

    Returns:
        The same architecture, mode, device and precision, with the weights that a
        fresh model has; fixed positions are the same.
    """
    weight = next(model.parameters())
    control = copy.deepcopy(model).to("cpu", torch.float32)  # generators are the CPU's
    control.reset(torch.Generator().manual_seed(seed))
    return control.to(weight)


def _in_batches(
    model: VisionTransformer,
    images: Tensor,
    batch_size: int,
    look: Callable[[Tensor], Tensor],
) -> Tensor:
    """Look at images in evaluation mode and without gradients; restore each mode."""
    weight = next(model.parameters())
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            parts = [
                # Whole numbers stay what they are, for the model to refuse.
                look(batch.to(weight) if batch.is_floating_point() else batch)
                for batch in images.split(batch_size)
            ]
    finally:
        for module, mode in modes:
            module.training = mode
    return torch.cat(parts)


# Maps on the grid


def cls_maps(weights: Tensor, grid: tuple[int, int], num_prefix: int = 1) -> Tensor:
    """Lay what [CLS] reads from each patch on the grid.

    What [CLS] reads from itself has no place there, so a map does not sum to one:
    what is missing is that weight. Nothing is rescaled.

    Args:
        weights: (..., T, T) of `attention`, of some of its blocks, or of `rollout`.
        grid: (h, w), the model's `config.grid`; it cannot be guessed from T.
        num_prefix: tokens in front of the patches, the model's `config.num_prefix`.

    Returns:
        (..., h, w): entry [i, j] belongs to the patch in row i, column j.

    Raises:
        ValueError: if there is no [CLS] token, or the weights do not fit the grid.
    """
    if num_prefix < 1:
        raise ValueError(
            f"num_prefix is {num_prefix}: this model has no [CLS] token, and so no "
            "[CLS] map. Use patch_maps, or a model with class_token=True"
        )
    _check_weights(weights, grid, num_prefix)
    return weights[..., 0, num_prefix:].unflatten(-1, grid)  # (..., h, w)


def patch_maps(weights: Tensor, grid: tuple[int, int], num_prefix: int = 1) -> Tensor:
    """Lay what each patch reads from each patch on the grid.

    Args:
        weights: (..., T, T) of `attention`, of some of its blocks, or of `rollout`.
        grid: (h, w), the model's `config.grid`.
        num_prefix: tokens in front of the patches, the model's `config.num_prefix`.

    Returns:
        (..., h, w, h, w); entry [..., i, j, :, :] is the map of the patch in row i,
        column j. What it reads from prefix tokens is left out, so the map need not
        sum to one.

    Raises:
        ValueError: if the weights do not fit the grid.
    """
    _check_weights(weights, grid, num_prefix)
    among = weights[..., num_prefix:, num_prefix:]  # (..., N, N)
    return among.unflatten(-1, grid).unflatten(-3, grid)  # (..., h, w, h, w)


def rollout(weights: Tensor, *, heads: Heads = "mean", discard: float = 0.0) -> Tensor:
    """Follow attention through all blocks, back to the tokens that went in.

    A block's heads become one matrix. The residual branch is as strong as the
    attention: half of that matrix, half of the identity, rows renormalised. The
    matrices are multiplied, later blocks on the left. MLPs, values and norms are left
    out: it is a summary, not what the model computes. A token that all others read
    from in the first block stays bright in every map.

    Source: Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers", for the
    mean of the heads; the other ways to join them and `discard` are later practice.

    Args:
        weights: (B, L, A, T, T), all blocks in the order in which they run.
        heads: how to join them; "max" and "min" take each weight alone, and the rows
            are whole again after the renormalising.
        discard: in each row, set this share of the T - 1 weights on other tokens to
            zero, rounded down, the lowest first; equal weights go or stay together. A
            token's own weight, so also that of [CLS], always stays: without it the
            token would seem to have read more from others than it did.

    Returns:
        (B, T, T), at least single precision: how much of input token k is in output
        token q, as far as attention tells. Rows sum to one. `cls_maps` and
        `patch_maps` lay it on the grid.

    Raises:
        ValueError: if the weights have other axes, or an option is unknown.
    """
    if weights.ndim != 5 or weights.shape[-2] != weights.shape[-1]:
        raise ValueError(
            f"the weights have shape {tuple(weights.shape)}; expected all blocks, "
            "(B, L, A, T, T), as attention(model, images) gives them"
        )
    if heads not in _JOIN:
        raise ValueError(f"heads is {heads!r}; choose one of {tuple(_JOIN)}")
    if not 0 <= discard < 1:
        raise ValueError(f"discard is {discard}; give 0 up to 1")
    blocks = _JOIN[heads](_at_least_single(weights), dim=2)  # (B, L, T, T)
    if discard:
        blocks = _without_lowest(blocks, discard)
    B, _, T, _ = blocks.shape
    identity = torch.eye(T, dtype=blocks.dtype, device=blocks.device)
    flow = identity.expand(B, T, T)
    for block in blocks.unbind(1):
        mixed = (block + identity) / 2
        flow = mixed / mixed.sum(-1, keepdim=True) @ flow
    return flow


def _without_lowest(blocks: Tensor, discard: float) -> Tensor:
    """Set the lowest weights of each row (..., T, T) to zero, but for its own."""
    T = blocks.shape[-1]
    own = torch.eye(T, dtype=torch.bool, device=blocks.device)
    others = blocks.masked_fill(own, math.inf)  # (..., T, T), its own sorts last
    lowest_kept = others.sort(dim=-1).values[..., int(discard * (T - 1)), None]
    return blocks.masked_fill(others < lowest_kept, 0)


def attention_distance(
    weights: Tensor, grid: tuple[int, int], patch_size: Size, num_prefix: int = 1
) -> Tensor:
    """Measure how far patches look, in pixels: a head's receptive field.

    The distance between the centres of the asking and the attended patch, 0 for the
    patch itself, is averaged with the attention weights, then over all asking patches.
    [CLS] has no place: it does not ask, and what patches read from it is left out and
    the rest renormalised. A patch that reads from no patch is not counted.

    Source: Dosovitskiy et al. 2021, figure 7.

    Args:
        weights: (..., T, T) of `attention` or of some of its blocks.
        grid: (h, w), the model's `config.grid`.
        patch_size: P or (P, Q), the model's `config.patch_size`.
        num_prefix: tokens in front of the patches, the model's `config.num_prefix`.

    Returns:
        (...): one number a map, at least single precision. To compare, equal weights
        on all patches of a 14×14 grid of 16×16 pixels give 116 pixels.

    Raises:
        ValueError: if the weights do not fit the grid.
    """
    _check_weights(weights, grid, num_prefix)
    P, Q = as_pair(patch_size, "patch_size")
    centres = torch.meshgrid(*(torch.arange(side) for side in grid), indexing="ij")
    down, across = (axis.flatten() - axis.flatten()[:, None] for axis in centres)
    distance = torch.hypot(down * float(P), across * float(Q))  # (N, N)
    among = _at_least_single(weights[..., num_prefix:, num_prefix:])  # (..., N, N)
    travelled = torch.einsum("...qk,qk->...q", among, distance.to(among))
    return (travelled / among.sum(-1)).nanmean(-1)


# Features as colours


class ColourBasis(NamedTuple):
    """Which features are which colours: ½ + (x - mean) @ axes, cut to 0 to 1.

    Attributes:
        mean: (D,), the feature that is middle grey.
        axes: (D, 3), for red, green and blue the directions in which features vary
            most. From no colour to full colour it is four standard deviations.
    """

    mean: Tensor
    axes: Tensor


def colour_basis(features: Tensor, num_prefix: int = 1) -> ColourBasis:
    """Find the three principal directions of patch features, of all images together.

    They are computed, and stay, on the CPU in double precision. Each is turned so that
    its largest entry is positive, so the same features always get the same colours. A
    direction in which nothing varies gives no colour.

    Args:
        features: (B, T, D), such as `layer_features(model, images)[:, -1]`.
        num_prefix: tokens in front of the patches, which are left out.

    Raises:
        ValueError: if the features have other axes, or fewer than 3 numbers a token.
    """
    if features.ndim != 3 or features.shape[-1] < 3:
        raise ValueError(
            f"the features have shape {tuple(features.shape)}; expected one layer, "
            "(B, T, D) with D at least 3, such as layer_features(model, images)[:, -1]"
        )
    patches = features.detach()[:, num_prefix:].flatten(0, 1).cpu().double()  # (B*N, D)
    mean = patches.mean(0)
    centred = patches - mean
    variance, axes = torch.linalg.eigh(centred.T @ centred / len(patches))
    variance, axes = variance[-3:].flip(0), axes[:, -3:].flip(1)  # the largest first
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    rounding = 1e-6 * patches.abs().max()
    axes = torch.where(variance > rounding**2, axes / (4 * variance.sqrt()), 0.0)
    return ColourBasis(mean, axes)


def feature_colours(
    features: Tensor,
    grid: tuple[int, int],
    num_prefix: int = 1,
    *,
    basis: ColourBasis | None = None,
) -> Tensor:
    """Paint patches by their features: alike in feature, alike in colour.

    Args:
        features: (B, T, D), such as `layer_features(model, images)[:, -1]`.
        grid: (h, w), the model's `config.grid`.
        num_prefix: tokens in front of the patches, the model's `config.num_prefix`.
        basis: which features are which colours. By default it is fitted to all images
            given, so that a colour means the same in each of them. An image's colours
            then depend on the others; with a basis fitted once they do not.

    Returns:
        (B, 3, h, w), red, green and blue in 0 to 1: images of one pixel a patch, which
            `plots.show_images` draws.

    Raises:
        ValueError: if the features fit neither the grid nor the basis.
    """
    if basis is None:
        basis = colour_basis(features, num_prefix)
    shape, D = tuple(features.shape), len(basis.mean)
    if features.ndim != 3 or shape[-1] != D:
        raise ValueError(
            f"the features have shape {shape}; this basis colours (B, T, {D}). "
            "Fit one to features of the same layer with colour_basis"
        )
    _check_tokens("features", features, shape[1], grid, num_prefix)
    patches = _at_least_single(features[:, num_prefix:])  # (B, N, D)
    mean, axes = (x.to(patches.dtype).to(patches.device) for x in basis)
    colours = ((patches - mean) @ axes + 0.5).clamp(0, 1)  # (B, N, 3)
    return colours.transpose(1, 2).unflatten(-1, grid)  # (B, 3, h, w)


def _check_weights(weights: Tensor, grid: tuple[int, int], num_prefix: int) -> None:
    if weights.ndim < 2 or weights.shape[-2] != weights.shape[-1]:
        raise ValueError(
            f"the weights have shape {tuple(weights.shape)}; expected (..., T, T), "
            "one row and one column a token, as attention(model, images) gives them"
        )
    _check_tokens("weights", weights, weights.shape[-1], grid, num_prefix)


def _check_tokens(
    what: str, x: Tensor, T: int, grid: tuple[int, int], num_prefix: int
) -> None:
    h, w = grid
    if num_prefix + h * w != T:
        raise ValueError(
            f"the {what} have shape {tuple(x.shape)}, {T} tokens; a {h}x{w} grid with "
            f"{num_prefix} prefix tokens needs {num_prefix + h * w}. Give the model's "
            "own config.grid and config.num_prefix"
        )


def _at_least_single(x: Tensor) -> Tensor:
    """Take half precision to single, for sums that would lose its few digits."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
