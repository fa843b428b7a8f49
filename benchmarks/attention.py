"""How attention's time and memory grow with the number of tokens.

    python benchmarks/attention.py

One layer of ViT-Base's attention (768 wide, 12 heads) on one image, at 49, 196, 784 and
3,136 tokens, by both of its paths: the explicit one, which makes the table of weights,
and the fused kernel, which does not. Each path's times are fitted by a + b·N + c·N²;
printed is what share of the time at 3,136 tokens the N² term has. Memory is the most
that a process of its own takes beyond what it had before the call.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from pathlib import Path

import numpy as np
import torch
from turns import machine, spread, take_turns

from course_utils.attention import MultiHeadAttention

TOKENS = (49, 196, 784, 3136)
WIDTH, HEADS = 768, 12


def tokens(N: int) -> torch.Tensor:
    """Make one image's tokens, (1, N, D)."""
    return torch.randn(1, N, WIDTH, generator=torch.Generator().manual_seed(0))


def peak_memory(N: int, fused: bool) -> int:
    """Measure in a fresh process how many bytes one call takes at its worst."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown, (N, fused))


def _grown(N: int, fused: bool) -> int:
    layer, x = MultiHeadAttention(WIDTH, HEADS), tokens(N)
    with torch.inference_mode():
        layer(tokens(16), fused=fused)  # what the first call sets up for good
        before = _highest()
        layer(x, fused=fused)
        return _highest() - before


def _highest() -> int:
    """Read the most bytes that this process ever held; on Linux.

    `resource.getrusage` would answer for the process that started this one as well.
    """
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def fit(times: list[float]) -> np.ndarray:
    """Fit a + b·N + c·N², none below zero, to times; relative errors count alike."""
    N = np.array(TOKENS, float)
    powers = np.stack([N**0, N, N**2], axis=1) / np.array(times)[:, None]
    # Four points and three terms: leave out, in turn, the terms that come out negative.
    kept = [0, 1, 2]
    while True:
        part = np.linalg.lstsq(powers[:, kept], np.ones(len(N)), rcond=None)[0]
        if (part >= 0).all():
            break
        kept.pop(int(part.argmin()))
    terms = np.zeros(3)
    terms[kept] = part
    return terms


@torch.inference_mode()
def main() -> None:
    """Measure both paths at each length, print the table and the fits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    layer = MultiHeadAttention(WIDTH, HEADS).eval()
    medians: dict[bool, list[float]] = {False: [], True: []}
    print(f"attention, 1 image, {WIDTH} wide, {HEADS} heads, {machine()}")
    print(
        f"{'tokens':>7}{'path':>10}{'median ms':>11}{'10-90 % ms':>19}"
        f"{'fused/explicit':>16}{'memory MiB':>12}{'weights MiB':>13}"
    )
    for N in TOKENS:
        x = tokens(N)
        times = take_turns(
            {
                "explicit": lambda x=x: layer(x, fused=False),
                "fused": lambda x=x: layer(x, fused=True),
            },
            rounds,
        )
        pairs = zip(times["fused"], times["explicit"], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        for name, values in times.items():
            fused = name == "fused"
            median = statistics.median(values)
            medians[fused].append(median)
            low, high = spread(values)
            weights = 0 if fused else HEADS * N * N * 4
            print(
                f"{N:7}{name:>10}{1e3 * median:11.2f}"
                f"{1e3 * low:10.2f} -{1e3 * high:7.2f}"
                f"{f'{ratio:.2f}' if fused else '':>16}"
                f"{peak_memory(N, fused) / 2**20:12.1f}{weights / 2**20:13.1f}"
            )
    for fused, times in medians.items():
        a, b, c = fit(times)
        share = c * TOKENS[-1] ** 2 / (a + b * TOKENS[-1] + c * TOKENS[-1] ** 2)
        print(
            f"{'fused' if fused else 'explicit'}: "
            f"{1e3 * a:.2f} ms + {1e6 * b:.2f} µs·N "
            f"+ {1e9 * c:.2f} ns·N²; at N = {TOKENS[-1]:,} the N² term is "
            f"{share:.0%} of the time"
        )


if __name__ == "__main__":
    main()
