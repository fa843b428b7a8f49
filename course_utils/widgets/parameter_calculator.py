"""Chapter 7: what a Vision Transformer of any size costs, before it is built."""

from __future__ import annotations

from typing import Any

import traitlets

from course_utils import plots
from course_utils.counting import Costs, count
from course_utils.figures import Figure
from course_utils.vit import ViTConfig
from course_utils.widgets.base import CourseWidget

PRESETS = ("Ti/16", "S/16", "B/16", "B/32", "L/16", "H/14", "digits")
SIZES = (
    "img_size",
    "patch_size",
    "in_chans",
    "num_classes",
    "embed_dim",
    "depth",
    "num_heads",
    "mlp_ratio",
)
LARGEST = 2**53  # a page counts exactly up to here

GROUPS = {
    "patch embedding": ("patch_embed",),
    "[CLS]": ("cls_token",),
    "positions": ("pos_embed",),
    "attention's layers": ("block.attn.qkv", "block.attn.proj"),
    "attention's products": ("block.attn.scores", "block.attn.mix"),
    "MLP": ("block.mlp",),
    "LayerNorm": ("block.norm1", "block.norm2", "norm"),
    "head": ("head",),
}
"""The parts as the page names them → those of `counting.count`."""


def _sizes(config: ViTConfig) -> dict[str, Any]:
    """The traits of a configuration; its images and patches are squares."""
    sizes = {name: getattr(config, name) for name in SIZES}
    return sizes | {name: sizes[name][0] for name in ("img_size", "patch_size")}


_PRESET_SIZES = {name: _sizes(ViTConfig.preset(name)) for name in PRESETS}


class ParameterCalculator(CourseWidget):
    """Count parameters, multiply-adds, tokens and memory of a ViT by formula.

    The model is a `ViTConfig` with a square image, square patches and, of all else that
    the traits don't name, the defaults. The numbers are those of `counting.count`, for
    one image in float32.

    Args:
        preset: the sizes to begin with, one of `PRESETS`.
        **sizes: those that differ: img_size, patch_size, in_chans, num_classes,
            embed_dim, depth, num_heads, mlp_ratio.

    Attributes:
        preset: the preset that has these sizes, "" when none has. Setting it sets them.

    Raises:
        ValueError: if no preset is called so, if the patch does not divide the image or
            the heads the width, or if a size is too small or too large.
    """

    module = "parameter_calculator.js"

    img_size = traitlets.Int(224).tag(sync=True)
    patch_size = traitlets.Int(16).tag(sync=True)
    in_chans = traitlets.Int(3).tag(sync=True)
    num_classes = traitlets.Int(1000).tag(sync=True)
    embed_dim = traitlets.Int(768).tag(sync=True)
    depth = traitlets.Int(12).tag(sync=True)
    num_heads = traitlets.Int(12).tag(sync=True)
    mlp_ratio = traitlets.Float(4.0).tag(sync=True)
    preset = traitlets.Unicode("B/16").tag(sync=True)
    presets = traitlets.Dict(read_only=True).tag(sync=True)

    def __init__(self, preset: str = "B/16", **sizes: Any) -> None:
        if unknown := set(sizes) - set(SIZES):
            raise ValueError(
                f"there is no size {', '.join(sorted(unknown))}; choose from "
                f"{', '.join(SIZES)}"
            )
        super().__init__()
        self.set_trait("presets", _PRESET_SIZES)
        self.config = ViTConfig(**_preset_sizes(preset) | sizes)

    @property
    def config(self) -> ViTConfig:
        """The model that is counted; setting it sets all sizes at once."""
        return ViTConfig(**{name: getattr(self, name) for name in SIZES})

    @config.setter
    def config(self, config: ViTConfig) -> None:
        sizes = _sizes(config)
        if ViTConfig(**sizes) != config:
            raise ValueError(
                f"the calculator cannot show {config}: it has square images and "
                f"patches, and beside {', '.join(SIZES)} only the defaults. Use "
                "course_utils.counting.count for any other"
            )
        _check(config)
        with self.hold_trait_notifications():
            for name, value in sizes.items():
                setattr(self, name, value)

    @property
    def costs(self) -> Costs:
        """What the widget shows, part by part."""
        return count(self.config)

    @traitlets.validate(*SIZES)
    def _fits(self, proposal: Any) -> Any:
        sizes = {name: getattr(self, name) for name in SIZES}
        _check(ViTConfig(**sizes | {proposal.trait.name: proposal.value}))
        return proposal.value

    @traitlets.validate("preset")
    def _known(self, proposal: Any) -> str:
        if proposal.value:
            _preset_sizes(proposal.value)
        return proposal.value

    @traitlets.observe("preset")
    def _set_sizes(self, change: Any) -> None:
        if change.new:
            self.config = ViTConfig(**_preset_sizes(change.new))
        else:
            self._name_preset()

    @traitlets.observe(*SIZES)
    def _name_preset(self, change: Any = None) -> None:
        sizes = {name: getattr(self, name) for name in SIZES}
        named = (name for name, known in _PRESET_SIZES.items() if known == sizes)
        self.preset = next(named, "")

    def figure(self) -> Figure:
        """Draw where the parameters are."""
        costs = self.costs
        parts = {
            name: _parameters(costs, parts) / 1e6 for name, parts in GROUPS.items()
        }
        return plots.plot_bars(
            {name: value for name, value in parts.items() if value},
            xlabel="parameters, in millions",
            caption=f"{costs.caption}. {costs.parameters:,} parameters and "
            f"{costs.multiply_adds:,} multiply-adds in {self.depth} blocks with "
            f"{self.num_heads} heads. On the course's site and in a notebook this "
            "figure answers: choose other sizes.",
        )


def _preset_sizes(name: str) -> dict[str, Any]:
    if name not in _PRESET_SIZES:
        raise ValueError(
            f"there is no preset {name!r}; choose from {', '.join(PRESETS)}"
        )
    return _PRESET_SIZES[name]


def _check(config: ViTConfig) -> None:
    costs = count(config)
    for what, number in [
        ("multiply-adds", costs.multiply_adds),
        ("bytes of activations", costs.activation_bytes + costs.attention_bytes),
        ("bytes of parameters", 4 * costs.parameters),
    ]:
        if number >= LARGEST:
            raise ValueError(
                f"{config} takes {number:,} {what}; a page counts exactly up to "
                f"{LARGEST:,}. Choose smaller sizes, or use course_utils.counting.count"
            )


def _parameters(costs: Costs, parts: tuple[str, ...]) -> int:
    """All blocks counted."""
    return sum(
        costs[part].parameters * (costs.depth if part.startswith("block.") else 1)
        for part in parts
    )
