"""What every benchmark shares: contenders that take turns in one run, and a table.

Taking turns lets the machine's mood hit all contenders alike; the ratios are then taken
pair by pair, round by round, and are steadier than the times.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

import torch

# A benchmark is started as a script: let it see course_utils and the tests' peers.
sys.path.insert(0, str(Path(__file__).parents[1]))


def take_turns(
    contenders: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2
) -> dict[str, list[float]]:
    """Time each contender once a round, in seconds, after some rounds that don't count.

    Who goes first changes from round to round, so that nobody always finds the
    caches as the same neighbour left them.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(warm_up + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            start = perf_counter()
            contenders[name]()
            if turn >= warm_up:
                times[name].append(perf_counter() - start)
    return times


def print_table(times: Mapping[str, list[float]], base: str) -> None:
    """Print median and spread of the times, and of the ratios to `base`, in pairs."""
    print(f"{'':32}{'median ms':>10}{'10-90 % ms':>20}{'ratio':>8}{'10-90 %':>14}")
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, times[base], strict=True)]
        low, high = spread(values)
        r_low, r_high = spread(ratios)
        print(
            f"{name:32}{1e3 * statistics.median(values):10.2f}"
            f"{1e3 * low:11.2f} -{1e3 * high:7.2f}{statistics.median(ratios):8.3f}"
            f"{r_low:8.2f} -{r_high:5.2f}"
        )


def spread(values: list[float]) -> tuple[float, float]:
    """Give the values that a tenth lies below, and a tenth above."""
    deciles = statistics.quantiles(values, n=10)
    return deciles[0], deciles[-1]


def peak(side: int = 2048, repeats: int = 15) -> float:
    """Measure the machine's best matrix product in float32, in FLOP a second."""
    a, b = torch.rand(side, side), torch.rand(side, side)
    best = float("inf")
    for _ in range(repeats):
        start = perf_counter()
        a @ b
        best = min(best, perf_counter() - start)
    return 2 * side**3 / best


def machine() -> str:
    """Say what the numbers were measured on, as far as they depend on it."""
    return f"{torch.get_num_threads()} threads, torch {torch.__version__}"
