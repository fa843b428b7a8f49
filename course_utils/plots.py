"""The course's figures: pictures of images, patches and maps, and a few charts.

All are drawn by matplotlib and returned as `Figure`, SVG in the colours of the site.
For a figure of your own, draw with matplotlib and hand it to `figure`.

Axes: B images, C channels, H W image, h w grid, P patch (P high, Q wide), N patches,
K classes, M points of a curve.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from PIL import Image

from course_utils.figures import COLOURS, FONT, Figure, colour, svg_element
from course_utils.patches import Size, as_pair, patch_grid, patchify

SERIES = tuple(COLOURS[name] for name in "123456")
INK, MUTED, SURFACE, LINE, HIGHLIGHT = (
    COLOURS[name] for name in ("ink", "muted", "surface", "line", "highlight")
)
MAP_COLOURS = matplotlib.colormaps["viridis"]  # even steps to any reader's eye

# Lengths in inches, text in points. A figure of this width on a phone has seven tenths
# of its size, and its text ten pixels.
WIDTH, EDGE, GAP = 5.2, 0.03, 0.14
TEXT, SMALL = 11.5, 11.0

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: same layout anywhere
    "font.size": TEXT,
    "text.color": INK,
    "figure.facecolor": SURFACE,
    "savefig.facecolor": SURFACE,
    "axes.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": SMALL,
    "axes.titlesize": SMALL,
    "axes.titlecolor": MUTED,
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=SERIES),
    "grid.color": LINE,
    "grid.linewidth": 0.75,
    "lines.linewidth": 2.0,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "xtick.major.pad": 6.0,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "image.interpolation": "none",  # rasters at their own resolution
    "image.composite_image": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "course",  # the same figure always has the same bytes
}
_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
_BYTES = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1.0}


# --- figures of your own ---------------------------------------------------------


@contextmanager
def style() -> Iterator[None]:
    """Draw in the course's style in a ``with`` block, or in a function it decorates.

    Outside, matplotlib's settings stay as they are.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


@style()
def new_figure(
    width: float = WIDTH, height: float = 3.0, rows: int = 1, columns: int = 1
) -> tuple[MatplotlibFigure, Any]:
    """Make a matplotlib figure in the course's style; draw on it under `style`.

    Args:
        width: in inches; the default fills a phone and keeps its text readable.
        height: in inches.
        rows: of axes.
        columns: of axes.

    Returns:
        The figure and its axes, as ``plt.subplots`` does.
    """
    fig = MatplotlibFigure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots(rows, columns)


@style()
def figure(fig: MatplotlibFigure, *, alt: str, caption: str = "") -> Figure:
    """Turn a matplotlib figure into one that follows the theme, and close it.

    Args:
        fig: what was drawn; black, white and the colours of `COLOURS` become variables.
        alt: what it shows.
        caption: what to see in it.

    Raises:
        ValueError: if `alt` says nothing.
    """
    svg, png = io.StringIO(), io.BytesIO()
    fig.savefig(svg, format="svg", metadata={"Date": None})
    fig.savefig(png, format="png", dpi=144, metadata={"Software": None})
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(fig)  # or a notebook would show it a second time
    return Figure(_themed(svg.getvalue(), alt), alt, caption, png.getvalue())


def _themed(document: str, alt: str) -> str:
    """Make one element of matplotlib's SVG: theme colours, ids of its own."""
    opening, body = document[document.index("<svg") :].split(">", 1)
    view = opening.split('viewBox="')[1].split('"')[0]
    width, height = (round(float(side) * 96 / 72) for side in view.split()[2:])
    palette = {value.lower(): colour(name) for name, value in COLOURS.items()}
    palette["#000000"] = colour("ink")
    for pattern, new in (
        # Its style sheet selects `*` and would reach the whole page.
        (r"</svg>|(?s:<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->)", ""),
        (r"<defs>\s*</defs>", ""),
        (r"xlink:href", "href"),
        (r"\s*\n\s*", "\n"),
        (r"data:image/png;base64,[^\"]+", lambda found: _smaller(found[0])),
        # A photograph is smoothed when scaled, any other raster keeps its squares.
        (r'(<image [^>]*jpeg[^>]*?) style="image-rendering[^"]*"', r"\1"),
        # The reader's own font; matplotlib's releases name theirs in two ways.
        (r"(font-family:|font: [^;\"]*?px) [^;\"]+", rf"\1 {FONT}"),
        (r"#[0-9a-f]{6}(?=[;\"])", lambda found: palette.get(found[0], found[0])),
    ):
        body = re.sub(pattern, new, body)
    digest = hashlib.sha256((body + alt).encode()).hexdigest()[:10]
    used = sorted(set(re.findall(r'(?:url\(#|href="#)([^")]+)', body)))
    names = {old: f"f{digest}-{i}" for i, old in enumerate(used)}
    body = re.sub(
        r' id="([^"]+)"',
        lambda found: f' id="{names[found[1]]}"' if found[1] in names else "",
        body,
    )
    body = re.sub(
        r'(url\(#|href="#)([^")]+)', lambda found: found[1] + names[found[2]], body
    )
    return svg_element(body.strip(), width, height, alt, view)


