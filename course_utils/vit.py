"""Chapter 6: the whole Vision Transformer, from pixels to logits.

Names are timm's, so its published weights load without renaming.
Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words".

Axes: B batch, C channels, H W image, h w grid, N patches, T tokens, D width, K classes.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from course_utils.embedding import PatchEmbedding
from course_utils.encoder import Activation, EncoderBlock, LayerScale, Norm
from course_utils.patches import Size, as_pair, patch_grid
from course_utils.positions import prepend_cls, resize_positions, sincos2d
from course_utils.record import Record, keep, within

Pool = Literal["cls", "mean"]
Positions = Literal["learned", "sincos2d", "none"]

# embed_dim, depth, num_heads: Ti and S from DeiT (Touvron et al. 2021), B, L and H
# from the ViT paper, table 1. The patch size follows the name: "B/16".
VARIANTS = {
    "Ti": (192, 12, 3),
    "S": (384, 12, 6),
    "B": (768, 12, 12),
    "L": (1024, 24, 16),
    "H": (1280, 32, 16),
}


@dataclass(frozen=True)
class ViTConfig:
    """Every choice that makes one Vision Transformer; checked when it is made.

    Sizes may be given as one number or a (height, width) pair and are kept as pairs.
    The defaults are ViT-Base/16.

    Attributes:
        img_size: H, W in pixels.
        patch_size: P in pixels; must divide the image.
        in_chans: C, 3 for colour and 1 for grey.
        num_classes: K; 0 leaves out the head, and the model gives features (B, D).
        embed_dim: D, the width of a token.
        depth: how many encoder blocks.
        num_heads: A; must divide D.
        mlp_ratio: the MLP's hidden width as a multiple of D.
        qkv_bias: whether queries, keys and values have a bias.
        class_token: whether a [CLS] token stands in front.
        pool: what the head reads, "cls" or the "mean" of the patches without [CLS].
        positions: "learned", fixed "sincos2d", or "none".
        norm: LayerNorm before each branch ("pre") or after each addition ("post").
        final_norm: whether a LayerNorm stands before the head.
        layer_norm_eps: the small number under LayerNorm's square root.
        layer_scale: the starting value of LayerScale, or None for no LayerScale.
        activation: exact "gelu", or its tanh approximation "gelu_tanh".
        drop_rate: dropout on tokens and in branches.
        attn_drop_rate: dropout on attention weights.
    """

    img_size: Size = (224, 224)
    patch_size: Size = (16, 16)
    in_chans: int = 3
    num_classes: int = 1000
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    class_token: bool = True
    pool: Pool = "cls"
    positions: Positions = "learned"
    norm: Norm = "pre"
    final_norm: bool = True
    layer_norm_eps: float = 1e-6
    layer_scale: float | None = None
    activation: Activation = "gelu"
    drop_rate: float = 0.0
    attn_drop_rate: float = 0.0

    def __post_init__(self) -> None:
        """Check every value; ValueError or TypeError says what does not fit."""
        for name in ("img_size", "patch_size"):
            object.__setattr__(self, name, as_pair(getattr(self, name), name))
        patch_grid(self.img_size, self.patch_size)
        for name, least in [
            ("in_chans", 1),
            ("num_classes", 0),
            ("embed_dim", 1),
            ("depth", 1),
            ("num_heads", 1),
        ]:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}; give a whole number")
            if value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        for name, kinds in [
            ("pool", Pool),
            ("positions", Positions),
            ("norm", Norm),
            ("activation", Activation),
        ]:
            value, allowed = getattr(self, name), get_args(kinds)
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; choose one of {allowed}")
        for name in ("drop_rate", "attn_drop_rate"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 up to 1")
        for name in ("mlp_ratio", "layer_norm_eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.embed_dim % self.num_heads:
            raise ValueError(
                f"embed_dim {self.embed_dim} cannot be shared by {self.num_heads} "
                f"heads: choose a multiple of {self.num_heads}, such as "
                f"{self.embed_dim + -self.embed_dim % self.num_heads}"
            )
        if self.positions == "sincos2d" and self.embed_dim % 4:
            raise ValueError(
                f"embed_dim is {self.embed_dim}; positions='sincos2d' needs a "
                "multiple of 4"
            )
        if self.pool == "cls" and not self.class_token:
            raise ValueError(
                "pool='cls' reads a [CLS] token that class_token=False leaves out; "
                "use pool='mean'"
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> ViTConfig:
        """Look up a known configuration, with changes by keyword.

        Args:
            name: "digits" (the course's small model), "micro" (for tests), or a
                variant and patch size such as "Ti/16", "B/32" or "H/14".
            **changes: fields to set otherwise, such as `num_classes=5`.

        Raises:
            ValueError: if the name is unknown.
        """
        digits = {
            "img_size": 28,
            "patch_size": 7,
            "in_chans": 1,
            "num_classes": 10,
            "embed_dim": 64,
            "depth": 2,
            "num_heads": 4,
        }
        micro = digits | {"img_size": 8, "patch_size": 4, "embed_dim": 16}
        fields: dict[str, Any] | None = {"digits": digits, "micro": micro}.get(name)
        if fields is None:
            variant, _, patch = name.partition("/")
            if variant not in VARIANTS or not patch.isdecimal():
                raise ValueError(
                    f"no preset is called {name!r}; use 'digits', 'micro', or one of "
                    f"{', '.join(VARIANTS)} with a patch size, such as 'B/16'"
                )
            width, depth, heads = VARIANTS[variant]
            fields = {
                "patch_size": int(patch),
                "embed_dim": width,
                "depth": depth,
                "num_heads": heads,
            }
        return cls(**(fields | changes))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches, (h, w)."""
        return patch_grid(self.img_size, self.patch_size)

    @property
    def num_prefix(self) -> int:
        """How many tokens stand in front of the patches."""
        return int(self.class_token)

    @property
    def num_tokens(self) -> int:
        """T, the length of the sequence."""
        return self.num_prefix + math.prod(self.grid)


class VisionTransformer(nn.Module):
    """Cut, embed, prepend [CLS], add positions, encode, read, classify."""

    def __init__(
        self, config: ViTConfig, generator: torch.Generator | None = None
    ) -> None:
        """Build the model with fresh random weights.

        Args:
            config: what to build.
            generator: where the random numbers come from (a CPU generator); PyTorch's
                global one by default.
        """
        super().__init__()
        self.config = c = config
        # Build without memory or random numbers; `reset` then draws each weight once.
        with torch.device("meta"):
            self.patch_embed = PatchEmbedding(c.patch_size, c.in_chans, c.embed_dim)
            self.cls_token = (
                nn.Parameter(torch.empty(1, 1, c.embed_dim)) if c.class_token else None
            )
            rows = torch.empty(1, c.num_tokens, c.embed_dim)
            if c.positions == "learned":
                self.pos_embed: Tensor | None = nn.Parameter(rows)
            else:
                fixed = rows if c.positions == "sincos2d" else None
                self.register_buffer("pos_embed", fixed)
            self.pos_drop = nn.Dropout(c.drop_rate)
            self.blocks = nn.ModuleList(
                EncoderBlock(
                    c.embed_dim,
                    c.num_heads,
                    round(c.embed_dim * c.mlp_ratio),
                    norm=c.norm,
                    qkv_bias=c.qkv_bias,
                    activation=c.activation,
                    layer_norm_eps=c.layer_norm_eps,
                    layer_scale=c.layer_scale,
                    drop=c.drop_rate,
                    attn_drop=c.attn_drop_rate,
                )
                for _ in range(c.depth)
            )
            self.norm = (
                nn.LayerNorm(c.embed_dim, eps=c.layer_norm_eps)
                if c.final_norm
                else nn.Identity()
            )
            self.head = (
                nn.Linear(c.embed_dim, c.num_classes)
                if c.num_classes
                else nn.Identity()
            )
        device = torch.empty(0).device  # the default one
        if device.type != "meta":
            self.to_empty(device="cpu")
            self.reset(generator)
            self.to(device)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw fresh weights, as the ViT paper's code does but for the head.

        Linear layers: Xavier uniform, zero bias. Patch embedding: normal with variance
        1 / (C*P*Q). Positions: normal(0.02). [CLS]: zero. Head: normal(0.02), not
        zero, so that an untrained model already tells images apart.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, LayerScale):
                nn.init.constant_(module.gamma, module.init)
        proj = self.patch_embed.proj
        fan_in = proj.weight[0].numel()
        nn.init.normal_(proj.weight, std=fan_in**-0.5, generator=generator)
        if proj.bias is not None:
            nn.init.zeros_(proj.bias)
        if self.cls_token is not None:
            nn.init.zeros_(self.cls_token)
        if self.config.positions == "learned" and self.pos_embed is not None:
            nn.init.normal_(self.pos_embed, std=0.02, generator=generator)
        elif self.pos_embed is not None:
            c = self.config
            self.pos_embed.copy_(sincos2d(c.grid, c.embed_dim, c.num_prefix))
        if isinstance(self.head, nn.Linear):
            nn.init.normal_(self.head.weight, std=0.02, generator=generator)

    def embed(self, images: Tensor, record: Record | None = None) -> Tensor:
        """Turn images (B, C, H, W) into the encoder's input (B, T, D)."""
        self._check(images)
        x = keep(record, "patch_embed", self.patch_embed(images))  # (B, N, D)
        if self.cls_token is not None:
            x = keep(record, "cls", prepend_cls(x, self.cls_token))  # (B, T, D)
        if self.pos_embed is not None:
            x = x + self.pos_embed  # (B, T, D) + (1, T, D): row i on token i
        return keep(record, "tokens", self.pos_drop(x))

    def forward_features(
        self,
        images: Tensor,
        record: Record | None = None,
        *,
        read: int | None = None,
    ) -> Tensor:
        """Encode images (B, C, H, W) as tokens (B, T, D), after the final norm.

        With `read`, only the first `read` tokens come out, the same as without: the
        last block need not compute what nobody reads.
        """
        x = self.embed(images, record)
        *blocks, last = self.blocks
        for i, block in enumerate(blocks):
            x = block(x, within(record, f"blocks.{i}"))
        x = last(x, within(record, f"blocks.{len(blocks)}"), read=read)
        return keep(record, "norm", self.norm(x))

    def forward_head(self, x: Tensor, record: Record | None = None) -> Tensor:
        """Read logits (B, K) from encoded tokens (B, T, D)."""
        if self.config.pool == "cls":
            pooled = x[:, 0]  # (B, D)
        else:
            pooled = x[:, self.config.num_prefix :].mean(dim=1)  # (B, D)
        return keep(record, "logits", self.head(keep(record, "pooled", pooled)))

    def forward(self, images: Tensor, return_attention: bool = False) -> Any:
        """Classify images.

        Args:
            images: (B, C, H, W), floating point, of the size in the config.
            return_attention: give the attention weights as well.

        Returns:
            logits (B, K), before the softmax; with `return_attention` a pair of the
            logits and a list with one (B, A, T, T) tensor a block.

        Raises:
            TypeError: if the images are not floating point.
            ValueError: if their shape is not the configured one.
        """
        if return_attention:
            record = Record(only="weights")
            logits = self.forward_head(self.forward_features(images, record))
            return logits, list(record.tensors.values())
        # The head reads [CLS] alone, so the last block makes nothing but [CLS].
        read = 1 if self.config.pool == "cls" else None
        return self.forward_head(self.forward_features(images, read=read))

    def intermediates(self, images: Tensor) -> dict[str, Tensor]:
        """Name every intermediate of one forward pass, in the order computed.

        Args:
            images: (B, C, H, W).

        Returns:
            "patch_embed" (B, N, D), "cls" (if there is a [CLS] token) and "tokens"
            (B, T, D); for each block i "blocks.i." with "norm1", "attn.weights"
            (B, A, T, T), "attn", "add1", "norm2", "mlp.hidden" (B, T, ratio*D), "mlp"
            and "add2", where with post-norm each norm follows its addition; then
            "norm" (B, T, D), "pooled" (B, D) and "logits" (B, K).
        """
        record = Record()
        self.forward_head(self.forward_features(images, record), record)
        return record.tensors

    def at_size(self, img_size: Size, *, antialias: bool = False) -> VisionTransformer:
        """Copy this model for images of another size, with the same patch size.

        Weights are copied; learned positions are interpolated to the new grid (see
        `positions.resize_positions`) and fixed ones computed anew.

        Raises:
            ValueError: if the patch does not divide the new size.
        """
        old, new = self.config, replace(self.config, img_size=img_size)
        model = copy.deepcopy(self)
        model.config = new
        if model.pos_embed is None:
            return model
        with torch.no_grad():
            if old.positions == "learned":
                rows = resize_positions(
                    model.pos_embed,
                    old.grid,
                    new.grid,
                    num_prefix=old.num_prefix,
                    antialias=antialias,
                )
                model.pos_embed = nn.Parameter(rows, model.pos_embed.requires_grad)
            else:
                rows = sincos2d(new.grid, new.embed_dim, new.num_prefix)
                model.pos_embed = rows.to(model.pos_embed)
        return model

    def _check(self, images: Tensor) -> None:
        c = self.config
        shape = tuple(images.shape)
        if images.ndim != 4:
            raise ValueError(
                f"images have shape {shape}; this model expects (B, {c.in_chans}, H, W)"
                ". For a single image, add the batch axis with images[None]"
            )
        if images.shape[1] != c.in_chans:
            raise ValueError(
                f"images of shape {shape} have {images.shape[1]} channels; this model "
                f"expects {c.in_chans}. Convert the images, or build the model with "
                f"in_chans={images.shape[1]}"
            )
        if not images.is_floating_point():
            raise TypeError(
                f"images are {images.dtype}; expected floating point. "
                "For pixels 0 to 255 use images.float() / 255"
            )
        H, W = as_pair(c.img_size)
        if images.shape[2:] != (H, W):
            h, w = images.shape[2:]
            raise ValueError(
                f"images are {h}x{w} pixels; this model has positions for {H}x{W}. "
                f"Resize the images, or use model.at_size(({h}, {w})), a copy of the "
                "model with its positions interpolated"
            )
