"""What widgets about handwritten digits share: ten of them, and which one is shown."""

from __future__ import annotations

from typing import Any

import torch
import traitlets

from course_utils.data import LabelledImages, load_digits
from course_utils.widgets.base import CourseWidget
from course_utils.widgets.pictures import as_picture

TEN = (7, 55, 9, 1, 6, 5, 0, 8, 3, 4)
"""For each class its first test digit that both digit models read rightly."""


def ten_digits() -> LabelledImages:
    """One test digit of each class, in order: number k shows a k."""
    _, test = load_digits()
    chosen = list(TEN)
    return LabelledImages(test.images[chosen], test.labels[chosen])


def a_digit(label: int) -> str:
    """Name a digit in a sentence: "a 7", but "an 8"."""
    return f"{'an' if label == 8 else 'a'} {label}"


class DigitWidget(CourseWidget):
    """A widget that shows one of a few digits.

    Args:
        digits: what to choose from: images (B, 1, 28, 28) in 0 to 1 and their labels;
            `ten_digits` by default, so that `digit=7` shows a 7.
        digit: which one to begin with, counted from 0.

    Raises:
        TypeError: if the images are not floating point.
        ValueError: if they have another shape or range, if there is none or not one
            label for each, or if `digit` is none of them.
    """

    digits: traitlets.List[dict[str, Any]] = traitlets.List(read_only=True).tag(
        sync=True
    )
    digit = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, digits: LabelledImages | None = None, *, digit: int = 0, **traits: Any
    ) -> None:
        images, labels = ten_digits() if digits is None else digits
        if tuple(images.shape[1:]) != (1, 28, 28):
            raise ValueError(
                f"digits have the shape {tuple(images.shape)}; the digit models read "
                "(B, 1, 28, 28). For a single one, add the batch axis with image[None]"
            )
        if not images.is_floating_point():
            raise TypeError(f"digits are {images.dtype}; give floating point, 0 to 1")
        if not len(images) == len(labels) > 0:
            raise ValueError(
                f"there are {len(images)} digits and {len(labels)} labels; give at "
                "least one digit, and a label for each"
            )
        super().__init__()
        pictures = [
            {**as_picture(image, what=f"digit {index}"), "label": int(label)}
            for index, (image, label) in enumerate(zip(images, labels, strict=True))
        ]
        self.images = images.detach().float().cpu()
        self.set_trait("digits", pictures)
        for name, value in {"digit": digit, **traits}.items():
            self.set_trait(name, value)

    @property
    def image(self) -> torch.Tensor:
        """The digit that is shown, (1, 28, 28)."""
        return self.images[self.digit]

    @property
    def label(self) -> int:
        """What the digit that is shown is, 0 to 9."""
        label: int = self.digits[self.digit]["label"]
        return label

    @traitlets.validate("digit")
    def _there(self, proposal: Any) -> int:
        return within(proposal.value, "digit", len(self.digits) or 1)


def within(value: int, name: str, count: int) -> int:
    """Pass on a trait that counts something from 0.

    Raises:
        ValueError: if it is none of the `count` there are.
    """
    if not 0 <= value < count:
        raise ValueError(
            f"{name} is {value}; there are {count}, counted from 0: choose 0 to "
            f"{count - 1}"
        )
    return value