def _smaller(uri: str) -> str:
    """Turn the data URI of a photograph into JPEG; other rasters stay exact."""
    data = io.BytesIO(base64.b64decode(uri.split(",")[1]))
    picture = Image.open(data).convert("RGB")
    if min(picture.size) < 64 or picture.getcolors(256):  # few colours: not a photo
        return uri
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=88, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


# --- images ----------------------------------------------------------------------


@style()
def show_pixels(
    pixels: Any, *, patch_size: Size | None = None, caption: str = ""
) -> Figure:
    """Show a small grid of numbers, every number printed in its cell.

    Args:
        pixels: (H, W), numbers; at most 16 rows, and as many columns as fit.
        patch_size: colour the cells patch by patch, and put beside the grid the rows
            of numbers that the patches become.
        caption: what to see in the figure.

    Raises:
        ValueError: if the patch does not divide the grid, or it is too large to read.
    """
    grid = _array(pixels, "pixels", "H, W")
    H, W = grid.shape
    P, Q = as_pair((H, W) if patch_size is None else patch_size, "patch_size")
    patches = patchify(torch.from_numpy(grid.copy())[None, None], (P, Q))[0].numpy()
    N, length = (0, 0) if patch_size is None else patches.shape
    start = W + 2.7  # of the rows, after their names
    across, down = (start + length if N else W), max(H, N)
    longest = max(len(_number(value)) for value in grid.flat)
    most = (WIDTH - 2 * EDGE) / max(0.27, 0.085 * longest)
    if across > most or down > 16:
        raise ValueError(
            f"pixels of shape {grid.shape} need {across:.0f} × {down} cells; with "
            f"numbers of up to {longest} characters {int(most)} × 16 can be read. Take "
            "a smaller grid or rounder numbers, or show_images for a real image"
        )
    side, top = min(0.42, (WIDTH - 2 * EDGE) / across), 0.34
    fig = MatplotlibFigure((across * side + 2 * EDGE, down * side + top + EDGE))
    axes = _panel(fig, EDGE, top, across * side, down * side)
    axes.set(xlim=(0, across), ylim=(down, 0))
    quiet = {"color": MUTED, "fontsize": SMALL}
    cell = {"ec": SURFACE, "lw": 1.5, "clip_on": False}
    middle = {"ha": "center", "va": "center", "fontsize": SMALL}
    # Without patches the shade follows the value, as in a grey image.
    shade = 0.05 + 0.35 * (grid - grid.min()) / (float(np.ptp(grid)) or 1.0)
    for (y, x), value in np.ndenumerate(grid):
        k = y // P * (W // Q) + x // Q
        face = to_rgba(SERIES[k % len(SERIES)], 0.22 if N else shade[y, x])
        axes.add_patch(Rectangle((x, y), 1, 1, fc=face, **cell))
        axes.text(x + 0.5, y + 0.52, _number(value), **middle)
    _cuts(axes, (H, W), (P, Q), color=SURFACE, lw=6)
    axes.text(0, -0.28, size := f"{H} × {W} pixels", **quiet)
    alt = f"A grid of {size}, row by row: {_rows(grid)}."
    if N:
        drop = (down - N) / 2
        axes.text(start, drop - 0.28, f"{N} rows of {length}", **quiet)
        for k, row in enumerate(patches):
            y, face = k + drop, to_rgba(SERIES[k % len(SERIES)], 0.22)
            name = {"ha": "right", "va": "center", **quiet}
            axes.text(start - 0.2, y + 0.52, f"patch {k}", **name)
            for x, value in enumerate(row, 1):
                x += start - 1
                axes.add_patch(Rectangle((x, y), 1, 1, fc=face, **cell))
                axes.text(x + 0.5, y + 0.52, _number(value), **middle)
        alt += f" Its {N} patches of {P} × {Q}, a row each: {_rows(patches)}."
    return figure(fig, alt=alt, caption=caption)


