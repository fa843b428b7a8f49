"""Images as pages get them: a size, and a data URI that any browser reads."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image


def as_picture(
    image: Any, *, exact: bool = True, what: str = "image"
) -> dict[str, Any]:
    """Turn an image into what the widgets' `readPicture` reads.

    Args:
        image: (C, H, W) or (H, W), a tensor or an array, 1 or 3 channels, floating
            point in 0 to 1 or uint8 in 0 to 255.
        exact: keep every pixel; without, a photograph takes a sixth of the bytes.
        what: the image's name in errors.

    Returns:
        height and width in pixels, channels, and source, a data URI.

    Raises:
        TypeError: if the numbers are neither floating point nor uint8.
        ValueError: if the shape or the range is another.
    """
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3) or 0 in pixels.shape:
        raise ValueError(
            f"{what} has the shape {np.shape(image)}; a widget shows one image, "
            "(C, H, W) with 1 or 3 channels, or (H, W)"
        )
    if np.issubdtype(pixels.dtype, np.floating):
        if not ((pixels >= 0) & (pixels <= 1)).all():
            raise ValueError(
                f"{what} has values from {pixels.min():g} to {pixels.max():g}; "
                "floating point pixels lie in 0 to 1: divide by 255, or undo the "
                "normalisation"
            )
        pixels = np.rint(255 * pixels).astype(np.uint8)
    elif pixels.dtype != np.uint8:
        raise TypeError(
            f"{what} is {pixels.dtype}; pixels are floating point in 0 to 1, or uint8"
        )
    C, H, W = pixels.shape
    rgb = np.broadcast_to(pixels, (3, H, W)).transpose(1, 2, 0)  # (H, W, 3)
    quality = {"lossless": True, "quality": 100} if exact else {"quality": 85}
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(rgb)).save(file, "WEBP", method=6, **quality)
    source = "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
    return {"height": H, "width": W, "channels": C, "source": source}
