"""Chapter 8: a small convolutional network, to measure the ViT against.

Axes: B batch, C channels, H W image, h w feature map, D width, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SmallCNN(nn.Module):
    """3×3 convolutions, the mean over the places they look at, and a linear head.

    BatchNorm and ReLU follow each convolution. The defaults make 105,346 parameters,
    as many as the digit ViT's 105,098 to within one part in 400. Each is used at many
    places: a 28×28 image takes 5,123,616 multiply-adds, where the ViT takes 1,795,968.

    Why BatchNorm and not GroupNorm: in evaluation mode it scales each channel by fixed
    numbers, so that features move with the image, where GroupNorm's numbers come from
    the whole image. The price: in training mode an image's logits depend on its batch.
    """

    def __init__(
        self,
        *,
        in_chans: int = 1,
        num_classes: int = 10,
        widths: Sequence[int] = (24, 48, 72, 96),
        strides: Sequence[int] = (2, 2, 1, 1),
        generator: torch.Generator | None = None,
    ) -> None:
        """Build the network with fresh random weights.

        Args:
            in_chans: C, 3 for colour and 1 for grey.
            num_classes: K.
            widths: how many channels each convolution makes; the last is D.
            strides: by how many pixels each convolution steps, 2 to halve the sides.
            generator: where the random numbers come from (a CPU generator); PyTorch's
                global one by default.

        Raises:
            ValueError: if there is not one stride a width, or a number is below 1.
        """
        super().__init__()
        if len(widths) != len(strides) or not widths:
            raise ValueError(
                f"there are {len(widths)} widths and {len(strides)} strides; "
                "give one of each for every convolution, and at least one"
            )
        if min(in_chans, num_classes, *widths, *strides) < 1:
            raise ValueError(
                f"in_chans is {in_chans}, num_classes {num_classes}, widths "
                f"{tuple(widths)} and strides {tuple(strides)}; each must be at least 1"
            )
        # Build without memory or random numbers; `reset` then draws each weight once.
        with torch.device("meta"):
            self.blocks = nn.Sequential()
            for inputs, outputs, stride in zip(
                [in_chans, *widths], widths, strides, strict=False
            ):
                conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
                self.blocks.append(
                    nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())
                )
            self.head = nn.Linear(widths[-1], num_classes)
        device = torch.empty(0).device  # the default one
        if device.type != "meta":
            self.to_empty(device="cpu")
            self.reset(generator)
            self.to(device)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw fresh weights, and forget the statistics of past batches.

        Convolutions: normal with variance 2 / (9*C), which keeps the size of what
        passes through ReLU (He et al. 2015). Head: Xavier uniform, zero bias; a
        start as small as the ViT's head has learns slowly behind a mean over places.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, nonlinearity="relu", generator=generator
                )
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()
        nn.init.xavier_uniform_(self.head.weight, generator=generator)
        nn.init.zeros_(self.head.bias)

    def features(self, images: Tensor) -> Tensor:
        """Turn images (B, C, H, W) into feature maps (B, D, h, w), none below 0.

        With s the product of the strides, h = H / s and w = W / s, rounded up.

        Raises:
            TypeError: if the images are not floating point.
            ValueError: if they are not (B, C, H, W) with the network's channels.
        """
        self._check(images)
        maps: Tensor = self.blocks(images)
        return maps

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (B, C, H, W): logits (B, K), before the softmax.

        Raises:
            TypeError, ValueError: as `features` does.
        """
        pooled = self.features(images).mean(dim=(2, 3))  # (B, D)
        logits: Tensor = self.head(pooled)
        return logits

    @property
    def layers(self) -> list[tuple[int, int, int]]:
        """The kernel, stride and padding of each convolution, for `receptive_field`."""
        convs = (module for module in self.modules() if isinstance(module, nn.Conv2d))
        return [
            (conv.kernel_size[0], conv.stride[0], int(conv.padding[0]))
            for conv in convs
        ]

    def _check(self, images: Tensor) -> None:
        shape = tuple(images.shape)
        C = next(self.parameters()).shape[1]
        if images.ndim != 4:
            raise ValueError(
                f"images have shape {shape}; this network expects (B, {C}, H, W). "
                "For a single image, add the batch axis with images[None]"
            )
        if images.shape[1] != C:
            raise ValueError(
                f"images of shape {shape} have {images.shape[1]} channels; this network"
                f" expects {C}. Convert the images, or build the network with "
                f"in_chans={images.shape[1]}"
            )
        if not images.is_floating_point():
            raise TypeError(
                f"images are {images.dtype}; expected floating point. "
                "For pixels 0 to 255 use images.float() / 255"
            )


class ReceptiveField(NamedTuple):
    """The pixels that outputs see, along one axis.

    Output i sees `size` pixels from number `start + i * jump` on. Those before 0 or
    beyond the image are padding.
    """

    size: int
    jump: int
    start: int


def receptive_field(layers: Iterable[tuple[int, int, int]]) -> ReceptiveField:
    """Work out what one output of a chain of convolutions or poolings sees.

    Args:
        layers: kernel, stride and padding of each, in pixels, from the image on.
            A ViT's patch embedding is (P, P, 0).

    Raises:
        ValueError: if a kernel or a stride is below 1, or a padding below 0.

    Source: Araujo, Norris and Sim 2019, "Computing Receptive Fields of Convolutional
    Neural Networks", Distill.
    """
    size, jump, start = 1, 1, 0
    for kernel, stride, padding in layers:
        if kernel < 1 or stride < 1 or padding < 0:
            raise ValueError(
                f"a layer has kernel {kernel}, stride {stride} and padding {padding}; "
                "give kernel and stride at least 1 and padding at least 0"
            )
        size += (kernel - 1) * jump
        start -= padding * jump
        jump *= stride
    return ReceptiveField(size, jump, start)


def shift(images: Tensor, rows: int, columns: int) -> Tensor:
    """Move images (..., H, W) down by `rows` and right by `columns` pixels.

    Negative numbers move up and left. What leaves is lost; 0 comes in.

    Raises:
        ValueError: if nothing of the images would be left.
    """
    H, W = images.shape[-2:]
    if abs(rows) >= H or abs(columns) >= W:
        raise ValueError(
            f"a {H}x{W} image moved by {rows} rows and {columns} columns would be "
            f"gone; move it by less than {H} and {W}"
        )
    return F.pad(images, (columns, -columns, rows, -rows))
