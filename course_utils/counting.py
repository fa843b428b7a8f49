"""Chapter 7: what a Vision Transformer costs, by formula, before it is built.

Axes: B batch, C channels, P patch (P high, Q wide), N patches, T tokens, D width,
M the MLP's hidden width, A heads, L blocks, K classes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch

from course_utils.patches import as_pair
from course_utils.vit import ViTConfig


@dataclass(frozen=True)
class Cost:
    """What one part of a model takes.

    Attributes:
        parameters: learned numbers; a fixed position table is not learned.
        multiply_adds: those of the matrix products in one forward pass, each two
            floating-point operations. LayerNorm, softmax, GELU and sums are left out,
            as in published counts.
        activation_bytes: what the forward pass keeps for the backward pass, without
            weights and attention maps: the inputs of each linear layer, LayerNorm,
            LayerScale and GELU; queries, keys and values; and a mean and a deviation
            for each token that LayerNorm reads. Dropout is taken as off.
        attention_bytes: the attention maps (B, A, T, T), which the explicit path
            keeps too. The fused path keeps one float32 a row, (B, A, T), instead.
    """

    parameters: int
    multiply_adds: int
    activation_bytes: int
    attention_bytes: int

    def __add__(self, other: Cost) -> Cost:
        return _total([self, other])

    def __mul__(self, times: int) -> Cost:
        return Cost(*(times * number for number in _numbers(self)))

    __rmul__ = __mul__


@dataclass(frozen=True, repr=False)
class Costs(Cost):
    """What a whole model takes, and what each of its parts does.

    Shown as a table, in a terminal and in a notebook. `costs["block.attn.qkv"]` is
    the cost of one part, `costs["block.attn"]` the sum of those whose names go on
    from there, `costs["block"]` one encoder block and `costs["blocks"]` all of them.

    Attributes:
        parts: name → cost. Names are those of the model's modules; those that begin
            with "block." are for one block. Parts the model does not have cost 0.
        depth: L.
        caption: what was counted.
    """

    parts: dict[str, Cost]
    depth: int
    caption: str

    def __getitem__(self, name: str) -> Cost:
        """Look up the cost of a part, or of several.

        Raises:
            KeyError: if no part is called so.
        """
        if name == "blocks":
            return self.depth * self["block"]
        found = [
            cost
            for part, cost in self.parts.items()
            if f"{part}.".startswith(f"{name}.")
        ]
        if not found:
            known = ", ".join([*self.parts, "block", "blocks"])
            raise KeyError(f"no part is called {name!r}; choose one of {known}")
        return _total(found)

    def __repr__(self) -> str:
        rows = [_HEADER, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                [name.ljust(widths[0])]
                + [text.rjust(w) for text, w in zip(numbers, widths[1:], strict=True)]
            )
            for name, *numbers in rows
        ]
        return "\n".join([self.caption, *lines])

    def _repr_html_(self) -> str:
        header = "".join(
            f'<th scope="col" style="text-align:{side}">{text}</th>'
            for text, side in zip(_HEADER, ["left"] + 4 * ["right"], strict=True)
        )
        body = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(name)}</th>'
            + "".join(f'<td style="text-align:right">{text}</td>' for text in numbers)
            + "</tr>"
            for name, *numbers in self._rows()
        )
        return (
            f"<table><caption>{html.escape(self.caption)}</caption>"
            f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _rows(self) -> list[list[str]]:
        """The table's cells: every part that costs anything, and the sums."""
        *_, last = (name for name in self.parts if name.startswith("block."))
        named: list[tuple[str, Cost]] = []
        for name, cost in self.parts.items():
            if any(_numbers(cost)):
                named.append((name, cost))
            if name == last:
                named.append(("block", self["block"]))
                named.append((f"blocks = {self.depth} × block", self["blocks"]))
        named.append(("total", self))
        return [[name, *(f"{n:,}" for n in _numbers(cost))] for name, cost in named]


def count(
    config: ViTConfig, *, batch: int = 1, dtype: torch.dtype = torch.float32
) -> Costs:
    """Count what a model takes, part by part, from its configuration alone.

    The formulas are for the full forward pass, all T tokens through every block, as
    `forward_features` computes it. `forward` reads only [CLS] where the head does, and
    then saves most of the last block.

    Args:
        config: of the model.
        batch: B, how many images go through at once. Parameters do not depend on it.
        dtype: of weights and activations; a number takes `dtype.itemsize` bytes.

    Raises:
        ValueError: if `batch` is below 1.
        TypeError: if `batch` is not a whole number, or `dtype` no floating-point type.
    """
    if not isinstance(batch, int) or isinstance(batch, bool):
        raise TypeError(f"batch is {batch!r}; give a whole number of images")
    if batch < 1:
        raise ValueError(f"batch is {batch}; give at least 1 image")
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(
            f"dtype is {dtype!r}; give a floating-point type, such as torch.float32 "
            "or torch.bfloat16"
        )
    c = config
    (H, W), (P, Q) = as_pair(c.img_size), as_pair(c.patch_size)
    B, C, K, D = batch, c.in_chans, c.num_classes, c.embed_dim
    L, A, M = c.depth, c.num_heads, round(c.embed_dim * c.mlp_ratio)
    N, T = math.prod(c.grid), c.num_tokens

    def part(
        parameters: int, multiply_adds: int = 0, kept: int = 0, maps: int = 0
    ) -> Cost:
        size = B * dtype.itemsize
        return Cost(parameters, B * multiply_adds, size * kept, size * maps)

    def linear(tokens: int, inputs: int, outputs: int, bias: bool = True) -> Cost:
        weights = inputs * outputs
        return part(weights + bias * outputs, tokens * weights, tokens * inputs)

    nothing = part(0)
    norm = part(2 * D, kept=T * D + 2 * T)
    scale = nothing if c.layer_scale is None else part(D, kept=T * D)
    parts = {
        "patch_embed": linear(N, P * Q * C, D),
        "cls_token": part(D * c.num_prefix),
        "pos_embed": part(T * D * (c.positions == "learned")),
        "block.norm1": norm,
        "block.attn.qkv": linear(T, D, 3 * D, c.qkv_bias),
        "block.attn.scores": part(0, T * T * D, 2 * T * D, A * T * T),
        "block.attn.mix": part(0, T * T * D, T * D),
        "block.attn.proj": linear(T, D, D),
        "block.ls1": scale,
        "block.norm2": norm,
        "block.mlp.fc1": linear(T, D, M),
        "block.mlp.act": part(0, kept=T * M),
        "block.mlp.fc2": linear(T, M, D),
        "block.ls2": scale,
        "norm": norm if c.final_norm else nothing,
        "head": linear(1, D, K) if K else nothing,
    }
    total = _total(
        cost * (L if name.startswith("block.") else 1) for name, cost in parts.items()
    )
    caption = (
        f"{H}×{W} pixels in {P}×{Q} patches: {T} tokens, {D} wide; "
        f"{B} image{'s' if B > 1 else ''} in {str(dtype).removeprefix('torch.')}"
    )
    return Costs(**vars(total), parts=parts, depth=L, caption=caption)


_HEADER = [
    "part",
    "parameters",
    "multiply-adds",
    "activation bytes",
    "attention bytes",
]


def _numbers(cost: Cost) -> tuple[int, ...]:
    return tuple(getattr(cost, field.name) for field in fields(Cost))


def _total(costs: Iterable[Cost]) -> Cost:
    columns = zip(*map(_numbers, costs), strict=True)
    return Cost(*(sum(column) for column in columns))
