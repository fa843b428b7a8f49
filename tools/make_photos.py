"""Make the photographs that the package carries: squares cut from scikit-image's.

The four pictures are in scikit-image itself, so nothing is downloaded. Each square is
chosen so that its subject fills it, scaled to 224x224 and kept as PNG, which decodes to
the same pixels everywhere.

    python tools/make_photos.py
"""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from skimage import data

SIDE = 224
TARGET = Path(__file__).resolve().parent.parent / "course_utils/data"


class Square(NamedTuple):
    """Part of a picture, in its pixels."""

    left: int
    top: int
    side: int


SQUARES = {
    "astronaut": Square(left=16, top=0, side=448),
    "chelsea": Square(left=92, top=0, side=300),
    "coffee": Square(left=78, top=0, side=400),
    "rocket": Square(left=108, top=0, side=427),
}


def photo(name: str) -> Image.Image:
    """Cut the square and scale it; Pillow widens the filter, so nothing aliases."""
    left, top, side = SQUARES[name]
    picture = Image.fromarray(getattr(data, name)())
    box = (left, top, left + side, top + side)
    return picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=box)


def main() -> None:
    """Write the four files and print their checksums."""
    for name in SQUARES:
        buffer = BytesIO()
        photo(name).save(buffer, "PNG", optimize=True)
        content = buffer.getvalue()
        (TARGET / f"{name}.png").write_bytes(content)
        print(
            f"{name}.png  {len(content):,} bytes  sha256 {sha256(content).hexdigest()}"
        )


if __name__ == "__main__":
    main()
