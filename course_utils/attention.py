"""Chapter 5: every token looks at every token.

Axes: B batch, A heads, T tokens, D width.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.record import Record, keep

# Below this many tokens two plain matrix products beat the fused kernel on a CPU.
FEW_TOKENS = 64


def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """Say how much each query reads from each key: softmax(q kᵀ / √width).

    Without the square root of the head width, scores grow with the width and the
    softmax saturates. Source: Vaswani et al. 2017, eq. 1.

    Args:
        q: (..., T, width) queries.
        k: (..., T, width) keys.

    Returns:
        (..., T, T); each row sums to one over the keys.
    """
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (..., T, T)
    return scores.softmax(dim=-1)


class MultiHeadAttention(nn.Module):
    """Self-attention in A heads of width D / A, without a mask.

    There are two paths to the same numbers. The explicit one makes the weights and
    can hand them out; the fused one, PyTorch's kernel, never stores them.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ) -> None:
        """Build the layer.

        Raises:
            ValueError: if there is no head, or the heads cannot share the width evenly.
        """
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads is {num_heads}; it must be at least 1")
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim {embed_dim} cannot be shared by {num_heads} heads: "
                f"choose a multiple of {num_heads}, such as "
                f"{embed_dim + -embed_dim % num_heads}, or another number of heads"
            )
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(
        self,
        x: Tensor,
        record: Record | None = None,
        *,
        read: int | None = None,
        fused: bool | None = None,
    ) -> Tensor:
        """Mix tokens (B, T, D) into tokens (B, T, D).

        Args:
            x: (B, T, D).
            record: where to keep "weights", (B, A, T, T), taken before dropout;
                asking for it takes the explicit path.
            read: only the first `read` tokens ask, and come out; all by default.
            fused: force one path; by default the quicker one for this device.
        """
        B, T, D = x.shape
        A = self.num_heads
        if fused is None:
            fused = T > FEW_TOKENS or x.device.type != "cpu"

        qkv = self.qkv(x).reshape(B, T, 3, A, D // A)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, A, T, D/A)
        q = q[:, :, :read]
        if fused and record is None:
            drop = self.attn_drop.p if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=drop)
        else:
            weights = keep(record, "weights", attention_weights(q, k))  # (B, A, T, T)
            mixed = self.attn_drop(weights) @ v  # (B, A, T, D/A)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, T, D)
        out: Tensor = self.proj_drop(self.proj(mixed))
        return out
