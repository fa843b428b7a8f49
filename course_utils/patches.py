"""Chapter 1: an image as a sequence of patches.

Axes: B batch, C channels, H W image, h w grid, P patch (P high, Q wide), N patches.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from torch import Tensor

Size = int | tuple[int, int]


def as_pair(size: Size, name: str = "size") -> tuple[int, int]:
    """Read a side, or a (height, width) pair, as a pair of positive pixel counts.

    Raises:
        TypeError: if `size` is neither a whole number nor a pair of them.
        ValueError: if a side is below 1.
    """
    given: Any = size  # by a caller who may not have read the types
    sides = tuple(given) if isinstance(given, (tuple, list)) else (given, given)
    whole = all(isinstance(s, Integral) and not isinstance(s, bool) for s in sides)
    if len(sides) != 2 or not whole:
        raise TypeError(
            f"{name} is {size!r}; give one whole number or a (height, width) pair"
        )
    if min(sides) < 1:
        raise ValueError(f"{name} is {size!r}; each side must be at least 1 pixel")
    return int(sides[0]), int(sides[1])


def patch_grid(img_size: Size, patch_size: Size) -> tuple[int, int]:
    """Count the rows and columns of patches: (h, w) = (H / P, W / Q).

    Raises:
        ValueError: if the patch does not divide the image; nothing is cut off silently.
    """
    H, W = as_pair(img_size, "img_size")
    P, Q = as_pair(patch_size, "patch_size")
    if H % P or W % Q:
        crop = f"Crop the image to {H - H % P}x{W - W % Q}, pad it to "
        raise ValueError(
            f"a {H}x{W} image cannot be cut into {P}x{Q} patches: "
            f"{H % P} rows and {W % Q} columns of pixels would be left over. "
            f"{crop if H >= P and W >= Q else 'Pad the image to '}"
            f"{H + -H % P}x{W + -W % Q}, or choose a patch size that divides it"
        )
    return H // P, W // Q


def patchify(images: Tensor, patch_size: Size) -> Tensor:
    """Cut images into flattened patches, in reading order, without overlap.

    Args:
        images: (B, C, H, W), any dtype.
        patch_size: P, or (P, Q) for patches P pixels high and Q wide.

    Returns:
        (B, N, P*Q*C); patch k holds the pixels of grid cell (k // w, k % w), each
        pixel's channels together, as in the ViT paper (Dosovitskiy et al. 2021, eq. 1).

    Raises:
        ValueError: if `images` is not 4-D, or the patch does not divide the image.
    """
    if images.ndim != 4:
        raise ValueError(
            f"images have shape {tuple(images.shape)}; expected (B, C, H, W). "
            "For a single image, add the batch axis with images[None]"
        )
    B, C, H, W = images.shape
    P, Q = as_pair(patch_size, "patch_size")
    h, w = patch_grid((H, W), (P, Q))
    x = images.reshape(B, C, h, P, w, Q)
    x = x.permute(0, 2, 4, 3, 5, 1)  # (B, h, w, P, Q, C)
    return x.reshape(B, h * w, P * Q * C)


def unpatchify(patches: Tensor, patch_size: Size, img_size: Size) -> Tensor:
    """Put flattened patches back together: the exact inverse of `patchify`.

    Args:
        patches: (B, N, P*Q*C) in the order `patchify` gives.
        patch_size: P or (P, Q).
        img_size: H = W or (H, W) of the image to rebuild; N alone does not tell it.

    Returns:
        (B, C, H, W).

    Raises:
        ValueError: if N is not the number of patches of that image, or the patch
            length is not a multiple of P*Q.
    """
    P, Q = as_pair(patch_size, "patch_size")
    h, w = patch_grid(img_size, (P, Q))
    if patches.ndim != 3 or patches.shape[1] != h * w or patches.shape[2] % (P * Q):
        raise ValueError(
            f"patches have shape {tuple(patches.shape)}; a {h * P}x{w * Q} image in "
            f"{P}x{Q} patches needs (B, {h * w}, {P * Q}*C). "
            "Check img_size and patch_size"
        )
    B, _, length = patches.shape
    C = length // (P * Q)
    x = patches.reshape(B, h, w, P, Q, C)
    x = x.permute(0, 5, 1, 3, 2, 4)  # (B, C, h, P, w, Q)
    return x.reshape(B, C, h * P, w * Q)
