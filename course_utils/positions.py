"""Chapters 3 and 4: the [CLS] token, and where each patch belongs.

A position table has one row a token: first the prefix rows (one for [CLS], or none),
then one row a patch in reading order.

Axes: B batch, h w grid, N patches, T tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def prepend_cls(tokens: Tensor, cls_token: Tensor) -> Tensor:
    """Put the same learned vector in front of each image's patches.

    Args:
        tokens: (B, N, D).
        cls_token: (1, 1, D).

    Returns:
        (B, N + 1, D), for any batch size.
    """
    first = cls_token.expand(len(tokens), -1, -1)  # (B, 1, D)
    return torch.cat([first, tokens], dim=1)  # (B, N + 1, D)


def sincos2d(
    grid: tuple[int, int], embed_dim: int, num_prefix: int = 1, base: float = 10_000
) -> Tensor:
    """Build a fixed table of sines and cosines of each patch's row and column.

    The width is shared in four: sine and cosine of the row, sine and cosine of the
    column, at frequencies that fall from 1 towards 1 / `base`. Prefix rows are zero.
    The similarity of two rows depends only on the offset between their patches.

    Source: Vaswani et al. 2017 in one dimension; in two, He et al. 2022 (MAE).

    Args:
        grid: (h, w).
        embed_dim: D, a multiple of 4.
        num_prefix: how many zero rows stand in front.
        base: the ratio between the fastest and the slowest frequency.

    Returns:
        (1, num_prefix + h*w, D), float32.

    Raises:
        ValueError: if D is not a multiple of 4.
    """
    if embed_dim % 4:
        raise ValueError(
            f"embed_dim is {embed_dim}; 2-D sines and cosines need a multiple of 4, "
            f"such as {embed_dim + -embed_dim % 4}"
        )
    h, w = grid
    quarter = embed_dim // 4
    exponent = torch.arange(quarter, dtype=torch.float64) / quarter
    frequencies = base**-exponent  # (D/4,), the first is 1
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    angles = [axis.flatten()[:, None] * frequencies for axis in (rows, columns)]
    parts = [wave for angle in angles for wave in (angle.sin(), angle.cos())]
    table = torch.cat(parts, dim=1).float()  # (N, D)
    prefix = table.new_zeros(num_prefix, embed_dim)
    return torch.cat([prefix, table])[None]  # (1, T, D)


def resize_positions(
    table: Tensor,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    *,
    num_prefix: int = 1,
    antialias: bool = False,
) -> Tensor:
    """Interpolate a learned position table to another grid of patches.

    The patch rows are laid out on their grid, resized and put back behind the prefix
    rows, which belong to no place and stay as they are.

    The convention is bicubic with align_corners False: patches are areas, and the
    outer edges of both grids coincide, not the centres of their corner patches. It is
    computed in float32 for tables of any precision.

    Publishers differ in `antialias`. timm sets it: a shrinking table is smoothed first,
    so that no row is skipped. Hugging Face's ViT and DINOv2 keep to the code that DINO
    was published with, and do not. It matters also where the grid grows, for PyTorch
    then takes a softer cubic (a = -0.5 in Keys' formula, instead of -0.75). Choose what
    the weights' publisher does.

    Args:
        table: (1, num_prefix + h*w, D), any floating dtype.
        old_grid: (h, w) the table was made for; it cannot be guessed from its length.
        new_grid: (h, w) wanted.
        num_prefix: rows in front that belong to no patch.
        antialias: as timm has it; see above.

    Returns:
        (1, num_prefix + h*w, D) for the new grid, in the table's dtype.

    Raises:
        ValueError: if the table does not fit `old_grid` and `num_prefix`.
    """
    (h, w), D = old_grid, table.shape[-1]
    if table.shape != (1, num_prefix + h * w, D):
        raise ValueError(
            f"the position table has shape {tuple(table.shape)}; a {h}x{w} grid with "
            f"{num_prefix} prefix rows needs (1, {num_prefix + h * w}, D). "
            "Give the grid and the prefix count that the table was trained with"
        )
    if old_grid == new_grid:
        return table
    prefix, patches = table[:, :num_prefix], table[:, num_prefix:]
    maps = patches.float().reshape(1, h, w, D).permute(0, 3, 1, 2)  # (1, D, h, w)
    maps = F.interpolate(maps, size=new_grid, mode="bicubic", antialias=antialias)
    patches = maps.permute(0, 2, 3, 1).reshape(1, -1, D).to(table.dtype)  # (1, N, D)
    return torch.cat([prefix, patches], dim=1)  # (1, T, D)


def position_similarity(
    table: Tensor, grid: tuple[int, int], num_prefix: int = 1
) -> Tensor:
    """Compare each patch's position row with every other by cosine similarity.

    Args:
        table: (1, num_prefix + h*w, D).
        grid: (h, w).
        num_prefix: rows in front to leave out.

    Returns:
        (h, w, h, w); entry [i, j] is the map for the patch in row i, column j.

    Raises:
        ValueError: if the table does not fit `grid` and `num_prefix`.
    """
    h, w = grid
    if table.ndim != 3 or len(table) != 1 or table.shape[1] != num_prefix + h * w:
        raise ValueError(
            f"the position table has shape {tuple(table.shape)}; a {h}x{w} grid with "
            f"{num_prefix} prefix rows needs (1, {num_prefix + h * w}, D)"
        )
    rows = F.normalize(table[0, num_prefix:].float(), dim=-1)  # (N, D)
    return (rows @ rows.T).reshape(h, w, h, w)
