"""Chapter 6: what each step of the digit model makes of each token."""

from __future__ import annotations

from typing import Any

import torch
import traitlets

from course_utils import plots
from course_utils.checkpoints import load_digit_model
from course_utils.data import LabelledImages
from course_utils.figures import Figure
from course_utils.widgets.digits import DigitWidget, a_digit, within

DEPTH, TOKENS = 2, 17  # of the digit model
IN_BLOCK = ("norm1", "attn", "add1", "norm2", "mlp", "add2")
STEPS = (
    "cls",
    "tokens",
    *(f"blocks.{i}.{name}" for i in range(DEPTH) for name in IN_BLOCK),
    "norm",
    "logits",
)
"""The steps of the walk, named as `VisionTransformer.intermediates` names them."""

STREAM = (
    "cls",
    "tokens",
    *(f"blocks.{i}.{name}" for i in range(DEPTH) for name in ("add1", "add2")),
)
"""The states of the residual stream, from which the head could read at once."""


class ThroughEncoder(DigitWidget):
    """Walk through the digit model, step by step, and read each vector with the head.

    Args:
        digits: what to choose from, as `DigitWidget` takes them.
        digit: which one to begin with.
        step: where to begin, one of `STEPS`.
        token: which token to follow, 0 for [CLS], 1 to 16 for the patches.

    Raises:
        ValueError: if there is no such digit, step or token; and as `DigitWidget` does.
    """

    module = "through_encoder.js"

    step = traitlets.Unicode(STEPS[0]).tag(sync=True)
    token = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        digits: LabelledImages | None = None,
        *,
        digit: int = 4,
        step: str = STEPS[0],
        token: int = 0,
    ) -> None:
        super().__init__(digits, digit=digit, step=step, token=token)

    @traitlets.validate("step")
    def _a_step(self, proposal: Any) -> str:
        if proposal.value not in STEPS:
            raise ValueError(
                f"there is no step {proposal.value!r}; choose from {', '.join(STEPS)}"
            )
        return proposal.value

    @traitlets.validate("token")
    def _a_token(self, proposal: Any) -> int:
        return within(proposal.value, "token", TOKENS)

    @torch.no_grad()
    def figure(self) -> Figure:
        """Draw what the head would answer after each change of the token's vector."""
        model = load_digit_model().eval()
        states = model.intermediates(self.image[None])
        stream = torch.stack([states[name][0, self.token] for name in STREAM])  # (M, D)
        answers = model.head(model.norm(stream)).softmax(-1)  # (M, K)
        leaders = sorted({self.label, *answers.argmax(-1).tolist()})
        who = "[CLS]" if self.token == 0 else f"patch {self.token - 1}"
        return plots.plot_curves(
            {a_digit(k): answers[:, k] for k in leaders},
            ylabel="probability",
            xlabel="change of the vector",
            x=range(len(STREAM)),
            caption=f"What the head would answer for {a_digit(self.label)} if it read "
            f"{who} so early: 0 embedded, 1 with its position, 2 and 3 after attention "
            "and MLP of block 0, 4 and 5 of block 1. On the course's site and in a "
            "notebook this figure answers: go from step to step.",
        )
