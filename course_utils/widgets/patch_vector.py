"""Chapter 2: how a patch becomes a vector, one learned filter a number."""

from __future__ import annotations

from typing import Any

import torch
import traitlets

from course_utils import plots
from course_utils.checkpoints import load_digit_model
from course_utils.data import LabelledImages
from course_utils.figures import Figure
from course_utils.patches import patchify
from course_utils.widgets.digits import DigitWidget, within

PATCHES, FILTERS = 16, 64  # of the digit model


class PatchVector(DigitWidget):
    """Multiply a patch of a digit by the filters that the digit model has learned.

    Args:
        digits: what to choose from, as `DigitWidget` takes them.
        digit: which one to begin with.
        patch: which of its 16 patches, in reading order from 0.
        filter: which of the 64 filters, from 0: the number of the vector it makes.

    Raises:
        ValueError: if one of the three is out of range; and as `DigitWidget` does.
    """

    module = "patch_vector.js"

    patch = traitlets.Int(0).tag(sync=True)
    filter = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        digits: LabelledImages | None = None,
        *,
        digit: int = 3,
        patch: int = 6,
        filter: int = 12,  # noqa: A002  (the field's word, also in the traits)
    ) -> None:
        super().__init__(digits, digit=digit, patch=patch, filter=filter)

    @traitlets.validate("patch")
    def _a_patch(self, proposal: Any) -> int:
        return within(proposal.value, "patch", PATCHES)

    @traitlets.validate("filter")
    def _a_filter(self, proposal: Any) -> int:
        return within(proposal.value, "filter", FILTERS)

    @torch.no_grad()
    def figure(self) -> Figure:
        """Draw the patch, the filter and their products, and say the sum."""
        proj = load_digit_model().patch_embed.proj
        weight, bias = proj.weight[self.filter, 0], proj.bias
        assert bias is not None  # the digit models have one
        pixels = patchify(self.image[None], 7)[0, self.patch].reshape(7, 7)
        products = pixels * weight  # (P, P)
        total, shift = products.sum().item(), bias[self.filter].item()
        return plots.show_maps(
            torch.stack([pixels, weight, products]),
            [f"patch {self.patch}", f"filter {self.filter}", "their products"],
            vmin=float(min(weight.min(), products.min())),
            columns=3,
            caption=f"A {self.label}: the 49 products of patch {self.patch} and filter "
            f"{self.filter} sum to {total:.3f}; with the bias {shift:.3f} that is "
            f"{total + shift:.3f}, number {self.filter} of the patch's vector. On the "
            "course's site and in a notebook this figure answers: choose another "
            "patch and another filter.",
        )
