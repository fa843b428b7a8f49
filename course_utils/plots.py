"""Figures of the course: quiet, readable without colour, alive in light and dark.

Every function here returns a :class:`Figure`, which a notebook displays as inline
SVG. Its colours are CSS variables with the light value as fallback, so that a
figure follows the theme of the site and stays readable where the site's styles do
not reach. Every figure carries alternative text that states the facts it shows.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray
from PIL import Image

from course_utils.patches import Size, as_pair, patch_grid

__all__ = [
    "COLOURS",
    "Figure",
    "figure",
    "new_figure",
    "plot_bars",
    "plot_curves",
    "plot_probabilities",
    "plot_scaling",
    "show_attention",
    "show_grid",
    "show_images",
    "show_maps",
    "show_patches",
    "show_pixels",
    "style",
]

# The course's palette in its light values; course.css holds both themes.
COLOURS = {
    "1": "#0B6E74",
    "2": "#C8551B",
    "3": "#4C5FA8",
    "4": "#A8518A",
    "5": "#6B7F1E",
    "6": "#8A6D3B",
    "ink": "#1F2933",
    "muted": "#5B6770",
    "surface": "#FFFFFF",
    "line": "#D5DBDF",
    "highlight": "#D9480F",
}
SERIES = tuple(COLOURS[name] for name in "123456")
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
)
# On a phone a figure of this width shrinks to about nine tenths of a pixel a
# point, so that text of 10.5 points or more stays readable.
WIDTH = 5.2
TEXT, SMALL = 11.0, 10.5
MAP_COLOURS = "viridis"  # even steps to the eye, also to colour-blind readers

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: same layout anywhere
    "font.size": TEXT,
    "text.color": COLOURS["ink"],
    "figure.facecolor": COLOURS["surface"],
    "savefig.facecolor": COLOURS["surface"],
    "savefig.bbox": None,
    "axes.facecolor": "none",
    "axes.edgecolor": COLOURS["line"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.labelsize": SMALL,
    "axes.titlesize": SMALL,
    "axes.titlecolor": COLOURS["muted"],
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=SERIES),
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.75,
    "lines.linewidth": 2.0,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "xtick.major.pad": 6.0,
    "xtick.labelcolor": COLOURS["muted"],
    "ytick.labelcolor": COLOURS["muted"],
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "image.interpolation": "none",  # rasters at their own resolution
    "image.composite_image": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "course",  # the same figure always has the same bytes
}


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure that a notebook displays, with the words that stand in for it.

    ``svg`` is one ``<svg>`` element coloured by CSS variables, ``alt`` says what it
    shows, ``caption`` says what to see in it, ``png`` is the same picture on a
    light ground for hosts that cannot show SVG.
    """

    svg: str
    alt: str
    caption: str = ""
    png: bytes | None = None

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError(
                "a figure needs alternative text: pass alt='…', a sentence that says "
                "what the picture shows to a reader who cannot see it"
            )

    def __repr__(self) -> str:
        return f"Figure(alt={self.alt!r})"

    @property
    def html(self) -> str:
        """The figure as one HTML element, readable with and without course.css."""
        width = float(re.search(r'<svg[^>]* width="([\d.]+)"', self.svg)[1])  # type: ignore[index]
        caption = (
            '<figcaption style="margin:.6rem 0 0;font-size:.9em;line-height:1.45;'
            'color:var(--course-muted, #5B6770)">'
            f"{html.escape(self.caption, quote=False)}</figcaption>"
            if self.caption
            else ""
        )
        return (
            '<figure class="course-figure" style="box-sizing:border-box;'
            f"max-width:{width + 16:.0f}px;margin:1rem auto;padding:.5rem;"
            "border-radius:6px;background:var(--course-surface, #FFFFFF);"
            f'color:var(--course-ink, #1F2933)">{self.svg}{caption}</figure>'
        )

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
        data = {"text/html": self.html, "text/plain": self.alt}
        if self.png is None:
            data["image/svg+xml"] = self.svg
            return data, {}
        data["image/png"] = base64.b64encode(self.png).decode()
        return data, {"image/png": {"alt": self.alt}}


