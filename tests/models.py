"""Small ViTs that tests share: of every kind, with weights that leave nothing out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_utils.vit import VisionTransformer, ViTConfig

MICRO: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"norm": "post", "final_norm": False},
    "mean": {"pool": "mean"},
    "mean without [CLS]": {"pool": "mean", "class_token": False},
    "fixed positions": {"positions": "sincos2d"},
    "no positions": {"positions": "none"},
    "layer scale": {"layer_scale": 0.3},
    "rectangle": {"img_size": (16, 8), "patch_size": (4, 2), "in_chans": 3},
    "no query, key and value bias": {"qkv_bias": False},
    "tanh": {"activation": "gelu_tanh"},
    "features": {"num_classes": 0},
    "more than 64 tokens": {"img_size": 32},
}
kinds = pytest.mark.parametrize("changes", MICRO.values(), ids=MICRO)


def fresh(preset: str = "micro", seed: int = 0, **changes: Any) -> VisionTransformer:
    generator = torch.Generator().manual_seed(seed)
    return VisionTransformer(ViTConfig.preset(preset, **changes), generator).eval()


def lively(preset: str = "micro", **changes: Any) -> VisionTransformer:
    """A model in double precision whose every weight, norms' too, is its own."""
    model = fresh(preset, **changes).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            change = torch.randn(parameter.shape, generator=generator).double()
            parameter.add_(change / 4 if parameter.ndim == 1 else change / 10)
    return model


def pixels(model: VisionTransformer, B: int = 3, seed: int = 2) -> Tensor:
    """Images that fit the model."""
    size = (B, model.config.in_chans, *model.config.img_size)  # type: ignore[misc]
    images = torch.rand(size, generator=torch.Generator().manual_seed(seed))
    return images.to(model.patch_embed.proj.weight)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
