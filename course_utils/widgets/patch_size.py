"""Chapter 1: what a larger or a smaller patch costs."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

import numpy as np
import traitlets

from course_utils import plots
from course_utils.data import load_digits, load_photo
from course_utils.figures import Figure
from course_utils.patches import patch_grid
from course_utils.widgets.base import CourseWidget
from course_utils.widgets.pictures import as_picture

LARGEST_REFERENCE = 16  # the patch of ViT-Base/16


class PatchSize(CourseWidget):
    """Cut an image into square patches of any size that divides it.

    Args:
        images: name → image, (C, H, W) or (H, W), floating point in 0 to 1 or uint8;
            the course's photo and one of its digits by default.
        shown: the name of the image to begin with; the first by default.
        patch_size: P in pixels to begin with; the image's reference by default.
        reference: name → the P that costs are compared with; the largest divisor up
            to 16 by default.

    Raises:
        TypeError: if an image's numbers are neither floating point nor uint8.
        ValueError: if an image has another shape or range, if there is no image of a
            name, or if a patch does not divide its image.
    """

    module = "patch_size.js"

    pictures = traitlets.Dict(read_only=True).tag(sync=True)
    reference = traitlets.Dict(read_only=True).tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)
    patch_size = traitlets.Int(1).tag(sync=True)

    def __init__(
        self,
        images: Mapping[str, Any] | None = None,
        *,
        shown: str | None = None,
        patch_size: int | None = None,
        reference: Mapping[str, int] | None = None,
    ) -> None:
        if images is None:
            digits, _ = load_digits()
            images = {"photo": load_photo("chelsea"), "digit": digits.images[3]}
            reference = {"photo": 16, "digit": 7} if reference is None else reference
        if not images:
            raise ValueError("images is empty; give at least one, as {'name': image}")
        super().__init__()
        self._images = {name: np.asarray(image) for name, image in images.items()}
        pictures = {
            name: as_picture(image, what=f"the image {name!r}")
            for name, image in self._images.items()
        }
        self.set_trait("pictures", pictures)
        self.set_trait("reference", self._references(reference or {}))
        self.shown = next(iter(images)) if shown is None else shown
        first = self.reference[self.shown]
        self.patch_size = first if patch_size is None else patch_size

    def _references(self, asked: Mapping[str, int]) -> dict[str, int]:
        for name in asked:
            self._picture(name)
        chosen = {}
        for name, picture in self.pictures.items():
            side = gcd(picture["height"], picture["width"])
            divisors = (P for P in range(1, LARGEST_REFERENCE + 1) if side % P == 0)
            chosen[name] = asked.get(name, max(divisors))
            patch_grid((picture["height"], picture["width"]), chosen[name])
        return chosen

    def _picture(self, name: str) -> dict[str, Any]:
        if name not in self.pictures:
            raise ValueError(
                f"there is no image {name!r}; choose from {', '.join(self.pictures)}"
            )
        return self.pictures[name]

    @traitlets.validate("shown")
    def _known(self, proposal: Any) -> str:
        self._picture(proposal.value)
        return proposal.value

    @traitlets.validate("patch_size")
    def _divides(self, proposal: Any) -> int:
        if self.shown:
            picture = self._picture(self.shown)
            patch_grid((picture["height"], picture["width"]), proposal.value)
        return proposal.value

    @traitlets.observe("shown")
    def _keep_or_refer(self, change: Any) -> None:
        picture = self._picture(change.new)
        if picture["height"] % self.patch_size or picture["width"] % self.patch_size:
            self.patch_size = self.reference[change.new]

    def figure(self) -> Figure:
        """Draw the image under its grid."""
        image = self._images[self.shown]
        return plots.show_grid(
            image[None] if image.ndim == 2 else image,
            self.patch_size,
            what=f"the {self.shown}",
            caption=f"The {self.shown}, cut into patches of {self.patch_size}×"
            f"{self.patch_size} pixels. On the course's site and in a notebook this "
            "figure answers: choose another patch size and see what it costs.",
        )
