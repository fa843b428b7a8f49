"""Chapter 6: a drawing of a model, made from one forward pass through it.

Nothing in it is told beforehand: the shapes are those that the tensors really take,
the parameter counts those of the live modules, and a widened MLP is drawn to scale.

Axes: B batch, C channels, H W image, A heads, T tokens, D width.
"""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from PIL import Image
from torch import Tensor, nn

from course_utils.encoder import EncoderBlock, LayerScale
from course_utils.figures import Figure, colour, svg_element
from course_utils.vit import VisionTransformer

# Places across the drawing, in its own units.
WIDTH = 470.0
STREAM = 62.0  # the residual stream runs down here
LEFT, BRANCH, RIGHT = 14.0, 112.0, 322.0  # boxes: on the stream, on a branch, their end
MIDDLE = (BRANCH + RIGHT) / 2
SHAPES = WIDTH - 8  # shapes end here

Part = nn.Module | Tensor


def architecture_diagram(
    model: VisionTransformer, images: Tensor | None = None, *, caption: str = ""
) -> Figure:
    """Draw a Vision Transformer from one forward pass.

    The first block is drawn in full, the others are named: all have the same parts.

    Args:
        model: any configuration, on any device; its weights and mode stay as they are.
        images: (B, C, H, W), whose first is shown; one black image by default.
        caption: what to see in the figure.

    Raises:
        ValueError, TypeError: if the images do not fit the model.
    """
    if images is None:
        weight = model.patch_embed.proj.weight
        H, W = model.patch_embed.patch_size
        h, w = model.config.grid
        images = weight.new_zeros(1, weight.shape[1], h * H, w * W)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        steps = model.intermediates(images)
    model.train(was_training)

    sheet = _Sheet()
    _draw_input(sheet, model, images, steps)
    first = model.blocks[0]
    assert isinstance(first, EncoderBlock)  # as VisionTransformer builds them
    _draw_block(sheet, first, steps, f"block 1 of {len(model.blocks)}")
    if len(model.blocks) > 1:
        last = len(model.blocks)
        others = "block 2" if last == 2 else f"blocks 2 to {last}"
        output = steps[f"blocks.{last - 1}.add2"]
        sheet.stage(others, "the same parts again", output, model.blocks[1:])
    _draw_head(sheet, model, steps)
    total = f"{_count([model])} parameters in all"
    sheet.text(LEFT, sheet.y + 4, total, bold=True)
    sheet.words.append(f"{total}.")
    height = sheet.y + 14
    alt = " ".join(sheet.words)
    body = "".join(sheet.behind + sheet.front)
    svg = svg_element(body, WIDTH, height, alt, f"0 0 {WIDTH:g} {height:g}")
    return Figure(svg, alt, caption)


def _draw_input(
    sheet: _Sheet, model: VisionTransformer, images: Tensor, steps: dict[str, Tensor]
) -> None:
    c = model.config
    (h, w), (P, Q) = c.grid, model.patch_embed.patch_size
    sheet.picture(images, (h, w))
    values = math.prod(model.patch_embed.proj.weight.shape[1:])
    sheet.stage(
        "patch embedding",
        f"{h}×{w} patches of {P}×{Q}, {values} → {c.embed_dim}",
        steps["patch_embed"],
        [model.patch_embed],
    )
    if model.cls_token is not None:
        sheet.stage(
            "[CLS] in front", "a learned vector", steps["cls"], [model.cls_token]
        )
    if model.pos_embed is not None:
        learned = c.positions == "learned"
        detail = "a learned row a token" if learned else "fixed sines and cosines"
        rows = [model.pos_embed] if learned else []
        sheet.stage("add positions", detail, steps["tokens"], rows)


def _draw_block(
    sheet: _Sheet, block: EncoderBlock, steps: dict[str, Tensor], title: str
) -> None:
    def step(name: str) -> Tensor:
        return steps[f"blocks.0.{name}"]

    heads = block.attn.num_heads
    width = step("attn").shape[-1]
    top = sheet.y
    sheet.y += 22
    sheet.text(BRANCH, sheet.y, title, bold=True)
    sheet.words.append(f"{title.capitalize()}:")
    sheet.y += 10
    before, after = (True, False) if block.norm == "pre" else (False, True)
    for name, norm, scale in (
        ("attn", block.norm1, block.ls1),
        ("mlp", block.norm2, block.ls2),
    ):
        number = {"attn": 1, "mlp": 2}[name]
        sheet.leave()
        if before:
            sheet.box("LayerNorm", "", step(f"norm{number}"), [norm])
        if name == "attn":
            detail = f"{heads} heads of {width // heads}, weights"
            sheet.box("attention", detail, step("attn.weights"), [block.attn])
        else:
            sheet.wide("MLP", width, step("mlp.hidden"), [block.mlp])
        if isinstance(scale, LayerScale):
            sheet.box("LayerScale", "", step(name), [scale])
        sheet.come_back(step(f"add{number}"))
        if after:
            sheet.stage("LayerNorm", "", step(f"norm{number}"), [norm])
    sheet.y += 4
    sheet.frame(top, sheet.y)
    sheet.y += 14


