"""One forward pass of ViT-B/16, side by side with four other implementations.

    python benchmarks/forward.py

Images of 224x224 in float32, batches of 1 and 4, random weights, the same model in all.
The floor is the time that the multiply-adds take at the machine's own matrix-product
peak. Where the machine and the compiler allow, bfloat16 and torch.compile follow.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from turns import machine, peak, print_table, take_turns

from course_utils.counting import count
from course_utils.vit import VisionTransformer, ViTConfig
from tests.peers import (
    hugging_face_vit,
    timm_vit,
    torchvision_vit,
    vit_pytorch_vit,
)

CONFIG = ViTConfig.preset("B/16")


def models() -> dict[str, nn.Module]:
    """Build ViT-B/16 with 1000 classes in each library, ready to classify."""
    return {
        "course_utils": VisionTransformer(CONFIG).eval(),
        "timm": timm_vit(CONFIG),
        "transformers": hugging_face_vit(CONFIG),
        "torchvision": torchvision_vit(CONFIG),
        "vit-pytorch": vit_pytorch_vit(CONFIG),
    }


def passes(
    models: dict[str, nn.Module], images: Tensor
) -> dict[str, Callable[[], object]]:
    """Make a function of each model that classifies the images."""

    def forward(model: nn.Module) -> Callable[[], object]:
        return lambda: model(images)

    return {name: forward(model) for name, model in models.items()}


def extras() -> dict[str, nn.Module]:
    """Build what only some machines can run: half precision, compiled code."""
    ours = VisionTransformer(CONFIG).eval()
    found: dict[str, nn.Module] = {}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        found["course_utils, bfloat16"] = _Bfloat16(VisionTransformer(CONFIG))
    else:
        print("bfloat16: this machine has no instructions for it, left out")
    if shutil.which("c++") or shutil.which("g++"):
        found["course_utils, torch.compile"] = torch.compile(ours)  # type: ignore
    else:
        print("torch.compile: there is no C++ compiler here, left out")
    return found


class _Bfloat16(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.to(torch.bfloat16).eval()

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images.to(torch.bfloat16))


@torch.inference_mode()
def main() -> None:
    """Take turns at each batch size, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    contenders = models() | extras()
    multiply_adds = count(CONFIG).multiply_adds
    for batch in (1, 4):
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(batch, 3, 224, 224, generator=generator)
        times = take_turns(passes(contenders, images), rounds)
        peers = [n for n in times if not n.startswith("course_utils")]
        fastest = min(peers, key=lambda name: statistics.median(times[name]))
        print(
            f"\nViT-B/16 forward, batch {batch}, {rounds} rounds in turn, {machine()}; "
            f"ratios to the fastest of the others, {fastest}"
        )
        print_table(times, fastest)
        flops = peak()
        floor = batch * 2 * multiply_adds / flops
        print(
            f"floor at the machine's peak of {flops / 1e9:.0f} GFLOP/s: "
            f"{1e3 * floor:.1f} ms"
        )


if __name__ == "__main__":
    main()
