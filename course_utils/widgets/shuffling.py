"""Chapter 4: what a model makes of a digit whose patches were shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import traitlets

from course_utils import plots
from course_utils.checkpoints import load_digit_model
from course_utils.data import LabelledImages
from course_utils.figures import Figure
from course_utils.patches import patchify, unpatchify
from course_utils.widgets.digits import DigitWidget, a_digit

P = 7  # the digit models' patch, in pixels
N = 16  # patches: 4 rows of 4
MIXED = [9, 4, 14, 1, 6, 12, 3, 11, 0, 15, 8, 5, 10, 2, 13, 7]
"""The order that a figure shows while the digit lies in its own."""


class Shuffling(DigitWidget):
    """Shuffle the patches of a digit and see which of two models notices.

    Both are the course's trained digit models: one with positions, one without.

    Args:
        digits: what to choose from: images (B, 1, 28, 28) in 0 to 1 and their labels;
            ten test digits by default.
        digit: which one to begin with, counted from 0.
        order: which patch stands at each of the 16 places, in reading order.

    Raises:
        TypeError: if the images are not floating point.
        ValueError: if they have another shape or range, if `digit` is none of them, or
            if `order` does not hold each patch once.
    """

    module = "shuffling.js"

    order = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(
        self,
        digits: LabelledImages | None = None,
        *,
        digit: int = 7,
        order: Sequence[int] = range(N),
    ) -> None:
        super().__init__(digits, digit=digit, order=list(order))

    @traitlets.validate("order")
    def _each_once(self, proposal: Any) -> list[int]:
        order: list[int] = proposal.value
        if sorted(order) != list(range(N)):
            missing = sorted(set(range(N)) - set(order))
            lacks = f"without {', '.join(map(str, missing))}" if missing else "too many"
            raise ValueError(
                f"order holds {len(order)} numbers, {lacks}: {order}; give each patch "
                f"once, 0 to {N - 1}, such as torch.randperm({N}).tolist()"
            )
        return order

    def figure(self) -> Figure:
        """Draw the digit and its shuffle, with what both models make of them."""
        own = list(range(N))
        orders = [own, MIXED if self.order == own else self.order]
        patches = patchify(self.image[None], P)  # (1, N, P*P)
        images = torch.cat([unpatchify(patches[:, o], P, 28) for o in orders])
        logits = {}
        with torch.no_grad():
            for name in ("positions", "no positions"):
                logits[name] = load_digit_model(name)(images)  # (2, K)
        answers = [
            ", ".join(
                f"{'with' if name == 'positions' else 'without'} positions a "
                f"{int(of_model[image].argmax())}"
                for name, of_model in logits.items()
            )
            for image in range(2)
        ]
        with_, without = ((of[1] - of[0]).abs().max().item() for of in logits.values())
        return plots.show_images(
            images,
            [f"In order: {answers[0]}", f"Shuffled: {answers[1]}"],
            columns=2,
            alt=f"A test digit, {a_digit(self.label)}, and its {N} patches in another "
            "order.",
            caption="What two trained models read. Shuffling moves the output of the "
            f"model with positions by up to {with_:.1f}, and that of the model without "
            f"by {without:.4f}: it cannot tell the two apart. On the course's site and "
            "in a notebook this figure lets you shuffle.",
        )
