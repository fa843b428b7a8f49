"""Chapters 6 and 9: what a ViT attends to, laid over the image.

Axes: B images, L blocks, A heads, h w grid, T tokens.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import torch
import traitlets
from torch import Tensor

from course_utils import plots
from course_utils.checkpoints import load_digit_model
from course_utils.data import LabelledImages, load_photo
from course_utils.figures import Figure
from course_utils.inspection import attention, random_control, rollout
from course_utils.widgets.attention_maps import (
    BLOCKS,
    QUERIES,
    SIDE,
    load_photo_maps,
    pack,
    quantise,
    restore,
)
from course_utils.widgets.base import CourseWidget
from course_utils.widgets.digits import DigitWidget, a_digit, within
from course_utils.widgets.pictures import as_picture

SEED = 0  # of the random control
VIT = "a pretrained ViT of DINOv2-small's shape, fine-tuned by its author"


class Overlay(CourseWidget):
    """What the overlays on digits and on photos share: whose attention is shown.

    Attributes:
        block: counted from 0, as in `model.blocks`.
        head: counted from 0, or "mean".
        query: the token that asks: "cls", or a patch, counted from 0 in reading order.
        rollout: follow attention through all blocks instead, as `inspection.rollout`.
        random_weights: show the control, the same model with random weights.
        opacity: of the full colour, 0 to 1 in steps of a tenth.
    """

    depth: ClassVar[int]
    heads: ClassVar[int]
    grid: ClassVar[tuple[int, int]]
    top: ClassVar[float]
    """The weight that has the full colour, whatever the map; larger ones are marked."""

    block = traitlets.Int(0).tag(sync=True)
    head = traitlets.Union(
        [traitlets.Int(), traitlets.Unicode()], default_value="mean"
    ).tag(sync=True)
    query = traitlets.Union(
        [traitlets.Int(), traitlets.Unicode()], default_value="cls"
    ).tag(sync=True)
    rollout = traitlets.Bool(False).tag(sync=True)
    random_weights = traitlets.Bool(False).tag(sync=True)
    opacity = traitlets.Float(0.8).tag(sync=True)

    def row(self, *, random_weights: bool | None = None) -> Tensor:
        """Give the attention that is shown: what the query reads from each token.

        Args:
            random_weights: of the control or of the trained model; what is shown by
                default.

        Returns:
            (T,), [CLS] first, then the patches in reading order. It sums to one.
        """
        random = self.random_weights if random_weights is None else random_weights
        return self._row("random" if random else "trained")

    def _row(self, weights: str) -> Tensor:
        raise TypeError(f"{type(self).__name__} has no rows; give it _row")

    @traitlets.validate("block")
    def _known_block(self, proposal: Any) -> int:
        block = within(proposal.value, "block", self.depth)
        self._check_kept("block", block)
        return block

    @traitlets.validate("head", "query")
    def _known(self, proposal: Any) -> int | str:
        """A number within bounds, or the one word that the trait knows."""
        name, value = proposal.trait.name, proposal.value
        word, count = {
            "head": ("mean", self.heads),
            "query": ("cls", self.grid[0] * self.grid[1]),
        }[name]
        if isinstance(value, str):
            if value != word:
                raise ValueError(
                    f"{name} is {value!r}; choose {word!r}, or 0 to {count - 1}"
                )
        else:
            within(value, name, count)
        self._check_kept(name, value)
        return value

    def _check_kept(self, name: str, value: int | str) -> None:
        """Raise ValueError if the page has no such row; here it has all."""

    @traitlets.validate("opacity")
    def _share(self, proposal: Any) -> float:
        if not 0 <= proposal.value <= 1:
            raise ValueError(f"opacity is {proposal.value}; give 0 to 1")
        return round(proposal.value, 1)

    def _draw(self, image: Tensor, what: str, model: str) -> Figure:
        """Draw the map that is shown beside that of the control, on one scale."""
        rows = torch.stack(
            [self.row(random_weights=random) for random in (False, True)]
        )
        if self.rollout:
            which = "rollout"
        elif self.head == "mean":
            which = f"block {self.block}, mean of the heads"
        else:
            which = f"block {self.block}, head {self.head}"
        asks = "[CLS]" if self.query == "cls" else f"patch {self.query}"
        own = rows[:, 0].tolist()
        return plots.show_attention(
            torch.stack([image, image]),
            rows[:, 1:].unflatten(-1, self.grid),  # (2, h, w)
            [f"{asks} asks, trained", f"{asks} asks, random weights"],
            vmax=max(self.top, float(rows[:, 1:].max())),
            columns=2,
            caption=f"What {asks} reads from the patches of {what}, in {model} "
            f"({which}). From [CLS] it reads {own[0]:.3f}, and with random weights "
            f"{own[1]:.3f}: with the patches that makes one. On the course's site and "
            "in a notebook this figure lets you choose who asks, block and head.",
        )


class AttentionOverlay(Overlay, DigitWidget):
    """Lay the attention of the digit model over a digit.

    Args:
        digits: what to choose from: images (B, 1, 28, 28) in 0 to 1 and their labels,
            also drawings; ten test digits by default.
        digit: which one to begin with, counted from 0.
        block: 0 or 1.
        head: 0 to 3, or "mean".
        query: the token that asks: "cls", or a patch, 0 to 15 in reading order.
        rollout: follow attention through both blocks instead.
        random_weights: show the control, the same model with random weights.
        opacity: of the full colour, 0 to 1 in steps of a tenth.

    Raises:
        TypeError: if the images are not floating point.
        ValueError: if they have another shape or range, or if there is no such digit,
            block, head, query or opacity.
    """

    module = "attention_overlay.js"
    depth, heads, grid, top = 2, 4, (4, 4), 0.5

    control = traitlets.Unicode(read_only=True).tag(sync=True)

    def __init__(
        self,
        digits: LabelledImages | None = None,
        *,
        digit: int = 7,
        block: int = 1,
        head: int | str = "mean",
        query: int | str = "cls",
        rollout: bool = False,
        random_weights: bool = False,
        opacity: float = 0.8,
    ) -> None:
        super().__init__(
            digits,
            digit=digit,
            block=block,
            head=head,
            query=query,
            rollout=rollout,
            random_weights=random_weights,
            opacity=opacity,
        )
        # The page runs the trained model; of the control it gets the weights' maps.
        self.set_trait("control", pack(quantise(self._maps["random"])))

    @staticmethod
    def photo(name: str = "chelsea", **traits: Any) -> PhotoOverlay:
        """Lay the attention of a real pretrained ViT over one of the course's photos.

        Args:
            name: one of `data.PHOTOS`.
            **traits: as `PhotoOverlay` takes them.
        """
        return PhotoOverlay(name, **traits)

    @cached_property
    def _maps(self) -> dict[str, Tensor]:
        """Of the trained model and of its control, (B, L, A, T, T)."""
        model = load_digit_model()
        return {
            "trained": attention(model, self.images),
            "random": attention(random_control(model, SEED), self.images),
        }

    def _row(self, weights: str) -> Tensor:
        maps = self._maps[weights][[self.digit]]  # (1, L, A, T, T)
        token = 0 if self.query == "cls" else 1 + self.query
        if self.rollout:
            return rollout(maps)[0, token]
        block = maps[0, self.block]
        return (block.mean(0) if self.head == "mean" else block[self.head])[token]

    def figure(self) -> Figure:
        """Draw the map that is shown beside that of the control."""
        return self._draw(
            self.image, f"a digit, {a_digit(self.label)}", "the digit model"
        )


class PhotoOverlay(Overlay):
    """Lay the attention of a real pretrained ViT over one of the course's photos.

    The ViT has the shape of DINOv2-small, 12 blocks of 6 heads, and was fine-tuned by
    its author. The page has no such model: it has what was computed beforehand and
    rounded to 8 bits, so not everything can ask. [CLS] can in every block and head;
    every second patch can, as the mean of the heads in blocks 2, 5, 8 and 11.

    Args:
        name: one of `data.PHOTOS`.
        block: 0 to 11.
        head: 0 to 5, or "mean".
        query: the token that asks: "cls", or one of `attention_maps.QUERIES`.
        rollout: follow attention through all blocks instead.
        random_weights: show the control, the same model with random weights.
        opacity: of the full colour, 0 to 1 in steps of a tenth.

    Raises:
        ValueError: if there is no such photo, block, head, query or opacity, or if the
            page has no such row.
    """

    module = "photo_overlay.js"
    depth, heads, grid, top = 12, 6, (SIDE, SIDE), 0.02

    photo = traitlets.Dict(read_only=True).tag(sync=True)

    def __init__(
        self,
        name: str = "chelsea",
        *,
        block: int = 8,
        head: int | str = "mean",
        query: int | str = "cls",
        rollout: bool = False,
        random_weights: bool = False,
        opacity: float = 0.8,
    ) -> None:
        self._maps = {
            weights: load_photo_maps(name, weights) for weights in ("trained", "random")
        }
        super().__init__()
        self._image = load_photo(name)
        # Dark and in grey, by the weights of ITU-R BT.601: colour and light are the
        # attention's.
        grey = torch.tensordot(torch.tensor([0.299, 0.587, 0.114]), self._image, 1)
        picture = as_picture((0.6 * grey).clamp(0, 1), exact=False, what=name)
        packed = {weights: pack(*maps) for weights, maps in self._maps.items()}
        kept = {"queries": list(QUERIES), "blocks": list(BLOCKS)}
        about = {"name": name, "picture": picture, **kept, **packed}
        self.set_trait("photo", about)
        self.query = query
        self.block, self.head = block, head
        self.rollout, self.random_weights = rollout, random_weights
        self.opacity = opacity

    def _check_kept(self, name: str, value: int | str) -> None:
        if name == "query" and value != "cls" and value not in QUERIES:
            row, column = divmod(int(value), SIDE)
            near = row // 2 * 2 * SIDE + column // 2 * 2
            raise ValueError(
                f"query is patch {value}, row {row}, column {column}; kept are the "
                f"patches in even rows and columns: choose {near}, or 'cls'"
            )
        if self.query == "cls":
            return
        if name == "block" and value not in BLOCKS:
            raise ValueError(
                f"block is {value}; of patch {self.query} the rows are kept in blocks "
                f"{', '.join(map(str, BLOCKS))}: choose one of them, or query='cls'"
            )
        if name == "head" and value != "mean":
            raise ValueError(
                f"head is {value}; of patch {self.query} the mean of the heads is "
                "kept: choose 'mean', or query='cls'"
            )

    @traitlets.observe("query")
    def _to_what_is_kept(self, change: Any) -> None:
        if change.new != "cls":
            self.block = min(BLOCKS, key=lambda block: abs(block - self.block))
            self.head = "mean"

    def _row(self, weights: str) -> Tensor:
        maps = self._maps[weights]
        asks = 0 if self.query == "cls" else 1 + QUERIES.index(self.query)
        if self.rollout:
            return torch.from_numpy(restore(maps.rollout[asks]))
        if asks:
            return torch.from_numpy(
                restore(maps.patches[BLOCKS.index(self.block), asks - 1])
            )
        block = torch.from_numpy(restore(maps.cls[self.block]))  # (A, T)
        return block.mean(0) if self.head == "mean" else block[self.head]

    def figure(self) -> Figure:
        """Draw the map that is shown beside that of the control."""
        return self._draw(self._image, f"the photo {self.photo['name']!r}", VIT)
