"""Independent ViTs that ours is compared with: how to import and to build them.

Each is built from our configuration, with random weights that leave nothing out:
no bias is zero, no norm is the identity.
"""

from __future__ import annotations

import importlib
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.patches import as_pair
from course_utils.vit import ViTConfig

_LIBRARIES: list[torch.library.Library] = []  # a library lasts as long as its object


def import_peer(name: str) -> ModuleType:
    """Import a module of one of the peers, whatever torchvision was built for.

    All of them import torchvision. Its compiled part must match torch's build, and next
    to a CPU-only torch often does not load; the Python part, which is all they use,
    then only needs to see that these operators exist.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        library = torch.library.Library("torchvision", "DEF")
        boxes = "Tensor dets, Tensor scores, float iou_threshold"
        for operator in ("nms", "qnms"):
            library.define(f"{operator}({boxes}) -> Tensor")
        _LIBRARIES.append(library)
    return importlib.import_module(name)


def enliven(model: nn.Module, seed: int = 0) -> nn.Module:
    """Change every weight, norms' and biases' too, without saturating anything."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            change = torch.randn(parameter.shape, generator=generator)
            wide = parameter.ndim > 1 and parameter.shape[-1] > 4
            scale = 0.5 * parameter.shape[-1] ** -0.5 if wide else 0.1
            parameter.add_(scale * change)
    return model.eval()


def timm_vit(c: ViTConfig) -> nn.Module:
    approximate = "tanh" if c.activation == "gelu_tanh" else "none"
    model: nn.Module = import_peer("timm").models.vision_transformer.VisionTransformer(
        img_size=c.img_size,
        patch_size=c.patch_size,
        in_chans=c.in_chans,
        num_classes=c.num_classes,
        global_pool={"cls": "token", "mean": "avg"}[c.pool],
        embed_dim=c.embed_dim,
        depth=c.depth,
        num_heads=c.num_heads,
        mlp_ratio=c.mlp_ratio,
        qkv_bias=c.qkv_bias,
        init_values=c.layer_scale,
        class_token=c.class_token,
        pos_embed="none" if c.positions == "none" else "learn",
        final_norm=c.final_norm,
        fc_norm=False,
        norm_layer=partial(nn.LayerNorm, eps=c.layer_norm_eps),
        act_layer=partial(nn.GELU, approximate=approximate),
    )
    return enliven(model)


def _hugging_face_sizes(c: ViTConfig) -> dict[str, Any]:
    (H, W), (P, Q) = as_pair(c.img_size), as_pair(c.patch_size)
    return {
        "image_size": H if H == W else (H, W),  # its interpolation needs numbers
        "patch_size": P if P == Q else (P, Q),
        "num_channels": c.in_chans,
        "hidden_size": c.embed_dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.num_heads,
        "layer_norm_eps": c.layer_norm_eps,
        "qkv_bias": c.qkv_bias,
        "num_labels": c.num_classes,
    }


def hugging_face_vit(c: ViTConfig) -> nn.Module:
    """Build ViTForImageClassification, or ViTModel with its pooler if no classes."""
    transformers = import_peer("transformers")
    theirs = transformers.ViTConfig(
        **_hugging_face_sizes(c), intermediate_size=round(c.embed_dim * c.mlp_ratio)
    )
    kind = "ViTForImageClassification" if c.num_classes else "ViTModel"
    return enliven(getattr(transformers, kind)(theirs))


def hugging_face_dinov2(c: ViTConfig) -> nn.Module:
    transformers = import_peer("transformers")
    theirs = transformers.Dinov2Config(
        **_hugging_face_sizes(c),
        mlp_ratio=round(c.mlp_ratio),
        layerscale_value=c.layer_scale,
    )
    return enliven(transformers.Dinov2Model(theirs))


def torchvision_vit(c: ViTConfig) -> nn.Module:
    module = import_peer("torchvision.models.vision_transformer")
    model: nn.Module = module.VisionTransformer(
        image_size=as_pair(c.img_size)[0],
        patch_size=as_pair(c.patch_size)[0],
        num_layers=c.depth,
        num_heads=c.num_heads,
        hidden_dim=c.embed_dim,
        mlp_dim=round(c.embed_dim * c.mlp_ratio),
        num_classes=c.num_classes,
        norm_layer=partial(nn.LayerNorm, eps=c.layer_norm_eps),
    )
    return enliven(model)


def vit_pytorch_vit(c: ViTConfig) -> nn.Module:
    """Build vit_pytorch's ViT; unlike the paper's, it normalises patches."""
    model: nn.Module = import_peer("vit_pytorch").ViT(
        image_size=c.img_size,
        patch_size=c.patch_size,
        channels=c.in_chans,
        num_classes=c.num_classes,
        dim=c.embed_dim,
        depth=c.depth,
        heads=c.num_heads,
        dim_head=c.embed_dim // c.num_heads,
        mlp_dim=round(c.embed_dim * c.mlp_ratio),
        pool=c.pool,
    )
    return enliven(model)


_BLOCKS = {"Block", "ViTLayer", "Dinov2Layer", "EncoderBlock"}


def run(peer: nn.Module, images: Tensor, **options: Any) -> list[Tensor]:
    """Give the output of each block of a peer, and then the peer's own."""
    outputs: list[Tensor] = []
    handles = [
        block.register_forward_hook(
            lambda _, __, out: outputs.append(out[0] if isinstance(out, tuple) else out)
        )
        for block in peer.modules()
        if type(block).__name__ in _BLOCKS
    ]
    with torch.no_grad():
        out = peer(images, **options)
    for handle in handles:
        handle.remove()
    for kind in ("logits", "last_hidden_state"):  # Hugging Face's results have names
        out = getattr(out, kind, out)
    return [*outputs, out]