@contextmanager
def style() -> Iterator[None]:
    """Draw with the course's style inside a ``with`` block; nothing leaks out."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(
    width: float = WIDTH, height: float = 3.0, rows: int = 1, columns: int = 1
) -> tuple[MatplotlibFigure, Any]:
    """Make a matplotlib figure of ``width`` × ``height`` inches in the course's style.

    Returns ``(fig, axes)`` as ``plt.subplots`` does. Draw inside ``with style():``
    so that text and lines take the style too, then hand ``fig`` to :func:`figure`.
    """
    with style():
        fig = MatplotlibFigure(figsize=(width, height), layout="constrained")
        return fig, fig.subplots(rows, columns)


def figure(fig: MatplotlibFigure, *, alt: str, caption: str = "") -> Figure:
    """Turn a matplotlib figure into a displayable :class:`Figure`, and close it.

    ``alt`` says what the figure shows and must not be empty (ValueError);
    ``caption`` says what to see in it. The colours of :data:`COLOURS`, white and
    black become CSS variables.
    """
    if not alt.strip():
        return Figure("", alt)  # raises, with the remedy
    svg, png = io.StringIO(), io.BytesIO()
    with style():
        fig.savefig(svg, format="svg", metadata={"Date": None})
        fig.savefig(png, format="png", dpi=144, metadata={"Software": None})
    from matplotlib import pyplot  # only here: importing it may choose a backend

    pyplot.close(fig)
    return Figure(_themed(svg.getvalue(), alt), alt, caption, png.getvalue())


def svg_element(body: str, width: float, height: float, alt: str, view: str) -> str:
    """Wrap SVG ``body`` in one accessible element of ``width`` × ``height`` CSS pixels.

    ``view`` is the viewBox. Text takes the system's sans-serif.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" '
        f'width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{html.escape(" ".join(alt.split()))}" '
        'style="display:block;width:100%;height:auto;'
        f"font-family:{FONT};font-variant-numeric:tabular-nums;"
        f'fill:var(--course-ink, #1F2933);stroke-linejoin:round">{body}</svg>'
    )


def colour(name: str) -> str:
    """The CSS value of a palette colour, e.g. ``var(--course-ink, #1F2933)``."""
    return f"var(--course-{name}, {COLOURS[name]})"


def _themed(document: str, alt: str) -> str:
    """Matplotlib's SVG document → one small element in theme colours, unique ids."""
    body = document[document.index("<svg") :]
    opening, body = body.split(">", 1)
    view = re.search(r'viewBox="([^"]+)"', opening)[1]  # type: ignore[index]
    width, height = (float(side) * 4 / 3 for side in view.split()[2:])  # pt → px
    body = body[: body.rindex("</svg>")]
    # Its style sheet selects `*` and would reach the whole page.
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->|<defs>\s*</defs>", "", body, flags=re.S)
    body = body.replace("xlink:href", "href")
    body = re.sub(r"data:image/png;base64,[^\"]+", _smaller, body)
    # A photograph is smoothed when scaled; small rasters keep their square pixels.
    body = re.sub(r'(<image [^>]*jpeg[^>]*?) style="image-rendering[^"]*"', r"\1", body)
    body = re.sub(r"(font: [^;\"]*?px) [^;\"]+", rf"\1 {FONT}", body)
    variables = {value.lower(): colour(name) for name, value in COLOURS.items()}
    variables["#000000"] = colour("ink")
    body = re.sub(
        r"(fill|stroke): (#[0-9a-f]{6})",
        lambda m: f"{m[1]}: {variables.get(m[2], m[2])}",
        body,
    )
    body = re.sub(r"\s*\n\s*", "\n", body).strip()
    used = sorted(set(re.findall(r'(?:url\(#|href="#)([^")]+)', body)))
    digest = hashlib.sha256((body + alt).encode()).hexdigest()[:10]
    names = {old: f"f{digest}-{i}" for i, old in enumerate(used)}
    body = re.sub(
        r' id="([^"]+)"',
        lambda m: f' id="{names[m[1]]}"' if m[1] in names else "",
        body,
    )
    body = re.sub(r'(url\(#|href="#)([^")]+)', lambda m: f"{m[1]}{names[m[2]]}", body)
    return svg_element(body, round(width), round(height), alt, view)


