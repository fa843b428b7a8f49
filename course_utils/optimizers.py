"""Chapter 6: AdamW, and Muon, which needs fewer epochs.

Axes: D width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def adamw(
    model: nn.Module,
    lr: float,
    weight_decay: float,
    *,
    without: frozenset[str] = frozenset(),
) -> torch.optim.AdamW:
    """Make AdamW (Loshchilov & Hutter 2019) with decay on weight matrices only.

    Args:
        model: whose parameters to train; frozen ones are left out.
        lr: learning rate.
        weight_decay: on all but biases, norms, [CLS] and positions.
        without: names of parameters that another optimiser trains.
    """
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, p in model.named_parameters():
        if not p.requires_grad or name in without:
            continue
        decays = p.ndim >= 2 and name not in ("cls_token", "pos_embed")
        (matrices if decays else others).append(p)
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    # One fused call for all parameters: a third of a small model's step on a CPU.
    return torch.optim.AdamW(groups, lr=lr, fused=True)


def muon_names(model: nn.Module) -> frozenset[str]:
    """Name the parameters that Muon is for: the matrices inside encoder blocks."""
    return frozenset(
        name
        for name, p in model.named_parameters()
        if name.startswith("blocks.") and p.ndim == 2 and p.requires_grad
    )


class Muon(torch.optim.Optimizer):
    """Momentum, with each update made orthogonal: it moves in all directions alike.

    The gradient of a weight matrix mostly pushes in a few directions. Muon replaces the
    update by the nearest matrix whose singular values are all one, or near one, so that
    the rare directions are learned as fast. A query-key-value matrix is three matrices.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
    networks"; updates are scaled as in Liu et al. 2025, "Muon is Scalable for LLM
    Training", so that AdamW's learning rates suit. `torch.optim.Muon` computes the same
    in bfloat16, one matrix after the other, which a CPU takes many times as long for.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        """Take on the matrices inside the model's encoder blocks.

        Raises:
            ValueError: if the model has none.
        """
        names = muon_names(model)
        if not names:
            raise ValueError(
                f"{type(model).__name__} has no matrices in encoder blocks, named "
                "'blocks.…', for Muon to train; use optimizer='adamw'"
            )
        kinds: dict[tuple[int, torch.Size], list[nn.Parameter]] = {}
        for name, p in model.named_parameters():
            if name in names:
                parts = 3 if name.endswith("qkv.weight") else 1
                kinds.setdefault((parts, p.shape), []).append(p)
        groups = [{"params": p, "parts": parts} for (parts, _), p in kinds.items()]
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the matrices; those of one shape are taken together."""
        for group in self.param_groups:
            updates = torch.stack([self._momentum(p, group) for p in group["params"]])
            split = updates.unflatten(1, (group["parts"], -1))  # (n, parts, rows, D)
            made = orthogonal(split)
            rate = group["lr"] * 0.2 * math.sqrt(max(made.shape[-2:]))
            for p, update in zip(group["params"], made.flatten(1, 2), strict=True):
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(rate * update)

    def _momentum(self, p: nn.Parameter, group: dict[str, Any]) -> Tensor:
        """Average the gradients so far, and look one step ahead (Nesterov)."""
        gradient = torch.zeros_like(p) if p.grad is None else p.grad
        average = self.state[p].setdefault("average", torch.zeros_like(p))
        average.lerp_(gradient, 1 - group["momentum"])
        return gradient.lerp(average, group["momentum"])


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Bring the singular values of matrices (..., rows, columns) near one.

    A few steps of an iteration of Newton and Schulz, on sums and products alone, with
    the coefficients of Jordan et al. 2024, which trade exactness for speed: values
    between about 0.7 and 1.2 come out. The singular vectors stay.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x
