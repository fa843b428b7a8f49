"""One training step of the digit model, side by side with others of the same sizes.

    python benchmarks/train_step.py

Five contenders take turns in one run, so that the machine's mood hits all alike: the
lesson's plain loop (nn.MultiheadAttention, post-norm, plain AdamW), timm, vit-pytorch,
this package, and this package without its two shortcuts. Each step is forward,
backward and optimiser on a batch of 128 digits. Printed: median and spread of the time,
and the ratio to the lesson's loop, pair by pair. The floor is the time that the step's
multiply-adds take at the machine's own matrix-product peak.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))

from course_utils.training import Recipe, make_optimizer
from course_utils.vit import VisionTransformer, ViTConfig
from tests.peers import import_timm, import_vit_pytorch

BATCH = 128


class LessonViT(nn.Module):
    """The lesson's model: 104,970 parameters, post-norm, no final norm."""

    def __init__(self, D: int = 64, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(49, D)
        self.cls = nn.Parameter(torch.zeros(1, 1, D))
        self.positions = nn.Parameter(torch.zeros(1, 17, D))
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "attn": nn.MultiheadAttention(D, heads, batch_first=True),
                    "norm1": nn.LayerNorm(D),
                    "mlp": nn.Sequential(
                        nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)
                    ),
                    "norm2": nn.LayerNorm(D),
                }
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(D, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Give logits (B, 10) for images (B, 1, 28, 28)."""
        B = len(images)
        patches = images.unfold(2, 7, 7).unfold(3, 7, 7).reshape(B, 16, 49)
        x = torch.cat([self.cls.expand(B, -1, -1), self.embed(patches)], dim=1)
        x = x + self.positions
        for layer in self.layers:
            x = layer["norm1"](x + layer["attn"](x, x, x)[0])
            x = layer["norm2"](x + layer["mlp"](x))
        return self.head(x[:, 0])


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Make a function that takes one training step on fixed random digits."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(BATCH, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (BATCH,), generator=generator)
    model.train()

    def step() -> None:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def contenders() -> dict[str, Callable[[], None]]:
    """Build each model at the digit sizes, with the optimiser its users would take."""
    timm, vit_pytorch = import_timm(), import_vit_pytorch()
    lesson = LessonViT()
    ours = VisionTransformer(ViTConfig.preset("digits"))
    as_lesson = VisionTransformer(
        ViTConfig.preset("digits", norm="post", final_norm=False)
    )
    timm_vit = timm.models.vision_transformer.VisionTransformer(
        img_size=28,
        patch_size=7,
        in_chans=1,
        num_classes=10,
        embed_dim=64,
        depth=2,
        num_heads=4,
    )
    lucidrains = vit_pytorch.ViT(
        image_size=28,
        patch_size=7,
        channels=1,
        num_classes=10,
        dim=64,
        depth=2,
        heads=4,
        dim_head=16,
        mlp_dim=256,
    )

    def plain(model: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(model.parameters(), lr=3e-3)

    return {
        "lesson's loop": stepper(lesson, plain(lesson)),
        "timm": stepper(timm_vit, plain(timm_vit)),
        "timm, fused AdamW": stepper(
            timm_vit, torch.optim.AdamW(timm_vit.parameters(), lr=3e-3, fused=True)
        ),
        "vit-pytorch": stepper(lucidrains, plain(lucidrains)),
        "course_utils": stepper(ours, make_optimizer(ours, Recipe())),
        "course_utils, post-norm": stepper(
            as_lesson, make_optimizer(as_lesson, Recipe())
        ),
    }


def peak(side: int = 1024, repeats: int = 15) -> float:
    """Measure the machine's best matrix product, in FLOP a second."""
    a, b = torch.rand(side, side), torch.rand(side, side)
    best = float("inf")
    for _ in range(repeats):
        start = perf_counter()
        a @ b
        best = min(best, perf_counter() - start)
    return 2 * side**3 / best


def step_flops() -> int:
    """Count the FLOP of one step: twice the multiply-adds, forward and backward."""
    N, T, D = 16, 17, 64
    block = T * 12 * D * D + 2 * T * T * D
    forward = N * 49 * D + 2 * block + D * 10
    return BATCH * forward * 2 * 3


def main() -> None:
    """Take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    steps = contenders()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(5):
            step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = perf_counter()
            step()
            times[name].append(perf_counter() - start)
    base = times["lesson's loop"]
    print(
        f"one training step, batch {BATCH}, {rounds} rounds in turn, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    print(f"{'':26}{'median ms':>10}{'10-90 % ms':>16}{'ratio':>8}{'10-90 %':>14}")
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, base, strict=True)]
        low, high = _spread(values)
        r_low, r_high = _spread(ratios)
        print(
            f"{name:26}{1e3 * statistics.median(values):10.2f}"
            f"{1e3 * low:9.2f} -{1e3 * high:5.1f}{statistics.median(ratios):8.3f}"
            f"{r_low:8.2f} -{r_high:5.2f}"
        )
    flops = peak()
    print(
        f"floor at the machine's peak of {flops / 1e9:.0f} GFLOP/s: "
        f"{1e3 * step_flops() / flops:.2f} ms"
    )


def _spread(values: list[float]) -> tuple[float, float]:
    deciles = statistics.quantiles(values, n=10)
    return deciles[0], deciles[-1]


if __name__ == "__main__":
    main()