def _smaller(match: re.Match[str]) -> str:
    """A photograph's PNG data URI as JPEG; a small raster stays exact."""
    picture = Image.open(io.BytesIO(base64.b64decode(match[0].split(",")[1])))
    if min(picture.size) < 64:
        return match[0]
    out = io.BytesIO()
    picture.convert("RGB").save(out, "JPEG", quality=88, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


# --- input -----------------------------------------------------------------------


def _numpy(values: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def _array(values: Any, name: str, axes: str) -> NDArray[Any]:
    """Any tensor or array as NumPy, its number of axes and finiteness checked."""
    array = _numpy(values)
    if array.ndim != len(axes.split(", ")):
        raise ValueError(
            f"{name} must have the axes ({axes}); got shape {tuple(array.shape)}"
        )
    if not array.size or not np.isfinite(array).all():
        raise ValueError(f"{name} of shape {array.shape} is empty or not finite")
    return array


def _pictures(images: Any, name: str, axes: str = "B, C, H, W") -> NDArray[Any]:
    """Images in 0…1 or uint8, channels first → float (…, H, W, 3), checked."""
    array = _array(images, name, axes)
    array = array / 255.0 if array.dtype == np.uint8 else array.astype(np.float64)
    low, high = array.min(), array.max()
    if low < -1e-6 or high > 1 + 1e-6:
        raise ValueError(
            f"{name} runs from {low:.3g} to {high:.3g}; figures draw values 0…1: "
            "divide by 255, or undo the normalisation first"
        )
    channels = array.shape[-3]
    if channels not in (1, 3):
        raise ValueError(
            f"{name} has {channels} channels in shape {array.shape}; only 1 (grey) or "
            "3 (RGB) can be shown, channels before height and width"
        )
    array = np.moveaxis(array.clip(0, 1), -3, -1)
    return np.broadcast_to(array, (*array.shape[:-1], 3))


# --- drawing ---------------------------------------------------------------------


def _panel(
    fig: MatplotlibFigure, left: float, top: float, width: float, height: float
) -> Axes:
    """Axes without decoration; its place in inches from the figure's top left."""
    across, down = fig.get_size_inches()
    box = (left / across, 1 - (top + height) / down, width / across, height / down)
    axes = fig.add_axes(box)
    axes.set_axis_off()
    return axes


def _raster(axes: Axes, pixels: NDArray[Any]) -> None:
    """Draw (H, W, 3) in 0…1 at native resolution in its own pixel coordinates."""
    height, width = pixels.shape[:2]
    axes.imshow(
        (pixels * 255).round().astype(np.uint8),
        extent=(0, width, height, 0),
        aspect="auto",
    )
    # A hairline keeps a black image apart from a dark page, a white one from white.
    axes.add_patch(
        Rectangle((0, 0), width, height, fill=False, ec=COLOURS["line"], lw=0.75,
                  clip_on=False)
    )  # fmt: skip


def _grid_lines(axes: Axes, shape: tuple[int, ...], patch: tuple[int, int]) -> None:
    height, width = shape[:2]
    lines = {"color": COLOURS["highlight"], "lw": 0.9}
    axes.hlines(range(patch[0], height, patch[0]), 0, width, **lines)
    axes.vlines(range(patch[1], width, patch[1]), 0, height, **lines)


def _number(value: float, digits: int = 3) -> str:
    """A number as the eye wants it: 1,500 or 0.939 or 12."""
    if float(value).is_integer():
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:,.{digits}g}".replace("-", "−")


# --- images ----------------------------------------------------------------------


def show_pixels(
    pixels: Any,
    *,
    patch_size: Size | None = None,
    rows: Any = None,
    title: str = "",
    caption: str = "",
) -> Figure:
    """Show a small grid of numbers, every number printed in its cell.

    Args:
        pixels: (H, W); with the rows beside it at most 16 cells across.
        patch_size: colour the cells patch by patch, and put beside the grid the rows
            of numbers that the patches become.
        rows: (N, P*Q), other rows to put there, each number in the colour of the
            patch it comes from, so that a wrong cut shows. All pixels must differ.
        title: printed above the grid, its size by default.
        caption: what to see in the figure.

    Raises:
        ValueError: if the patch does not divide the grid, the grid is too large to
            read, or `rows` do not tell where each number comes from.
    """
    grid = _array(pixels, "pixels", "H, W")
    height, width = grid.shape
    owner = np.zeros(grid.shape, dtype=int)
    listed: NDArray[Any] = np.empty((0, 0))
    if patch_size is not None:
        patch = as_pair(patch_size, "patch_size")
        across = patch_grid((height, width), patch)[1]
        y, x = np.indices(grid.shape)
        owner = y // patch[0] * across + x // patch[1]
        listed = np.array([grid[owner == k] for k in range(owner.max() + 1)])
    owners = [[k] * listed.shape[1] for k in range(len(listed))]
    if rows is not None:
        if patch_size is None:
            raise ValueError("rows need patch_size=…, which says whose each pixel is")
        listed = _array(rows, "rows", "N, P*Q")
        source = dict(zip(grid.flat, owner.flat, strict=True))
        if len(source) < grid.size or not set(listed.flat) <= set(source):
            raise ValueError(
                "rows must hold numbers of the pixels, and all pixels must differ, or "
                "a number's patch is not known; use arange(H * W).reshape(H, W)"
            )
        owners = [[source[value] for value in row] for row in listed]
    start = width + 2.6
    across, down = (
        (start + listed.shape[1] if len(listed) else width),
        max(height, len(listed)),
    )
    if across > 18.6 or down > 16:
        raise ValueError(
            f"pixels of shape {grid.shape} need {across:.0f} × {down} cells; at most "
            "18 × 16 can be read: use show_images for a real image"
        )
    cell, top = min(0.42, WIDTH / across), 0.34
    with style():
        fig = MatplotlibFigure(figsize=(across * cell + 0.06, down * cell + top + 0.06))
        axes = _panel(fig, 0.03, top, across * cell, down * cell)
        axes.set(xlim=(0, across), ylim=(down, 0))
        quiet = {"color": COLOURS["muted"], "fontsize": SMALL}

        def draw(x: float, y: float, value: float, patch: int, alpha: float) -> None:
            axes.add_patch(
                Rectangle((x, y), 1, 1, fc=(SERIES[patch % len(SERIES)], alpha),
                          ec=COLOURS["surface"], lw=1.5, clip_on=False)
            )  # fmt: skip
            axes.text(x + 0.5, y + 0.52, _number(value), ha="center", va="center")

        # Without patches the shade follows the value, as in a grey image.
        shade = 0.05 + 0.35 * (grid - grid.min()) / (float(np.ptp(grid)) or 1.0)
        for (i, j), value in np.ndenumerate(grid):
            draw(j, i, value, owner[i, j], 0.22 if len(listed) else shade[i, j])
        size = f"{height} × {width} pixels"
        axes.text(0, -0.28, title or size, **quiet)
        if patch_size is not None:
            lines = {"color": COLOURS["surface"], "lw": 6.0}
            axes.hlines(range(patch[0], height, patch[0]), 0, width, **lines)
            axes.vlines(range(patch[1], width, patch[1]), 0, height, **lines)
        drop = (down - len(listed)) / 2
        for k, row in enumerate(listed):
            middle = {"ha": "right", "va": "center"}
            axes.text(start - 0.25, k + drop + 0.52, f"patch {k}", **middle, **quiet)
            for j, value in enumerate(row):
                draw(start + j, k + drop, value, owners[k][j], 0.22)
        if len(listed):
            axes.text(
                start, drop - 0.28, f"{len(listed)} rows of {listed.shape[1]}", **quiet
            )
    alt = f"{title + ': ' if title else ''}a grid of {size}, row by row: {_rows(grid)}."
    if len(listed):
        alt += f" Its {len(listed)} patches, a row each: {_rows(listed)}."
    return figure(fig, alt=_sentence(alt), caption=caption)


def _rows(grid: NDArray[Any]) -> str:
    return "; ".join(" ".join(_number(value) for value in row) for row in grid)


def show_grid(
    image: Any, patch_size: Size, *, what: str = "an image", caption: str = ""
) -> Figure:
    """Show an image under the grid that cuts it into patches.

    Args:
        image: (C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        patch_size: P, or (P, Q); must divide the image (ValueError).
        what: what the image shows, for the alternative text.
        caption: what to see in the figure.
    """
    pixels = _pictures(image, "image", "C, H, W")
    H, W = pixels.shape[:2]
    P, Q = as_pair(patch_size, "patch_size")
    h, w = patch_grid((H, W), (P, Q))
    side = min(3.6, 3.6 * W / H)
    with style():
        fig = MatplotlibFigure(figsize=(side + 0.06, side * H / W + 0.06))
        axes = _panel(fig, 0.03, 0.03, side, side * H / W)
        _raster(axes, pixels)
        _grid_lines(axes, (H, W), (P, Q))
    alt = (
        f"{what}, {H} × {W} pixels, under a grid of {h} rows of {w} patches of "
        f"{P} × {Q} pixels."
    )
    return figure(fig, alt=_sentence(alt), caption=caption)


def show_patches(
    image: Any,
    patch_size: Size,
    *,
    labels: bool = True,
    what: str = "an image",
    caption: str = "",
) -> Figure:
    """Show an image with its grid, and beside it the tiles that it falls into.

    Args:
        image: (C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        patch_size: P, or (P, Q); must divide the image (ValueError).
        labels: number the tiles in reading order; where there is no room for that,
            the first tile of each row.
        what: what the image shows, for the alternative text.
        caption: what to see in the figure.
    """
    pixels = _pictures(image, "image", "C, H, W")
    H, W = pixels.shape[:2]
    P, Q = as_pair(patch_size, "patch_size")
    h, w = patch_grid((H, W), (P, Q))
    every = labels and w <= 7
    gap = max(1, round(P * (0.4 if every else 0.13)))
    # One raster for all tiles: each tile's pixels, then `gap` that repeat its edge
    # and are covered. Hundreds of small pictures would weigh far more.
    rows, columns = (
        np.concatenate([np.arange(k, k + n + gap).clip(k, k + n - 1)
                        for k in range(0, side, n)])[:-gap]
        for side, n in ((H, P), (W, Q))
    )  # fmt: skip
    apart = pixels[rows][:, columns]
    gutter, top = (0.3 if every else 0.45), (0.5 if every else 0.34)
    side = (WIDTH - 0.06 - gutter) / 2
    tall = side * max(H / W, len(apart) / len(apart[0]))
    with style():
        fig = MatplotlibFigure(figsize=(WIDTH, tall + top + 0.06))
        axes = _panel(fig, 0.03, top, side, side * H / W)
        _raster(axes, pixels)
        _grid_lines(axes, (H, W), (P, Q))
        axes.set_title(f"{H} × {W} pixels")
        axes = _panel(
            fig, 0.03 + side + gutter, top, side, side * len(apart) / len(apart[0])
        )
        _raster(axes, apart)
        cover = {"fc": COLOURS["surface"], "ec": "none"}
        for k in range(1, h):
            y = k * (P + gap) - gap
            axes.add_patch(Rectangle((-1, y), len(apart[0]) + 2, gap, **cover))
        for k in range(1, w):
            x = k * (Q + gap) - gap
            axes.add_patch(Rectangle((x, -1), gap, len(apart) + 2, **cover))
        axes.set_title(f"{h * w} patches of {P} × {Q}", pad=22 if every else None)
        number = {"fontsize": SMALL, "color": COLOURS["muted"], "clip_on": False}
        for k in range(h * w if labels else 0):
            x, y = k % w * (Q + gap), k // w * (P + gap)
            if every:
                axes.text(x, y - 0.08 * P, str(k), **number)
            elif x == 0:
                axes.text(
                    -0.4 * Q, y + P / 2, str(k), ha="right", va="center", **number
                )
    alt = (
        f"{what}, {H} × {W} pixels, and beside it the same image cut into {h} rows of "
        f"{w} tiles of {P} × {Q} pixels"
        + (f", numbered 0 to {h * w - 1} in reading order." if labels else ".")
    )
    return figure(fig, alt=_sentence(alt), caption=caption)


def show_images(
    images: Any,
    titles: Sequence[object] | None = None,
    *,
    columns: int | None = None,
    alt: str = "",
    caption: str = "",
) -> Figure:
    """Show a gallery of images.

    Args:
        images: (B, C, H, W), 1 or 3 channels, float in 0 to 1 or uint8.
        titles: one a picture, drawn above it.
        columns: pictures in a row, up to 5 by default.
        alt: what the pictures show; made from the titles if there are any.
        caption: what to see in the figure.

    Raises:
        ValueError: if neither titles nor alt say what the pictures are, if their
            number differs from B, or if values leave 0 to 1.
    """
    pictures = _pictures(images, "images")
    B, H, W = pictures.shape[:3]
    names = _titles(titles, B)
    if titles is None and not alt:
        raise ValueError("say what the images show: pass titles=… or alt=…")
    with style():
        fig, panels, _ = _gallery(B, H / W, names, columns)
        for axes, picture in zip(panels, pictures, strict=True):
            _raster(axes[0], picture)
    listed = ": " + "; ".join(names) if titles is not None else ""
    counted = f"{B} images of {H} × {W} pixels{listed}."
    return figure(fig, alt=f"{alt} {counted}".strip(), caption=caption)


def show_maps(
    maps: Any,
    titles: Sequence[object] | None = None,
    *,
    images: Any = None,
    vmin: float = 0.0,
    vmax: float | None = None,
    label: str = "value",
    columns: int | None = None,
    caption: str = "",
) -> Figure:
    """Show maps of numbers on one common colour scale, its numbers beside it.

    Args:
        maps: (B, h, w), any finite numbers.
        titles: one a map, drawn above it.
        images: (B, C, H, W), drawn above their maps.
        vmin: the value of the first colour.
        vmax: the value of the last colour, the largest in the maps by default.
        label: what the numbers are.
        columns: maps in a row, up to 5 by default.
        caption: what to see in the figure.

    Raises:
        ValueError: if shapes differ, or a value lies outside vmin to vmax: a scale
            that hides values would mislead.
    """
    grids = _array(maps, "maps", "B, h, w").astype(np.float64)
    B, h, w = grids.shape
    names = _titles(titles, B)
    pictures = None if images is None else _pictures(images, "images")
    if pictures is not None and len(pictures) != B:
        raise ValueError(f"{len(pictures)} images for {B} maps; give one a map")
    top = float(grids.max()) if vmax is None else vmax
    if not vmin <= grids.min() or not grids.max() <= top or not vmin < top:
        raise ValueError(
            f"maps run from {grids.min():.3g} to {grids.max():.3g}, outside the scale "
            f"{vmin:.3g} to {top:.3g}; widen vmin and vmax to hold every value"
        )
    colours = matplotlib.colormaps[MAP_COLOURS]
    with style():
        fig, panels, bar = _gallery(
            B, h / w, names, columns, layers=1 if pictures is None else 2, scale=True
        )
        for k, axes in enumerate(panels):
            if pictures is not None:
                _raster(axes[0], pictures[k])
            _raster(axes[-1], colours((grids[k] - vmin) / (top - vmin))[..., :3])
        _raster(bar, colours(np.linspace(0, 1, 128))[None, :, :3])
        for x, value in ((0, vmin), (64, (vmin + top) / 2), (128, top)):
            bar.annotate(
                _number(value), (x, 1), (0, -5), textcoords="offset points", va="top",
                ha={0: "left", 64: "center", 128: "right"}[x], fontsize=SMALL,
                color=COLOURS["muted"],
            )  # fmt: skip
        bar.set_title(label, pad=5)
    alt = f"{B} maps of {h} × {w} numbers, {label}, on one scale from "
    alt += f"{_number(vmin)} to {_number(top)}."
    for name, grid in zip(names, grids, strict=True):
        i, j = np.unravel_index(grid.argmax(), grid.shape)
        alt += f" {name + ': ' if name else ''}from {_number(grid.min())} to "
        alt += f"{_number(grid.max())}, largest in row {i + 1}, column {j + 1}."
    return figure(fig, alt=alt, caption=caption)


def show_attention(
    images: Any,
    maps: Any,
    titles: Sequence[object] | None = None,
    *,
    vmax: float | None = None,
    columns: int | None = None,
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
        columns: images in a row, up to 5 by default.
        caption: what to see in the figure.
    """
    return show_maps(
        maps, titles, images=images, vmax=vmax, columns=columns, caption=caption,
        label="attention weight",
    )  # fmt: skip


def _titles(titles: Sequence[object] | None, count: int) -> list[str]:
    names = [""] * count if titles is None else [str(title) for title in titles]
    if len(names) != count:
        raise ValueError(f"{len(names)} titles for {count} pictures; give one each")
    return names


def _gallery(
    count: int,
    ratio: float,
    titles: list[str],
    columns: int | None,
    layers: int = 1,
    scale: bool = False,
) -> tuple[MatplotlibFigure, list[list[Axes]], Axes]:
    """Rows of panels, `layers` high, with titles; and a strip for a colour scale."""
    across = columns or min(count, 5)
    gap = 0.14
    side = min((WIDTH - 0.06 - gap * (across - 1)) / across, 1.6)
    lines = [textwrap.fill(title, max(4, int(side * 12.5))) for title in titles]
    top = max(line.count("\n") + 1 if line else 0 for line in lines) * 0.2 + 0.08
    pitch = top + layers * (side * ratio + 0.08) + 0.08
    wide = across * (side + gap) - gap
    down = -(-count // across)
    fig = MatplotlibFigure(
        figsize=(max(wide, 2.2 if scale else 0) + 0.06, down * pitch + 0.65 * scale)
    )
    panels = []
    for k in range(count):
        x, y = k % across * (side + gap) + 0.03, k // across * pitch + top
        panels.append(
            [_panel(fig, x, y + n * (side * ratio + 0.08), side, side * ratio)
             for n in range(layers)]
        )  # fmt: skip
        panels[-1][0].set_title(lines[k], pad=5)
    bar = _panel(fig, 0.03, down * pitch + 0.26, min(2.2, max(wide, 2.2)), 0.12)
    bar.set_visible(scale)
    return fig, panels, bar


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- charts ----------------------------------------------------------------------


def plot_scaling(
    tokens: Any,
    seconds: Any,
    *,
    memory: Any = None,
    caption: str = "",
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
    costs = {"time": (_array(seconds, "seconds", "M"), _duration)}
    if memory is not None:
        costs["memory"] = (_array(memory, "memory", "M"), _bytes)
    for name, (cost, _) in costs.items():
        if cost.shape != n.shape or not (np.diff(n) > 0).all() or cost.min() <= 0:
            raise ValueError(
                f"tokens {n.tolist()} must rise, with one {name} above 0 for each; "
                f"got {cost.tolist()}"
            )
    alt = "Cost against number of tokens, both axes logarithmic."
    with style():
        fig, grid = new_figure(height=2.9 * len(costs), rows=len(costs))
        for axes, (name, (cost, unit)) in zip(
            np.ravel(grid), costs.items(), strict=True
        ):
            # The square passes through the last point: there N² is all that counts.
            square = cost[-1] * (n / n[-1]) ** 2
            axes.plot(n, square, "--", color=COLOURS["muted"], lw=1.25)
            axes.plot(n, cost, "o-", color=SERIES[0], ms=6)
            axes.set(xscale="log", yscale="log", title=name)
            axes.xaxis.set_major_locator(FixedLocator(n.tolist()))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _number(x)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _, u=unit: u(y)))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_minor_locator(NullLocator())
            middle = len(n) // 2
            above = cost[middle] >= square[middle]
            for text, y, ink, upper in (
                ("measured", cost, SERIES[0], above),
                ("in step with N²", square, COLOURS["muted"], not above),
            ):
                axes.annotate(
                    text, (n[middle], y[middle]), (-9, 7) if upper else (9, -7),
                    textcoords="offset points", color=ink,
                    ha="right" if upper else "left", va="bottom" if upper else "top",
                )  # fmt: skip
            alt += f" {name.title()}: "
            alt += "; ".join(
                f"{_number(a)} tokens, {unit(b)}" for a, b in zip(n, cost, strict=True)
            )
            if len(n) > 1:
                alt += (
                    f". From {_number(n[-2])} to {_number(n[-1])} tokens it grows "
                    f"{cost[-1] / cost[-2]:.1f} times, where N² grows "
                    f"{(n[-1] / n[-2]) ** 2:.1f} times."
                )
        axes.set_xlabel("tokens N")
    return figure(fig, alt=alt, caption=caption)


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
        name: _array(v if np.ndim(v) > 1 else [v], f"curve {name!r}", "seeds, M")
        for name, v in ((name, _numpy(v)) for name, v in curves.items())
    }
    sizes = {name: run.shape[1] for name, run in runs.items()}
    M = next(iter(sizes.values()))
    places = np.arange(1, M + 1) if x is None else _array(x, "x", "M")
    if set(sizes.values()) != {M} or len(places) != M:
        raise ValueError(
            f"curves have {sizes} points and x {len(places)}; make them equal"
        )
    first, last = _number(places[0]), _number(places[-1])
    alt = f"{ylabel} against {xlabel}, {first} to {last}."
    ends = []
    with style():
        fig, axes = new_figure()
        for (name, run), ink in zip(runs.items(), SERIES, strict=False):
            mean, low, high = run.mean(0), run.min(0), run.max(0)
            if len(run) > 1:
                axes.fill_between(places, low, high, color=ink, alpha=0.18, lw=0)
            axes.plot(places, mean, "-" if M > 1 else "o", color=ink)
            ends.append((name, mean[-1], ink))
            alt += f" {_sentence(name)}: {_number(mean[0])} to {_number(mean[-1])}"
            if len(run) > 1:
                alt += f", mean of {len(run)} seeds, in the end between "
                alt += f"{_number(low[-1])} and {_number(high[-1])}"
            alt += "."
        if baseline:
            axes.axhline(baseline[1], color=COLOURS["muted"], lw=1.25, ls="--")
            ends.append((*baseline, COLOURS["muted"]))
            alt += f" Dashed line, {baseline[0]}: {_number(baseline[1])}."
        axes.set(xlabel=xlabel, title=ylabel, xscale="log" if log_x else "linear")
        if log_x:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _number(v)))
            axes.xaxis.set_minor_locator(NullLocator())
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.margins(x=0.02)
        _name_ends(fig, axes, places[-1], ends)
    return figure(fig, alt=alt, caption=caption)


def _name_ends(
    fig: MatplotlibFigure, axes: Axes, x: float, ends: list[tuple[str, float, str]]
) -> None:
    """Write each curve's name beside its last point, moved apart where they touch."""
    fig.draw_without_rendering()  # the layout decides how far apart the ends are
    points = [axes.transData.transform((x, y))[1] * 72 / fig.dpi for _, y, _ in ends]
    order = np.argsort(points, kind="stable")
    placed = np.array(points)[order]
    for _ in range(200):
        near = np.flatnonzero(np.diff(placed) < 14)
        for i in near:
            push = (14 - (placed[i + 1] - placed[i])) / 2
            placed[i : i + 2] += (-push, push)
    for k, y in zip(order, placed, strict=True):
        name, height, ink = ends[k]
        axes.annotate(
            textwrap.fill(name, 18), (1, height), (7, y - points[k]),
            xycoords=("axes fraction", "data"), textcoords="offset points",
            color=ink, va="center_baseline",
        )  # fmt: skip


def plot_bars(
    bars: Mapping[str, Any],
    *,
    xlabel: str,
    baseline: tuple[str, float] | None = None,
    digits: int = 3,
    caption: str = "",
) -> Figure:
    """Plot horizontal bars with their numbers, and their spread over seeds.

    A bar is the mean of its values; dots are the single values.

    Args:
        bars: name → one number, or (seeds,); none below 0.
        xlabel: what the bars measure, with its unit.
        baseline: the name and place of a line to compare with.
        digits: significant digits of the printed numbers.
        caption: what to see in the figure.
    """
    values = {
        k: _array(np.ravel(_numpy(v)), f"bar {k!r}", "seeds") for k, v in bars.items()
    }
    if not values or min(v.min() for v in values.values()) < 0:
        raise ValueError(f"bars need at least one value and none below 0; got {bars}")
    alt = f"Bars: {xlabel}."
    with style():
        fig, axes = new_figure(height=0.62 + 0.42 * len(values))
        reach = max(v.max() for v in values.values())
        for row, (name, value) in enumerate(values.items()):
            mean = float(value.mean())
            axes.barh(
                row,
                mean,
                height=0.62,
                color=SERIES[0],
                alpha=0.85 if len(value) == 1 else 0.4,
            )
            text = _number(mean, digits)
            alt += f" {_sentence(name)}: {text}"
            if len(value) > 1:
                axes.plot(value, [row] * len(value), "o", color=SERIES[0], ms=5)
                spread = (
                    f"{_number(value.min(), digits)} to {_number(value.max(), digits)}"
                )
                alt += f", mean of {len(value)} seeds, {spread}"
            axes.annotate(
                text, (max(mean, value.max()), row), (7, 0), va="center",
                textcoords="offset points",
            )  # fmt: skip
            alt += "."
        if baseline:
            axes.axvline(baseline[1], color=COLOURS["muted"], lw=1.25, ls="--")
            axes.annotate(
                baseline[0], (baseline[1], 1), (0, 4), textcoords="offset points",
                xycoords=("data", "axes fraction"), ha="center", va="bottom",
                color=COLOURS["muted"], fontsize=SMALL,
            )  # fmt: skip
            alt += f" Dashed line, {baseline[0]}: {_number(baseline[1])}."
        axes.set(xlim=(0, reach * 1.04), xlabel=xlabel, ylim=(len(values) - 0.5, -0.5))
        axes.set_yticks(range(len(values)), list(values), color=COLOURS["ink"])
        axes.set_xticks([])
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
    return figure(fig, alt=alt, caption=caption)


def plot_probabilities(
    values: Any,
    names: Sequence[object] | None = None,
    *,
    logits: bool = False,
    caption: str = "",
) -> Figure:
    """Plot what a classifier says of one image: a bar for each class.

    Args:
        values: (K,), probabilities that sum to 1, or logits.
        names: the classes' names; 0 to K - 1 by default.
        logits: whether `values` are logits, to be turned by softmax.
        caption: what to see in the figure.

    Raises:
        ValueError: if probabilities do not sum to 1.
    """
    p = _array(values, "values", "K").astype(np.float64)
    if logits:
        p = np.exp(p - p.max())
        p /= p.sum()
    elif p.min() < 0 or abs(p.sum() - 1) > 1e-3:
        raise ValueError(
            f"values sum to {p.sum():.4g}, their smallest is {p.min():.3g}; "
            "probabilities sum to 1: pass logits=True, or apply softmax first"
        )
    names = _titles(range(len(p)) if names is None else names, len(p))
    best = int(p.argmax())
    alt = f"Probability of each class, the largest for {names[best]}. "
    alt += ", ".join(f"{n}: {v:.1%}" for n, v in zip(names, p, strict=True)) + "."
    with style():
        fig, axes = new_figure(height=0.3 + 0.27 * len(p))
        inks = [COLOURS["highlight"] if k == best else SERIES[0] for k in range(len(p))]
        axes.barh(range(len(p)), p, height=0.7, color=inks)
        for k, v in enumerate(p):
            axes.annotate(
                f"{v:.1%}", (v, k), (6, 0), textcoords="offset points", va="center"
            )
        axes.set(xlim=(0, 1), ylim=(len(p) - 0.4, -0.6))
        axes.set_yticks(range(len(p)), names, color=COLOURS["ink"])
        axes.set_xticks([])
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
    return figure(fig, alt=alt, caption=caption)


def _duration(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 0.9995:
            break
    return f"{_number(seconds * factor)} {unit}"


def _bytes(count: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")):
        if count >= 0.9995 * factor:
            break
    return f"{_number(count / factor)} {unit}"
