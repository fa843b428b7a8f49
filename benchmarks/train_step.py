"""One training step of the digit model, side by side with others of the same sizes.

    python benchmarks/train_step.py

Five contenders take turns in one run, so that the machine's mood hits all alike: the
lesson's plain loop (nn.MultiheadAttention, post-norm, plain AdamW), timm, vit-pytorch,
and this package, pre-norm and post-norm. Each step is forward,
backward and optimiser on a batch of 128 digits. Printed: median and spread of the time,
and the ratio to the lesson's loop, pair by pair. The floor is the time that the step's
multiply-adds take at the machine's own matrix-product peak.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from turns import machine, peak, print_table, take_turns

from course_utils.counting import count
from course_utils.optimizers import adamw
from course_utils.vit import VisionTransformer, ViTConfig
from tests.peers import timm_vit, vit_pytorch_vit

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
    digits = ViTConfig.preset("digits")
    lesson = LessonViT()
    ours = VisionTransformer(digits)
    as_lesson = VisionTransformer(replace(digits, norm="post", final_norm=False))
    timm, lucidrains = timm_vit(digits), vit_pytorch_vit(digits)

    def plain(model: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(model.parameters(), lr=3e-3)

    return {
        "lesson's loop": stepper(lesson, plain(lesson)),
        "timm": stepper(timm, plain(timm)),
        "timm, fused AdamW": stepper(
            timm, torch.optim.AdamW(timm.parameters(), lr=3e-3, fused=True)
        ),
        "vit-pytorch": stepper(lucidrains, plain(lucidrains)),
        "course_utils": stepper(ours, adamw(ours, lr=3e-3, weight_decay=0.01)),
        "course_utils, post-norm": stepper(
            as_lesson, adamw(as_lesson, lr=3e-3, weight_decay=0.01)
        ),
    }


def main() -> None:
    """Take turns, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    times = take_turns(contenders(), rounds, warm_up=5)
    print(f"one training step, batch {BATCH}, {rounds} rounds in turn, {machine()}")
    print_table(times, "lesson's loop")
    # The backward pass costs twice the forward one; a multiply-add is two operations.
    operations = 3 * 2 * count(ViTConfig.preset("digits"), batch=BATCH).multiply_adds
    flops = peak()
    print(
        f"floor at the machine's peak of {flops / 1e9:.0f} GFLOP/s: "
        f"{1e3 * operations / flops:.2f} ms"
    )


if __name__ == "__main__":
    main()