def show_grid(
    image: Any, patch_size: Size, *, what: str = "an image", caption: str = ""
) -> Figure:
    """Show an image under the grid that cuts it into patches.

    Args:
        image: (C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        patch_size: P, or (P, Q).
        what: what the image shows, for the alternative text.
        caption: what to see in the figure.

    Raises:
        ValueError: if the patch does not divide the image, or values leave 0 to 1.
    """
    return show_grids(image, [patch_size], what=what, caption=caption)


@style()
def show_grids(
    image: Any,
    patch_sizes: Sequence[Size],
    *,
    what: str = "an image",
    caption: str = "",
) -> Figure:
    """Show the same image under one grid after the other, two in a row.

    Args:
        image: (C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        patch_sizes: P, or (P, Q), of each grid.
        what: what the image shows, for the alternative text.
        caption: what to see in the figure.

    Raises:
        ValueError: if a patch does not divide the image, if there is none, or if
            values leave 0 to 1.
    """
    pixels = _pictures(image, "image", "C, H, W")
    H, W = pixels.shape[:2]
    sizes = [as_pair(size, "patch_sizes") for size in patch_sizes]
    if not sizes:
        raise ValueError("patch_sizes is empty; give at least one patch size")
    grids = [patch_grid((H, W), size) for size in sizes]
    titles = [
        f"P = {P if P == Q else f'{P} × {Q}'}: {_number(h * w)} tokens"
        for (P, Q), (h, w) in zip(sizes, grids, strict=True)
    ]
    names = titles if len(sizes) > 1 else [""]
    fig, panels = _gallery([[pixels]] * len(sizes), names, columns=2, side=3.6)
    for axes, size in zip(panels, sizes, strict=True):
        _cuts(axes, (H, W), size, color=HIGHLIGHT, lw=0.9)
    cuts = "; ".join(
        f"{h} rows of {w} patches of {P} × {Q} pixels, {_number(h * w)} in all"
        for (P, Q), (h, w) in zip(sizes, grids, strict=True)
    )
    cut = "a grid" if len(sizes) == 1 else f"{len(sizes)} grids in turn"
    alt = f"{_sentence(what)}, {H} × {W} pixels, under {cut}: {cuts}."
    return figure(fig, alt=alt, caption=caption)


