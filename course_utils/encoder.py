"""Chapter 5: the encoder block, attention and an MLP around a residual stream.

Axes: B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from course_utils.attention import MultiHeadAttention
from course_utils.record import Record, keep, within

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "gelu_tanh"]


class MLP(nn.Module):
    """Two linear layers with a GELU between, applied to each token alone."""

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        *,
        activation: Activation = "gelu",
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        if activation not in get_args(Activation):
            raise ValueError(
                f"activation is {activation!r}; choose one of {get_args(Activation)}"
            )
        self.fc1 = nn.Linear(embed_dim, hidden_dim)
        self.act = nn.GELU("tanh" if activation == "gelu_tanh" else "none")
        self.fc2 = nn.Linear(hidden_dim, embed_dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor, record: Record | None = None) -> Tensor:
        """Transform tokens (B, T, D) into (B, T, D) through a wider hidden layer."""
        hidden = keep(record, "hidden", self.act(self.fc1(x)))
        out: Tensor = self.drop(self.fc2(self.drop(hidden)))
        return out


class LayerScale(nn.Module):
    """One learned factor a feature on a residual branch (Touvron et al. 2021, CaiT)."""

    def __init__(self, embed_dim: int, init: float) -> None:
        super().__init__()
        self.init = init
        self.gamma = nn.Parameter(torch.full((embed_dim,), init))

    def forward(self, x: Tensor) -> Tensor:
        """Scale x (..., D) feature by feature."""
        return x * self.gamma


class EncoderBlock(nn.Module):
    """Attention and an MLP, each added to the stream of tokens it reads from.

    With `norm="pre"`, as in ViT, each branch normalises what it reads and the stream
    itself passes untouched. With `norm="post"`, as in the first Transformer, the
    stream is normalised after each addition.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        hidden_dim: int,
        *,
        norm: Norm = "pre",
        qkv_bias: bool = True,
        activation: Activation = "gelu",
        layer_norm_eps: float = 1e-6,
        layer_scale: float | None = None,
        drop: float = 0.0,
        attn_drop: float = 0.0,
    ) -> None:
        super().__init__()
        if norm not in get_args(Norm):
            raise ValueError(f"norm is {norm!r}; choose one of {get_args(Norm)}")

        def scale() -> nn.Module:
            if layer_scale is None:
                return nn.Identity()
            return LayerScale(embed_dim, layer_scale)

        self.norm = norm
        self.norm1 = nn.LayerNorm(embed_dim, eps=layer_norm_eps)
        self.attn = MultiHeadAttention(
            embed_dim,
            num_heads,
            qkv_bias=qkv_bias,
            attn_drop=attn_drop,
            proj_drop=drop,
        )
        self.ls1 = scale()
        self.norm2 = nn.LayerNorm(embed_dim, eps=layer_norm_eps)
        self.mlp = MLP(embed_dim, hidden_dim, activation=activation, drop=drop)
        self.ls2 = scale()

    def forward(
        self, x: Tensor, record: Record | None = None, *, read: int | None = None
    ) -> Tensor:
        """Transform tokens (B, T, D) into tokens (B, T, D).

        Args:
            x: (B, T, D).
            record: where to keep the block's intermediates.
            read: how many tokens, from the front, anyone will read. All tokens are
                looked at, but only these come out; all by default.
        """
        if self.norm == "pre":
            normed = keep(record, "norm1", self.norm1(x))
            x = keep(record, "add1", x[:, :read] + self._attend(normed, record, read))
            normed = keep(record, "norm2", self.norm2(x))
            x = keep(record, "add2", x + self._think(normed, record))
        else:
            x = keep(record, "add1", x[:, :read] + self._attend(x, record, read))
            x = keep(record, "norm1", self.norm1(x))
            x = keep(record, "add2", x + self._think(x, record))
            x = keep(record, "norm2", self.norm2(x))
        return x

    def _attend(self, x: Tensor, record: Record | None, read: int | None) -> Tensor:
        mixed = self.attn(x, within(record, "attn"), read=read)
        return keep(record, "attn", self.ls1(mixed))

    def _think(self, x: Tensor, record: Record | None) -> Tensor:
        return keep(record, "mlp", self.ls2(self.mlp(x, within(record, "mlp"))))
