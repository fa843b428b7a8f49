"""Train the digit models that chapters and widgets use, and put them in the package.

    python tools/train_digit_models.py

Each is the digit ViT of chapter 6, trained on the 6,000 embedded digits by
`training.recipes["best"]` with seed 0; nothing else was tried and dropped. Weights are
rounded, which lets a page carry a quarter of the bytes, and measured as they are then,
on the 1,500 embedded test digits. Printed: what belongs into
course_utils/data/CREDITS.md, and the checksums for course_utils/data.py.
"""

from __future__ import annotations

import math
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from course_utils.checkpoints import load_model, save_model
from course_utils.data import load_digits
from course_utils.training import evaluate, fit, recipes
from course_utils.vit import VisionTransformer, ViTConfig

FOLDER = Path(__file__).parents[1] / "course_utils" / "data"
CHANGES: dict[str, dict[str, Any]] = {
    "positions": {},
    "no-positions": {"positions": "none"},
    "mean": {"pool": "mean"},
}


@torch.no_grad()
def round_weights(model: VisionTransformer) -> None:
    """Round each matrix to steps of a power of two, about an eighth of its spread.

    float16 holds such numbers exactly, and as few different ones occur, the file
    deflates to half its size.
    """
    for weight in model.parameters():
        if weight.ndim > 1:
            step = 2.0 ** round(math.log2(weight.std().item() / 8))
            weight.copy_((weight / step).round() * step)


def main() -> None:
    """Train, round, save, measure and tell."""
    torch.set_num_threads(1)  # the same sums in the same order wherever it runs
    train, test = load_digits()
    for name, changes in CHANGES.items():
        config = ViTConfig.preset("digits", **changes)
        model = VisionTransformer(config, torch.Generator().manual_seed(0))
        fit(model, train, recipe=recipes["best"], seed=0)
        path = FOLDER / f"digits-{name}.safetensors"
        round_weights(model)
        save_model(model.half(), path)
        raw = path.read_bytes()
        accuracy = evaluate(load_model(path), test).accuracy
        print(
            f"| {path.name} | {len(raw):,} | `{sha256(raw).hexdigest()}` |"
            f" {accuracy:.4f} of the test digits, {len(zlib.compress(raw, 9)):,} bytes"
            " when deflated"
        )


if __name__ == "__main__":
    main()
