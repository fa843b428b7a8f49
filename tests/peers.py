"""Independent ViTs that ours is compared with, and how to import them."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_LIBRARIES: list[torch.library.Library] = []  # a library lasts as long as its object


def import_timm() -> ModuleType:
    """Import timm, whatever torchvision was built for."""
    _make_torchvision_importable()
    return importlib.import_module("timm")


def import_vit_pytorch() -> ModuleType:
    """Import vit_pytorch, whatever torchvision was built for."""
    _make_torchvision_importable()
    return importlib.import_module("vit_pytorch")


def _make_torchvision_importable() -> None:
    """Declare the operators without which torchvision stops halfway.

    Both peers import torchvision. Its compiled part must match torch's build, and next
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
        for name in ("nms", "qnms"):
            library.define(f"{name}({boxes}) -> Tensor")
        _LIBRARIES.append(library)