def _draw_head(
    sheet: _Sheet, model: VisionTransformer, steps: dict[str, Tensor]
) -> None:
    c = model.config
    if c.final_norm:
        sheet.stage("LayerNorm", "", steps["norm"], [model.norm])
    reads = "[CLS] goes on" if c.pool == "cls" else "mean of the patches"
    others = f"the other {steps['norm'].shape[1] - 1} are dropped"
    if c.pool == "mean":
        others = "[CLS] is left out" if c.class_token else "one vector an image"
    sheet.stage(reads, others, steps["pooled"], [], last=not c.num_classes)
    if c.num_classes:
        detail = f"{c.embed_dim} → {c.num_classes}, one score a class"
        sheet.stage("head", detail, steps["logits"], [model.head], last=True)


def _count(parts: Iterable[Part]) -> str:
    """Say how many parameters some modules and tensors hold."""
    tensors = [
        tensor
        for part in parts
        for tensor in ([part] if isinstance(part, Tensor) else part.parameters())
    ]
    return f"{sum(tensor.numel() for tensor in tensors):,}"


def _shape(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"


@dataclass
class _Sheet:
    """Draws downwards: `y` is where the next thing goes, `words` say what was drawn."""

    y: float = 6.0
    behind: list[str] = field(default_factory=list)
    front: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        small: bool = False,
        ink: str = "ink",
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        self.front.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{14.5 if small else 16.5}" '
            f'font-weight="{600 if bold else 400}" text-anchor="{anchor}" '
            f'style="fill:{colour(ink)}">{html.escape(content)}</text>'
        )

    def line(self, path: str, *, thick: bool = False) -> None:
        """Draw a path behind the boxes, by default as thin as a branch."""
        self.behind.append(
            f'<path d="{path}" style="fill:none;stroke:{colour("1")}" '
            f'stroke-width="{5 if thick else 1.75}"/>'
        )

    def shape(self, y: float, tensor: Tensor) -> None:
        self.text(SHAPES, y, _shape(tensor), small=True, anchor="end")

    def picture(self, images: Tensor, grid: tuple[int, int]) -> None:
        """Show the first image under its grid of patches, on top of the stream."""
        for x, heading in ((RIGHT - 10, "parameters"), (SHAPES, "tensor shapes")):
            y = self.y + 10
            self.text(x, y, heading, small=True, ink="muted", anchor="end")
        B, C, H, W = images.shape
        side = 72.0
        high, wide = side * min(1.0, H / W), side * min(1.0, W / H)
        x, y = STREAM - wide / 2, self.y
        if not images.is_meta:
            self.front.append(
                f'<image x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" '
                f'preserveAspectRatio="none" href="{_data_uri(images[0])}"/>'
            )
        h, w = grid
        cuts = [f"M {x:g} {y + high * k / h:g} h {wide:g}" for k in range(h + 1)]
        cuts += [f"M {x + wide * k / w:g} {y:g} v {high:g}" for k in range(w + 1)]
        thin = min(1.25, 0.09 * wide / w)
        self.front.append(
            f'<path d="{" ".join(cuts)}" '
            f'style="fill:none;stroke:{colour("highlight")}" stroke-width="{thin:g}"/>'
        )
        kind = {1: "grey", 3: "colour"}.get(C, f"{C}-channel")
        what = f"{B} {kind} image{'s' if B > 1 else ''}"
        self.text(BRANCH, y + high / 2 + 7, what)
        size = f"{H}×{W} pixels"
        self.text(BRANCH, y + high / 2 + 26, size, small=True, ink="muted")
        self.shape(y + high / 2 + 7, images)
        self.words.append(
            "A Vision Transformer drawn from top to bottom, with the shape of each "
            f"tensor. {what} of {H}×{W} pixels: {_shape(images)}."
        )
        self.y = y + high
        self.flow()

    def flow(self, length: float = 18.0) -> None:
        """Let the stream run on."""
        self.line(f"M {STREAM:g} {self.y:g} V {self.y + length:g}", thick=True)
        self.y += length

    def stage(
        self,
        name: str,
        detail: str,
        output: Tensor,
        parts: Sequence[Part] | nn.Module,
        *,
        last: bool = False,
    ) -> None:
        """Draw a step that the whole stream goes through."""
        self._box(LEFT, name, detail, output, parts)
        if last:
            self.y += 22
        else:
            self.flow()

    def box(
        self, name: str, detail: str, output: Tensor, parts: Sequence[Part]
    ) -> None:
        """Draw a step of a branch."""
        self._box(BRANCH, name, detail, output, parts)
        self.line(f"M {MIDDLE:g} {self.y:g} V {self.y + 14:g}")
        self.y += 14

    def _box(
        self,
        x: float,
        name: str,
        detail: str,
        output: Tensor,
        parts: Sequence[Part] | nn.Module,
    ) -> None:
        high = 50.0 if detail else 30.0
        self.front.append(
            f'<rect x="{x:g}" y="{self.y:g}" width="{RIGHT - x:g}" height="{high:g}" '
            f'rx="6" style="fill:{colour("surface")};stroke:{colour("1")}" '
            'stroke-width="1.5"/>'
        )
        self._say(x + 12, self.y + 20.5, name, detail, output, parts)
        if detail:
            self.text(x + 12, self.y + 40, detail, small=True, ink="muted")
        self.y += high

    def wide(
        self, name: str, width: int, hidden: Tensor, parts: Sequence[Part]
    ) -> None:
        """Draw an MLP to scale: as wide at its waist as its hidden layer is."""
        D = hidden.shape[-1]
        most = RIGHT - BRANCH
        outer = most * min(1.0, width / D) / 2
        inner = most * min(1.0, D / width) / 2
        y, slope, waist = self.y, 26.0, 50.0
        self.front.append(
            f'<path d="M {MIDDLE - outer:g} {y:g} H {MIDDLE + outer:g} '
            f"L {MIDDLE + inner:g} {y + slope:g} v {waist:g} "
            f"L {MIDDLE + outer:g} {y + 2 * slope + waist:g} "
            f"H {MIDDLE - outer:g} L {MIDDLE - inner:g} {y + slope + waist:g} "
            f'v {-waist:g} z" style="fill:{colour("surface")};stroke:{colour("1")}" '
            'stroke-width="1.5"/>'
        )
        detail = f"{width} → {D} → {width}, GELU"
        self._say(BRANCH + 12, y + slope + 20, name, detail, hidden, parts)
        self.text(BRANCH + 12, y + slope + 40, detail, small=True, ink="muted")
        self.y = y + 2 * slope + waist
        self.line(f"M {MIDDLE:g} {self.y:g} v 14")
        self.y += 14

    def _say(
        self,
        x: float,
        y: float,
        name: str,
        detail: str,
        output: Tensor,
        parts: Sequence[Part] | nn.Module,
    ) -> None:
        """Write a step's name, its parameters and its shape."""
        self.text(x, y, name)
        count = _count(parts if isinstance(parts, Sequence) else [parts])
        if count != "0":
            self.text(RIGHT - 10, y, count, small=True, ink="muted", anchor="end")
        self.shape(y, output)
        learned = "" if count == "0" else f", {count} parameters"
        self.words.append(
            f"{name[:1].upper() + name[1:]}{', ' + detail if detail else ''}: "
            f"{_shape(output)}{learned}."
        )

    def leave(self) -> None:
        """Let a branch leave the stream."""
        self.y += 4
        self.branched = self.y
        self.line(f"M {STREAM:g} {self.y:g} H {MIDDLE:g} V {self.y + 16:g}")
        self.y += 16

    def come_back(self, output: Tensor) -> None:
        """Add the branch to the stream."""
        self.line(f"M {MIDDLE:g} {self.y:g} V {self.y + 8:g} H {STREAM:g}")
        self.y += 8
        start = self.branched - 14
        self.line(f"M {STREAM:g} {start:g} V {self.y + 22:g}", thick=True)
        self.front.append(
            f'<circle cx="{STREAM:g}" cy="{self.y:g}" r="12" '
            f'style="fill:{colour("surface")};stroke:{colour("1")}" stroke-width="2"/>'
            f'<path d="M {STREAM - 6:g} {self.y:g} h 12 m -6 -6 v 12" '
            f'style="stroke:{colour("1")}" stroke-width="2"/>'
        )
        self.shape(self.y + 5, output)
        self.words.append(f"Added to the stream: {_shape(output)}.")
        self.y += 22

    def frame(self, top: float, bottom: float) -> None:
        """Put a tinted frame behind what was drawn from `top` to `bottom`."""
        self.behind.insert(
            0,
            f'<rect x="2" y="{top:g}" width="{WIDTH - 4:g}" height="{bottom - top:g}" '
            f'rx="8" style="fill:{colour("1")}" fill-opacity="0.08"/>',
        )
        self.line(f"M {STREAM:g} {top - 2:g} V {top + 34:g}", thick=True)
        self.line(f"M {STREAM:g} {bottom - 6:g} V {bottom + 14:g}", thick=True)


def _data_uri(image: Tensor) -> str:
    """Encode an image (C, H, W) as PNG, stretched where it leaves 0 to 1."""
    pixels = image.detach().float().cpu()
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        pixels = (pixels - low) / (high - low or 1.0)
    grey_or_rgb = pixels if len(pixels) == 3 else pixels.mean(0, keepdim=True)
    array = (grey_or_rgb * 255).round().byte().permute(1, 2, 0).numpy()
    out = io.BytesIO()
    Image.fromarray(array.squeeze(-1) if array.shape[-1] == 1 else array).save(
        out, "PNG"
    )
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
