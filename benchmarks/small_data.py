"""How well a ViT of 105,098 parameters reads digits after 6,000 of them, and how soon.

    python benchmarks/small_data.py

Each round, with its own seed, trains the contenders one after the other, on the 6,000
embedded digits alone, and tests the weights of the last epoch on the 10,000 digits of
MNIST's test set: the lesson's plain loop, with its 15 epochs; the recipes of
`training.recipes`; and the best of them again with the small CNN for a teacher, whose
own training is not in its time. Printed: accuracy and time, mean and standard deviation
over the seeds, and the ratio of the time to the lesson's loop's in the same round.

The recipes were chosen without the test digits, on 1,000 of the 6,000, held out by
`training.split` with each seed; `--choose` measures on those.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from train_step import BATCH, LessonViT
from turns import machine

from course_utils.cnn import SmallCNN
from course_utils.data import LabelledImages, load_digits, load_mnist
from course_utils.training import evaluate, fit, recipes, split
from course_utils.vit import VisionTransformer, ViTConfig
from tests.mnist import mnist_folder

EPOCHS = 15
DIGITS = ViTConfig.preset("digits")


class Result(NamedTuple):
    """The share of digits that a contender read rightly, and its time in seconds."""

    accuracy: float
    seconds: float


def lesson(train: LabelledImages, seed: int) -> nn.Module:
    """Train as the lesson does: shuffle, forward, backward, AdamW, 15 epochs."""
    torch.manual_seed(seed)
    model = LessonViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    images, labels = train
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels)).split(BATCH):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def vit(
    train: LabelledImages, seed: int, recipe: str, teacher: nn.Module | None = None
) -> nn.Module:
    """Train the digit ViT by one of the recipes."""
    model = VisionTransformer(DIGITS, torch.Generator().manual_seed(seed))
    fit(model, train, recipe=recipes[recipe], teacher=teacher, seed=seed)
    return model


def cnn(train: LabelledImages, seed: int) -> nn.Module:
    """Train the small CNN by its recipe."""
    model = SmallCNN(generator=torch.Generator().manual_seed(seed))
    fit(model, train, recipe=recipes["cnn"], seed=seed)
    return model


def one_round(
    train: LabelledImages, judge: LabelledImages, seed: int
) -> dict[str, Result]:
    """Train and test every contender with one seed."""
    teacher: list[nn.Module] = []

    def keep(model: nn.Module) -> nn.Module:
        teacher.append(model)
        return model

    contenders: dict[str, Callable[[], nn.Module]] = {
        "lesson's loop, 15 epochs": lambda: lesson(train, seed),
        "ViT by recipes['best']": lambda: vit(train, seed, "best"),
        "ViT by recipes['quick']": lambda: vit(train, seed, "quick"),
        "small CNN by recipes['cnn']": lambda: keep(cnn(train, seed)),
        "ViT, 'best', CNN as teacher": lambda: vit(train, seed, "best", *teacher),
    }
    results = {}
    for name, run in contenders.items():
        start = perf_counter()
        model = run()
        seconds = perf_counter() - start
        results[name] = Result(evaluate(model.eval(), judge).accuracy, seconds)
    return results


def main() -> None:
    """Run one round a seed, print the table as it grows and at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    digits, _ = load_digits()
    _, test = load_mnist(mnist_folder())
    rounds: list[dict[str, Result]] = []
    for seed in range(options.seeds):
        train, judge = (
            split(digits, 1000, seed=seed) if options.choose else (digits, test)
        )
        rounds.append(one_round(train, judge, seed))
        print(f"seed {seed}: {rounds[-1]}", flush=True)
    print(
        f"{len(train.labels):,} digits to train on, {len(judge.labels):,} to judge by, "
        f"{options.seeds} seeds, {machine()}"
    )
    print(f"{'':30}{'accuracy':>10}{'± std':>8}{'seconds':>9}{'time ratio':>12}")
    for name in rounds[0]:
        accuracies = [r[name].accuracy for r in rounds]
        seconds = [r[name].seconds for r in rounds]
        ratios = [r[name].seconds / next(iter(r.values())).seconds for r in rounds]
        print(
            f"{name:30}{statistics.mean(accuracies):10.4f}"
            f"{statistics.stdev(accuracies):8.4f}{statistics.median(seconds):9.1f}"
            f"{statistics.median(ratios):12.3f} ({min(ratios):.2f}-{max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
