"""Attention weights at 8 bits, as pages carry them, and those of a real pretrained ViT.

A weight w becomes the whole number nearest to 255 √w, so that small weights, of which
a row has many, keep more digits than large ones.

Axes: L blocks, A heads, T tokens, Q queries; the photos' grid is 16×16 patches.
"""

from __future__ import annotations

import base64
import zlib
from io import BytesIO
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.data import PHOTOS, embedded

LEVELS = 255
FILE = "photo-attention.npz"
SIDE = 16  # patches along a side of a photo
QUERIES = tuple(
    row * SIDE + column for row in range(0, SIDE, 2) for column in range(0, SIDE, 2)
)
"""The patches whose rows are kept: every second one, down and across."""
BLOCKS = (2, 5, 8, 11)
"""The blocks in which they are kept, as the mean of the heads."""

Weights = Literal["trained", "random"]


class PhotoMaps(NamedTuple):
    """What is kept of a ViT's attention on one photo; `restore` makes it weights again.

    The ViT has the shape of DINOv2-small, 12 blocks of 6 heads, patches of 14×14
    pixels, and was fine-tuned by its author; `data/CREDITS.md` names him.

    Attributes:
        cls: (L, A, T) uint8, the row of [CLS] in every block and head.
        patches: (4, 64, T) uint8, the rows of the patches `QUERIES` in `BLOCKS`, as the
            mean of the heads.
        rollout: (65, T) uint8, the rows of [CLS] and of `QUERIES`.
    """

    cls: NDArray[np.uint8]
    patches: NDArray[np.uint8]
    rollout: NDArray[np.uint8]


def quantise(weights: Any) -> NDArray[np.uint8]:
    """Round attention weights to 8 bits, and keep what their rows sum to.

    Rounding alone would leave a row of 257 up to 0.006 from its sum. So those numbers
    that were closest to being rounded the other way are, until it is made good.

    Args:
        weights: (..., T), a tensor or an array, in 0 to 1.

    Returns:
        (..., T), each less than 1 from 255 √w.

    Raises:
        ValueError: if there are weights outside 0 to 1.
    """
    exact = np.asarray(weights, dtype=np.float64)
    if not ((exact >= 0) & (exact <= 1)).all():
        raise ValueError(
            f"weights run from {exact.min():g} to {exact.max():g}; attention weights "
            "lie in 0 to 1: give them after the softmax"
        )
    roots = LEVELS * np.sqrt(exact)
    codes = np.rint(roots)
    T = exact.shape[-1]
    for row, root, total in zip(
        codes.reshape(-1, T), roots.reshape(-1, T), exact.sum(-1).flat, strict=True
    ):
        missing = LEVELS**2 * total - (row**2).sum()
        way = np.sign(missing)
        rest = way * (root - row)  # how far rounding has gone the wrong way
        for i in np.argsort(-rest):
            change = (row[i] + way) ** 2 - row[i] ** 2
            if rest[i] > 0 and abs(missing - change) < abs(missing):
                row[i] += way
                missing -= change
    return codes.astype(np.uint8)


def restore(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Turn what `quantise` gave into weights again, float32."""
    return np.square(codes.astype(np.float32) / np.float32(LEVELS))


def pack(*codes: NDArray[np.uint8]) -> str:
    """Write codes one after the other, deflated, in base64."""
    raw = b"".join(part.tobytes() for part in codes)
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def load_photo_maps(name: str, weights: Weights = "trained") -> PhotoMaps:
    """Load what a real pretrained ViT attends to in one of the course's photos.

    Args:
        name: one of `data.PHOTOS`.
        weights: "trained", or "random" for its control, `inspection.random_control`.

    Raises:
        ValueError: if there is no such photo.
        DataError: if the file is missing or damaged.
    """
    if name not in PHOTOS:
        raise ValueError(f"there is no photo {name!r}; choose from {', '.join(PHOTOS)}")
    with np.load(BytesIO(embedded(FILE)), allow_pickle=False) as archive:
        return PhotoMaps(
            *(archive[f"{name}_{weights}_{part}"] for part in PhotoMaps._fields)
        )
