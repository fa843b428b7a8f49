"""Train the digit models that chapters and widgets use, and put them in the package.

    python tools/train_digit_models.py

Each is the digit ViT of chapter 6, trained on the 6,000 embedded digits by
`training.recipes["best"]` with seed 0; nothing else was tried and dropped. Weights are
rounded to float16, which halves what a page has to carry, and measured as they are
then, on the 1,500 embedded test digits. Printed: what belongs into
course_utils/data/CREDITS.md, and the checksums for course_utils/data.py.
"""

from __future__ import annotations

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


def main() -> None:
    """Train, round, save, measure and tell."""
    torch.set_num_threads(1)  # the same sums in the same order wherever it runs
    train, test = load_digits()
    for name, changes in CHANGES.items():
        config = ViTConfig.preset("digits", **changes)
        model = VisionTransformer(config, torch.Generator().manual_seed(0))
        fit(model, train, recipe=recipes["best"], seed=0)
        path = FOLDER / f"digits-{name}.safetensors"
        save_model(model.half(), path)
        raw = path.read_bytes()
        print(
            f"| {path.name} | {len(raw):,} | `{sha256(raw).hexdigest()}` |"
            f" {evaluate(load_model(path), test).accuracy:.4f} of the test digits"
        )


if __name__ == "__main__":
    main()