@style()
def show_patches(
    image: Any, patch_size: Size, *, what: str = "an image", caption: str = ""
) -> Figure:
    """Show an image with its grid, and beside it the tiles that it falls into.

    The tiles are numbered in reading order; where there is no room for that, the first
    tiles of rows are.

    Args:
        image: (C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        patch_size: P, or (P, Q).
        what: what the image shows, for the alternative text.
        caption: what to see in the figure.

    Raises:
        ValueError: if the patch does not divide the image, or values leave 0 to 1.
    """
    pixels = _pictures(image, "image", "C, H, W")
    H, W = pixels.shape[:2]
    P, Q = as_pair(patch_size, "patch_size")
    h, w = patch_grid((H, W), (P, Q))
    every = w <= 7  # there is room for a number above every tile
    line, between = 0.2, (0.3 if every else 0.5)  # inches
    side = (WIDTH - 2 * EDGE - between) / 2
    across = max(1, round(Q * (0.25 if every else 0.13)))
    inch = (W + (w - 1) * across) / side  # in pixels of the tiles
    down = max(1, round(line * inch)) if every else across
    # One raster for all tiles, seen through as many windows: hundreds of small
    # pictures would weigh far more.
    room = ((0, 0), (0, down), (0, 0), (0, across), (0, 0))
    apart = np.pad(pixels.reshape(h, P, w, Q, 3), room, mode="edge")
    apart = apart.reshape(h * (P + down), w * (Q + across), 3)[:-down, :-across]
    corners = [(k % w * (Q + across), k // w * (P + down)) for k in range(h * w)]
    tiles = [
        Path([(x, y), (x + Q, y), (x + Q, y + P), (x, y + P), (x, y)], closed=True)
        for x, y in corners
    ]
    tall = [side * H / W, len(apart) / inch]
    top, first = 0.3, (line if every else 0.0)
    fig = MatplotlibFigure((WIDTH, top + max(tall[0], first + tall[1]) + EDGE))

    axes = _panel(fig, EDGE, top, side, tall[0], pixels)
    _cuts(axes, (H, W), (P, Q), color=HIGHLIGHT, lw=0.9)
    axes.set_title(f"{H} × {W} pixels", pad=6)

    left, window = EDGE + side + between, Path.make_compound_path(*tiles)
    axes = _panel(fig, left, top + first, side, tall[1], apart, window)
    axes.set_title(f"{h * w} patches of {P} × {Q}", pad=6 + 72 * first)
    number = {"color": MUTED, "fontsize": SMALL}
    if every:
        for k, (x, y) in enumerate(corners):
            axes.text(x, y - 0.04 * inch, str(k), **number)
    else:
        for k in range(0, h * w, w * math.ceil(line * inch / (P + down))):
            place = (-0.08 * inch, corners[k][1] + P / 2)
            axes.text(*place, str(k), ha="right", va="center", **number)
    alt = (
        f"{_sentence(what)}, {H} × {W} pixels, and beside it the same image cut into "
        f"{h} rows of {w} tiles of {P} × {Q} pixels, numbered 0 to {h * w - 1} in "
        "reading order."
    )
    return figure(fig, alt=alt, caption=caption)


@style()
def show_images(
    images: Any,
    titles: Sequence[object] | None = None,
    *,
    columns: int = 5,
    alt: str = "",
    caption: str = "",
) -> Figure:
    """Show a gallery of images.

    Args:
        images: (B, C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        titles: one a picture, drawn above it.
        columns: most pictures in a row.
        alt: what the pictures show; made from the titles if there are any.
        caption: what to see in the figure.

    Raises:
        ValueError: if neither titles nor alt say what the pictures are, if their
            number differs from B, or if values leave 0 to 1.
    """
    pictures = _pictures(images, "images", "B, C, H, W")
    B, H, W = pictures.shape[:3]
    names = _titles(titles, B)
    if titles is None and not alt:
        raise ValueError("nothing says what the images show; pass titles=… or alt=…")
    fig, _ = _gallery([[picture] for picture in pictures], names, columns=columns)
    listed = ": " + "; ".join(names) if titles is not None else ""
    alt = f"{alt} {_count(B, 'image')} of {H} × {W} pixels{listed}.".strip()
    return figure(fig, alt=alt, caption=caption)


@style()
def show_maps(
    maps: Any,
    titles: Sequence[object] | None = None,
    *,
    images: Any = None,
    vmin: float = 0.0,
    vmax: float | None = None,
    label: str = "value",
    columns: int = 5,
    caption: str = "",
) -> Figure:
    """Show maps of numbers on one colour scale, its numbers below.

    Args:
        maps: (B, h, w), any finite numbers.
        titles: one a map, drawn above it.
        images: (B, C, H, W), drawn above their maps, which are as large as they are.
        vmin: the value of the first colour.
        vmax: the value of the last colour, the largest in the maps by default.
        label: what the numbers are.
        columns: most maps in a row.
        caption: what to see in the figure.

    Raises:
        ValueError: if shapes differ, or a value lies outside vmin to vmax: a scale
            that hides values would mislead.
    """
    grids = _array(maps, "maps", "B, h, w").astype(np.float64)
    B, h, w = grids.shape
    names = _titles(titles, B)
    vmax = float(grids.max()) if vmax is None else vmax
    if not vmin <= grids.min() <= grids.max() <= vmax or not vmin < vmax:
        raise ValueError(
            f"maps run from {grids.min():.3g} to {grids.max():.3g}, which the scale "
            f"from {vmin:.3g} to {vmax:.3g} does not hold; choose another vmin or vmax"
        )
    stacks = [[MAP_COLOURS((grid - vmin) / (vmax - vmin))[..., :3]] for grid in grids]
    if images is not None:
        pictures = _pictures(images, "images", "B, C, H, W")
        if len(pictures) != B:
            raise ValueError(f"{len(pictures)} images for {B} maps; give one a map")
        stacks = [
            [picture, *map_] for picture, map_ in zip(pictures, stacks, strict=True)
        ]
    fig, _ = _gallery(stacks, names, columns=columns, foot=0.68)
    _colour_bar(fig, vmin, vmax, label)
    alt = (
        f"{_count(B, 'map')} of {h} × {w} numbers, {label}, on one scale from "
        f"{_number(vmin)} to {_number(vmax)}."
    )
    for name, grid in zip(names, grids, strict=True):
        row, column = np.unravel_index(grid.argmax(), grid.shape)
        span = f"from {_number(grid.min())} to {_number(grid.max())}"
        span = f"{name}: {span}" if name else _sentence(span)
        alt += f" {span}, largest in row {row + 1}, column {column + 1}."
    return figure(fig, alt=alt, caption=caption)


def show_attention(
    images: Any,
    maps: Any,
    titles: Sequence[object] | None = None,
    *,
    vmax: float | None = None,
    columns: int = 5,
    caption: str = "",
) -> Figure:
    """Show images, and under each how much attention each of its patches gets.

    All maps share one colour scale from 0 to `vmax`, by default the largest weight:
    a map that is rescaled by itself hides how strong its attention is.

    Args:
        images: (B, C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        maps: (B, h, w), attention weights, none below 0.
        titles: one an image, drawn above it.
        vmax: the weight of the last colour.
        columns: most images in a row.
        caption: what to see in the figure.

    Raises:
        ValueError: as `show_maps` does.
    """
    return show_maps(
        maps,
        titles,
        images=images,
        vmax=vmax,
        label="attention weight",
        columns=columns,
        caption=caption,
    )


def _gallery(
    stacks: Sequence[Sequence[NDArray[Any]]],
    titles: Sequence[str],
    *,
    columns: int,
    side: float = 1.6,
    foot: float = 0.0,
) -> tuple[MatplotlibFigure, list[Axes]]:
    """Draw stacks of pictures in rows, each with its title, at most `side` wide.

    All pictures have the size of the first. `foot` inches stay free below.
    Returns the figure and the uppermost axes of each stack.
    """
    if columns < 1:
        raise ValueError(f"columns is {columns}; draw at least 1 picture in a row")
    across = min(columns, len(stacks))
    side = min(side, (WIDTH - 2 * EDGE - GAP * (across - 1)) / across)
    tall = side * stacks[0][0].shape[0] / stacks[0][0].shape[1]
    lines = [textwrap.fill(title, max(4, int(side * 11.5))) for title in titles]
    most = max(line.count("\n") + 1 if line else 0 for line in lines)
    top = 0.2 * most + 0.06 * bool(most)
    apart = 0.08  # an image and its map
    pitch = top + len(stacks[0]) * (tall + apart) - apart + GAP
    wide = across * (side + GAP) - GAP + 2 * EDGE
    high = -(-len(stacks) // across) * pitch - GAP + 2 * EDGE
    fig = MatplotlibFigure((max(wide, 2.4 if foot else 0), high + foot))
    panels = []
    for k, (stack, line) in enumerate(zip(stacks, lines, strict=True)):
        x, y = EDGE + k % across * (side + GAP), EDGE + k // across * pitch + top
        drawn = [
            _panel(fig, x, y + n * (tall + apart), side, tall, picture)
            for n, picture in enumerate(stack)
        ]
        drawn[0].set_title(line, pad=5)
        panels.append(drawn[0])
    return fig, panels


def _colour_bar(fig: MatplotlibFigure, low: float, high: float, label: str) -> None:
    """Draw the scale of the maps at the foot of a figure."""
    colours = MAP_COLOURS(np.linspace(0, 1, 128))[None, :, :3]
    axes = _panel(fig, EDGE, fig.get_figheight() - 0.4, 2.3, 0.12, colours)
    axes.set_title(label, pad=5)
    for x, value, side in (
        (0, low, "left"),
        (64, (low + high) / 2, "center"),
        (128, high, "right"),
    ):
        number = {"color": MUTED, "fontsize": SMALL, "ha": side, "va": "top"}
        axes.annotate(
            _number(value), (x, 1), (0, -4), textcoords="offset points", **number
        )


def _panel(
    fig: MatplotlibFigure,
    left: float,
    top: float,
    width: float,
    height: float,
    pixels: NDArray[Any] | None = None,
    window: Path | None = None,
) -> Axes:
    """Add bare axes, placed in inches from the figure's top left.

    `pixels` (H, W, 3) in 0 to 1 fill them, lend them their coordinates, and are seen
    through the window, if there is one.
    """
    across, down = fig.get_size_inches()
    axes = fig.add_axes(
        (left / across, 1 - (top + height) / down, width / across, height / down)
    )
    axes.set_axis_off()
    if pixels is not None:
        H, W = pixels.shape[:2]
        raster = (pixels * 255).round().astype(np.uint8)
        image = axes.imshow(raster, extent=(0, W, H, 0), aspect="auto")
        window = window or Path([(0, 0), (W, 0), (W, H), (0, H), (0, 0)], closed=True)
        # A hairline parts a black image from a dark page, a white one from a light.
        frame = PathPatch(window, fill=False, ec=LINE, lw=0.75, clip_on=False)
        axes.add_patch(frame)
        image.set_clip_path(frame)
    return axes


def _cuts(
    axes: Axes, size: tuple[int, int], patch: tuple[int, int], **line: Any
) -> None:
    """Draw lines between the patches of an image."""
    (H, W), (P, Q) = size, patch
    axes.hlines(range(P, H, P), 0, W, **line)
    axes.vlines(range(Q, W, Q), 0, H, **line)


# --- charts ----------------------------------------------------------------------


@style()
def plot_scaling(
    tokens: Any, seconds: Any, *, memory: Any = None, caption: str = ""
) -> Figure:
    """Plot the measured cost of attention against the number of tokens and its square.

    Args:
        tokens: (M,), token counts, rising.
        seconds: (M,), the time of one attention at each.
        memory: (M,), bytes at each, for a second panel.
        caption: what to see in the figure.

    Raises:
        ValueError: if lengths differ, or a value is not above 0.
    """
    n = _array(tokens, "tokens", "M").astype(np.float64)
    costs = [("time", _array(seconds, "seconds", "M"), _SECONDS)]
    if memory is not None:
        costs.append(("memory", _array(memory, "memory", "M"), _BYTES))
    alt = "Cost against number of tokens, both axes logarithmic."
    fig, grid = new_figure(height=3.0 * len(costs), rows=len(costs))
    fig.get_layout_engine().set(hspace=0.1)
    for axes, (name, cost, units) in zip(np.ravel(grid), costs, strict=True):
        if cost.shape != n.shape or (np.diff(n) <= 0).any() or min(n[0], *cost) <= 0:
            raise ValueError(
                f"tokens {n.tolist()} and {name} {cost.tolist()} do not go together; "
                f"tokens must rise, and each needs one {name}, all above 0"
            )
        # The square passes through the last point: there N² is all that counts.
        square = cost[-1] * (n / n[-1]) ** 2
        axes.plot(n, square, "--", color=MUTED, lw=1.25)
        axes.plot(n, cost, "o-", color=SERIES[0], ms=6)
        axes.set(xscale="log", yscale="log", title=name)
        axes.xaxis.set_major_locator(FixedLocator(n.tolist()))
        axes.xaxis.set_major_formatter(lambda value, _: _number(value))
        axes.yaxis.set_major_formatter(lambda value, _, u=units: _in_unit(value, u))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        m = len(n) // 2
        ground = {"fc": SURFACE, "ec": "none", "pad": 1}  # over the grid's lines
        for text, y, other, ink in (
            ("measured", cost[m], square[m], SERIES[0]),
            ("in step with N²", square[m], cost[m], MUTED),
        ):
            upper = y > other or (y == other and ink != MUTED)
            place = (-9, 7) if upper else (9, -7)
            side = {
                "ha": "right" if upper else "left",
                "va": "bottom" if upper else "top",
            }
            axes.annotate(
                text,
                (n[m], y),
                place,
                textcoords="offset points",
                bbox=ground,
                color=ink,
                **side,
            )
        alt += f" {_sentence(name)}: " + "; ".join(
            f"{_number(a)} tokens, {_in_unit(b, units)}"
            for a, b in zip(n, cost, strict=True)
        )
        if len(n) > 1:
            alt += (
                f". From {_number(n[-2])} to {_number(n[-1])} tokens it grows "
                f"{cost[-1] / cost[-2]:.1f} times, where N² grows "
                f"{(n[-1] / n[-2]) ** 2:.1f} times"
            )
        alt += "."
    axes.set_xlabel("tokens N")
    return figure(fig, alt=alt, caption=caption)


@style()
def plot_curves(
    curves: Mapping[str, Any],
    *,
    ylabel: str,
    xlabel: str = "epoch",
    x: Any = None,
    log_x: bool = False,
    baseline: tuple[str, float] | None = None,
    caption: str = "",
) -> Figure:
    """Plot curves over epochs, or over any `x`, each with its spread over seeds.

    A line is the mean over seeds, the band around it runs from the lowest to the
    highest seed. Each curve is named at its end.

    Args:
        curves: name → (M,) or (seeds, M); at most six.
        ylabel: what the curves show, with its unit.
        xlabel: what they are drawn over.
        x: (M,), where the points lie; 1 to M by default.
        log_x: whether equal steps of x are equal factors.
        baseline: the name and height of a line to compare with, such as
            ("always guess 1", 0.12).
        caption: what to see in the figure.

    Raises:
        ValueError: if there are no curves or too many, or lengths differ.
    """
    if not 1 <= len(curves) <= len(SERIES):
        raise ValueError(f"got {len(curves)} curves; draw 1 to {len(SERIES)} a figure")
    runs = {
        name: _array(np.atleast_2d(_numpy(values)), f"curve {name!r}", "seeds, M")
        for name, values in curves.items()
    }
    counts = {name: run.shape[1] for name, run in runs.items()}
    M = max(counts.values())
    places = np.arange(1, M + 1) if x is None else _array(x, "x", "M")
    if {*counts.values(), len(places)} != {M}:
        raise ValueError(
            f"x has {len(places)} points and the curves {counts}; make them equal"
        )
    first, last = _number(places[0]), _number(places[-1])
    alt = f"{_sentence(ylabel)} against {xlabel}, {first} to {last}."
    ends = []
    fig, axes = new_figure()
    for (name, run), ink in zip(runs.items(), SERIES, strict=False):
        mean, low, high = run.mean(0), run.min(0), run.max(0)
        axes.plot(places, mean, "-" if M > 1 else "o", color=ink)
        ends.append((name, mean[-1], ink))
        alt += f" {_sentence(name)}: {_number(mean[0])} to {_number(mean[-1])}"
        if len(run) > 1:
            axes.fill_between(places, low, high, color=ink, alpha=0.18, lw=0)
            alt += f", mean of {len(run)} seeds, in the end between "
            alt += f"{_number(low[-1])} and {_number(high[-1])}"
        alt += "."
    if baseline:
        axes.axhline(baseline[1], color=MUTED, lw=1.25, ls="--")
        ends.append((*baseline, MUTED))
        alt += f" Dashed line, {baseline[0]}: {_number(baseline[1])}."
    axes.set(xlabel=xlabel, title=ylabel, xscale="log" if log_x else "linear")
    if log_x:
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: _number(value))
    axes.margins(x=0.02)
    _name_ends(fig, axes, ends)
    return figure(fig, alt=alt, caption=caption)


def _name_ends(
    fig: MatplotlibFigure, axes: Axes, ends: list[tuple[str, float, str]]
) -> None:
    """Write each curve's name beside its last point, moved apart where they touch."""
    fig.draw_without_rendering()  # the layout decides how far apart the ends are
    ends = sorted(ends, key=lambda end: end[1])
    lines = [textwrap.fill(name, 18) for name, _, _ in ends]
    points = [axes.transData.transform((1, y))[1] * 72 / fig.dpi for _, y, _ in ends]
    tall = np.array([14.0 * (line.count("\n") + 1) for line in lines])
    placed = np.array(points)
    for _ in range(200):
        lack = (tall[1:] + tall[:-1]) / 2 - np.diff(placed)
        push = np.maximum(lack, 0) / 2
        placed += np.append(0, push) - np.append(push, 0)
    for line, (_, y, ink), moved in zip(lines, ends, placed - points, strict=True):
        axes.annotate(
            line,
            (1, y),
            (7, moved),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=ink,
            va="center",
        )


@style()
def plot_bars(
    bars: Mapping[str, Any],
    *,
    xlabel: str,
    baseline: tuple[str, float] | None = None,
    caption: str = "",
) -> Figure:
    """Plot horizontal bars with their numbers, and their spread over seeds.

    A bar is the mean of its values; dots are the single values.

    Args:
        bars: name → one number, or (seeds,); none below 0.
        xlabel: what the bars measure, with its unit.
        baseline: the name and place of a line to compare with.
        caption: what to see in the figure.

    Raises:
        ValueError: if there are no bars, or a value is below 0.
    """
    values = {
        name: _array(np.atleast_1d(_numpy(value)), f"bar {name!r}", "seeds")
        for name, value in bars.items()
    }
    if not values or min(value.min() for value in values.values()) < 0:
        raise ValueError(f"bars are {bars}; give at least one, and no value below 0")
    means = [float(value.mean()) for value in values.values()]
    reach = [float(value.max()) for value in values.values()]
    fig, axes = new_figure(height=0.62 + 0.42 * len(values))
    _bars(axes, list(values), means, reach, [_number(mean) for mean in means])
    alt = f"Bars: {xlabel}."
    for row, (name, value) in enumerate(values.items()):
        alt += f" {_sentence(name)}: {_number(means[row])}"
        if len(value) > 1:
            axes.patches[row].set_alpha(0.4)
            axes.plot(value, [row] * len(value), "o", color=SERIES[0], ms=5)
            alt += f", mean of {len(value)} seeds, {_number(value.min())} to "
            alt += _number(value.max())
        alt += "."
    if baseline:
        axes.axvline(baseline[1], color=MUTED, lw=1.25, ls="--")
        axes.annotate(
            baseline[0],
            (baseline[1], 1),
            (0, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=MUTED,
            fontsize=SMALL,
            ha="center",
        )
        alt += f" Dashed line, {baseline[0]}: {_number(baseline[1])}."
    axes.set(xlim=(0, (max(reach) or 1) * 1.04), xlabel=xlabel)
    return figure(fig, alt=alt, caption=caption)


@style()
def plot_probabilities(
    values: Any, names: Sequence[object] | None = None, *, caption: str = ""
) -> Figure:
    """Plot what a classifier says of one image: a bar for each class.

    Args:
        values: (K,), probabilities.
        names: the classes' names; 0 to K - 1 by default.
        caption: what to see in the figure.

    Raises:
        ValueError: if the probabilities do not sum to 1, or one is below 0.
    """
    p = _array(values, "values", "K").astype(np.float64)
    if p.min() < 0 or abs(p.sum() - 1) > 1e-3:
        raise ValueError(
            f"values sum to {p.sum():.4g}, their smallest is {p.min():.3g}; "
            "probabilities sum to 1: turn logits into them with softmax"
        )
    K = len(p)
    names = _titles(range(K) if names is None else names, K)
    best = int(p.argmax())
    shares = [f"{share:.1%}" for share in p]
    fig, axes = new_figure(height=0.3 + 0.27 * K)
    _bars(axes, names, p, p, shares)
    axes.patches[best].set_color(HIGHLIGHT)
    axes.set(xlim=(0, 1))
    listed = ", ".join(f"{n}: {share}" for n, share in zip(names, shares, strict=True))
    alt = f"Probability of each class, the largest for {names[best]}. {listed}."
    return figure(fig, alt=alt, caption=caption)


def _bars(
    axes: Axes,
    names: Sequence[str],
    lengths: Sequence[float] | NDArray[Any],
    reach: Sequence[float] | NDArray[Any],
    texts: Sequence[str],
) -> None:
    """Draw horizontal bars from the top, each with a text from `reach` on."""
    axes.barh(range(len(names)), lengths, height=0.66, color=SERIES[0])
    for row, (text, x) in enumerate(zip(texts, reach, strict=True)):
        axes.annotate(text, (x, row), (7, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set_xticks([])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


# --- input and words -------------------------------------------------------------


def _numpy(values: Any) -> NDArray[Any]:
    """Read a tensor, on any device and with any history, or what else is array-like."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def _array(values: Any, name: str, axes: str) -> NDArray[Any]:
    """Read an array, and check its number of axes and that it is finite."""
    array = _numpy(values)
    wanted = len(axes.split(", "))
    if array.ndim != wanted:
        remedy = (
            f"take one with {name}[0]"
            if array.ndim > wanted
            else f"add an axis in front with {name}[None]"
        )
        raise ValueError(
            f"{name} has shape {array.shape}, but needs the axes ({axes}); {remedy}"
        )
    if not array.size:
        raise ValueError(f"{name} has shape {array.shape}; there is nothing to draw")
    if not np.isfinite(array).all():
        count = int((~np.isfinite(array)).sum())
        raise ValueError(
            f"{name} holds {count} numbers that are not finite (NaN or infinite); "
            "find where they come from, a figure cannot show them"
        )
    return array


def _pictures(images: Any, name: str, axes: str) -> NDArray[Any]:
    """Read images in 0 to 1 or uint8, channels first, as float (…, H, W, 3)."""
    array = _array(images, name, axes)
    channels = array.shape[-3]
    if channels not in (1, 3):
        raise ValueError(
            f"{name} has {channels} channels in shape {array.shape}; only 1 (grey) or "
            "3 (RGB) can be shown, channels before height and width"
        )
    array = array / 255 if array.dtype == np.uint8 else array.astype(np.float64)
    low, high = array.min(), array.max()
    if low < -1e-6 or high > 1 + 1e-6:
        raise ValueError(
            f"{name} runs from {low:.3g} to {high:.3g}; figures draw values 0 to 1: "
            "divide by 255, or undo the normalisation first"
        )
    array = np.moveaxis(array.clip(0, 1), -3, -1)
    return np.broadcast_to(array, (*array.shape[:-1], 3))


def _titles(titles: Sequence[object] | None, count: int) -> list[str]:
    names = [""] * count if titles is None else [str(title) for title in titles]
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} to be named; give one each")
    return names


def _number(value: float) -> str:
    """Write a number as the eye wants it: 1,500 or 0.939 or −12."""
    whole = abs(value) >= 1000 or float(value).is_integer()
    return f"{value:,.{'0f' if whole else '3g'}}".replace("-", "−")


def _in_unit(value: float, units: Mapping[str, float]) -> str:
    """Write a number in the largest unit of which it makes a whole one."""
    fitting = (unit for unit, size in units.items() if value >= 0.9995 * size)
    unit = next(fitting, list(units)[-1])
    return f"{_number(value / units[unit])} {unit}"


def _rows(grid: NDArray[Any]) -> str:
    return "; ".join(" ".join(_number(value) for value in row) for row in grid)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
