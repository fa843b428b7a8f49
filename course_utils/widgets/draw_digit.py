"""Chapter 6: draw a digit, and see what a ViT makes of it."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.typing import NDArray
from PIL import Image

from course_utils import plots
from course_utils.checkpoints import load_digit_model
from course_utils.data import LabelledImages
from course_utils.figures import Figure
from course_utils.inspection import attention, cls_maps
from course_utils.widgets.digits import DigitWidget, a_digit

FIELD = 28  # pixels, a side of MNIST's images
BOX = 20  # pixels, the longer side of the digits in them
FULL = 0.5  # the attention that gets the full colour


def as_mnist(drawing: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Prepare a drawing as MNIST's digits were.

    Its ink is scaled to just fit a box of 20×20 pixels, and its centre of mass moved to
    the centre of the image, as far as all ink stays inside. MNIST's own digits come out
    as they went in.

    Args:
        drawing: (28, 28), 0 (paper) to 255 (full ink).

    Returns:
        (28, 28); without ink all 0.

    Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
    """
    result = np.zeros((FIELD, FIELD), np.uint8)
    if not drawing.any():
        return result
    rows, columns = (np.flatnonzero(drawing.any(axis)) for axis in (1, 0))
    box = drawing[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = BOX / max(box.shape)
    h, w = (max(1, _rounded(side * scale)) for side in box.shape)
    ink = Image.fromarray(box.astype(np.float32)).resize(
        (w, h), Image.Resampling.BILINEAR
    )
    scaled = np.floor(np.asarray(ink) + 0.5)
    corner = []
    for size, positions in zip((h, w), np.indices((h, w)), strict=True):
        centre = (positions * scaled).sum() / scaled.sum()
        corner.append(min(max(0, _rounded(FIELD / 2 - centre)), FIELD - size))
    top, left = corner
    result[top : top + h, left : left + w] = scaled
    return result


def _rounded(value: float) -> int:
    """Round half up, as browsers do."""
    return int(np.floor(value + 0.5))


class DrawDigit(DigitWidget):
    """Draw a digit, or take a test digit, and see how a trained digit model reads it.

    `pixels` is what is on the drawing surface, `prepared` what the model gets of it.

    Args:
        digits: test digits to take: images (B, 1, 28, 28) in 0 to 1 and their labels;
            ten test digits by default.
        digit: the one to begin with, counted from 0.
        pixels: a drawing to begin with instead: (28, 28), uint8 or floating point in 0
            to 1; light ink on dark paper, as MNIST has it.
        positions: ask the model that has positions, or the one trained without.
        show_attention: lay the attention of [CLS] over the digit.

    Raises:
        TypeError: if the numbers of an image have another type.
        ValueError: if an image has another shape or range, or `digit` is none of them.
    """

    module = "draw_digit.js"

    drawing = traitlets.Unicode("").tag(sync=True)
    """The 784 grey values of a drawing in base64; empty where a test digit is shown."""
    positions = traitlets.Bool(True).tag(sync=True)
    show_attention = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        digits: LabelledImages | None = None,
        *,
        digit: int = 3,
        pixels: Any = None,
        positions: bool = True,
        show_attention: bool = True,
    ) -> None:
        super().__init__(
            digits, digit=digit, positions=positions, show_attention=show_attention
        )
        if pixels is not None:
            self.pixels = pixels

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """What is on the drawing surface, (28, 28), 0 (paper) to 255 (full ink)."""
        if not self.drawing:
            return np.rint(255 * self.image[0].numpy()).astype(np.uint8)
        grey = np.frombuffer(base64.b64decode(self.drawing), np.uint8)
        return grey.reshape(FIELD, FIELD)

    @pixels.setter
    def pixels(self, image: Any) -> None:
        grey = np.asarray(image)
        if grey.shape not in ((FIELD, FIELD), (1, FIELD, FIELD)):
            raise ValueError(
                f"the drawing has the shape {grey.shape}; the digit models read "
                f"({FIELD}, {FIELD}): scale it first"
            )
        if np.issubdtype(grey.dtype, np.floating):
            if not ((grey >= 0) & (grey <= 1)).all():
                raise ValueError(
                    f"the drawing has values from {grey.min():g} to {grey.max():g}; "
                    "floating point pixels lie in 0 to 1: divide by 255"
                )
            grey = np.rint(255 * grey).astype(np.uint8)
        elif grey.dtype != np.uint8:
            raise TypeError(
                f"the drawing is {grey.dtype}; pixels are floating point in 0 to 1, "
                "or uint8"
            )
        self.drawing = base64.b64encode(grey.tobytes()).decode()

    @property
    def prepared(self) -> NDArray[np.uint8]:
        """What the model gets: `pixels`, scaled and centred by `as_mnist`."""
        return as_mnist(self.pixels)

    @traitlets.validate("drawing")
    def _whole(self, proposal: Any) -> str:
        try:
            size = len(base64.b64decode(proposal.value, validate=True))
        except ValueError as error:
            raise ValueError(
                f"drawing is no base64 ({error}); set pixels to an image instead"
            ) from error
        if size not in (0, FIELD**2):
            raise ValueError(
                f"drawing holds {size} grey values in base64; a digit has {FIELD**2}: "
                "set pixels to an image instead"
            )
        return str(proposal.value)

    @traitlets.observe("digit")
    def _take(self, _: Any) -> None:
        self.drawing = ""

    def figure(self) -> Figure:
        """Draw what the model gets, where its [CLS] looks, and how it reads that."""
        image = torch.from_numpy(self.prepared)[None, None].float() / 255
        if not image.any():
            return plots.show_images(
                image,
                alt="An empty drawing.",
                caption="Nothing is drawn yet. On the course's site and in a notebook "
                "you can draw here, and a model reads along.",
            )
        model = load_digit_model("positions" if self.positions else "no positions")
        with torch.no_grad():
            p, label = model(image).softmax(dim=1).max(dim=1)
        weights = attention(model, image)[:, -1].mean(dim=1)  # (1, T, T)
        maps = cls_maps(weights, (4, 4))
        return plots.show_attention(
            image,
            maps,
            [f"read as {a_digit(int(label))}, {p.item():.1%}"],
            vmax=max(FULL, maps.max().item()),
            caption="A digit, how a trained ViT reads it, and below what its [CLS] "
            "attends to in the last block, mean over heads. On the course's site and "
            "in a notebook you can draw your own, and the model reads along.",
        )
