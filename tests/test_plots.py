"""Statements about the drawn figures: what they show, say, weigh and leave alone."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import sys
from io import BytesIO
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure as MatplotlibFigure
from PIL import Image

from course_utils import plots
from course_utils.data import load_digits, load_photo
from course_utils.figures import COLOURS, Figure
from course_utils.patches import patchify

DIGITS = load_digits()[1].images[:3]
PHOTO = load_photo("chelsea")
MAPS = torch.arange(24).reshape(3, 2, 4) / 24
POINTS = [49, 196, 784]

# Every function of the module, and facts that its alternative text must tell.
FIGURES = {
    "show_pixels": (
        lambda **k: plots.show_pixels(np.arange(4).reshape(2, 2), **k),
        "2 × 2 pixels, row by row: 0 1; 2 3.",
    ),
    "show_pixels, in patches": (
        lambda **k: plots.show_pixels(np.arange(8).reshape(2, 4), patch_size=2, **k),
        "2 patches of 2 × 2, a row each: 0 1 4 5; 2 3 6 7.",
    ),
    "show_grid": (
        lambda **k: plots.show_grid(PHOTO[:, :112], (16, 32), what="a cat", **k),
        "A cat, 112 × 224 pixels, under a grid: "
        "7 rows of 7 patches of 16 × 32 pixels, 49 in all.",
    ),
    "show_grids": (
        lambda **k: plots.show_grids(DIGITS[0], (14, 7), **k),
        "2 grids in turn: 2 rows of 2 patches of 14 × 14 pixels, 4 in all; "
        "4 rows of 4 patches of 7 × 7 pixels, 16 in all.",
    ),
    "show_patches": (
        lambda **k: plots.show_patches(DIGITS[0], 7, **k),
        "4 rows of 4 tiles of 7 × 7 pixels, numbered 0 to 15 in reading order.",
    ),
    "show_patches, small": (
        lambda **k: plots.show_patches(PHOTO, 16, **k),
        "14 rows of 14 tiles of 16 × 16 pixels, numbered 0 to 195",
    ),
    "show_images": (
        lambda **k: plots.show_images(DIGITS, ["six", "two", "one"], **k),
        "3 images of 28 × 28 pixels: six; two; one.",
    ),
    "show_maps": (
        lambda **k: plots.show_maps(
            MAPS, ["a", "b", "c"], vmin=-1, label="cosine", **k
        ),
        "3 maps of 2 × 4 numbers, cosine, on one scale from −1 to 0.958. "
        "a: from 0 to 0.292, largest in row 2, column 4.",
    ),
    "show_attention": (
        lambda **k: plots.show_attention(DIGITS, MAPS, vmax=1, **k),
        "3 maps of 2 × 4 numbers, attention weight, on one scale from 0 to 1. "
        "From 0 to 0.292, largest in row 2, column 4.",
    ),
    "plot_scaling": (
        lambda **k: plots.plot_scaling(
            POINTS, [1e-5, 2e-4, 1.6e-3], memory=[9604, 153664, 2458624], **k
        ),
        "Time: 49 tokens, 10 µs; 196 tokens, 200 µs; 784 tokens, 1.6 ms. "
        "From 196 to 784 tokens it grows 8.0 times, where N² grows 16.0 times. "
        "Memory: 49 tokens, 9.6 kB; 196 tokens, 154 kB; 784 tokens, 2.46 MB. "
        "From 196 to 784 tokens it grows 16.0 times, where N² grows 16.0 times.",
    ),
    "plot_curves": (
        lambda **k: plots.plot_curves(
            {"ViT": [[0.5, 0.75], [0.5, 0.85]], "CNN": [0.7, 0.9]},
            ylabel="accuracy",
            xlabel="digits",
            x=[100, 1000],
            log_x=True,
            baseline=("guess", 0.12),
            **k,
        ),
        "Accuracy against digits, 100 to 1,000. ViT: 0.5 to 0.8, mean of 2 seeds, in "
        "the end between 0.75 and 0.85. CNN: 0.7 to 0.9. Dashed line, guess: 0.12.",
    ),
    "plot_bars": (
        lambda **k: plots.plot_bars(
            {"ViT": [0.5, 0.7], "CNN": 0.75},
            xlabel="accuracy",
            baseline=("guess", 0.12),
            **k,
        ),
        "Bars: accuracy. ViT: 0.6, mean of 2 seeds, 0.5 to 0.7. CNN: 0.75. "
        "Dashed line, guess: 0.12.",
    ),
    "plot_probabilities": (
        lambda **k: plots.plot_probabilities(
            [0.1, 0.7, 0.2], ["cat", "dog", "cow"], **k
        ),
        "largest for dog. cat: 10.0%, dog: 70.0%, cow: 20.0%.",
    ),
}


@pytest.fixture(scope="module")
def drawn() -> dict[str, Figure]:
    return {name: draw() for name, (draw, _) in FIGURES.items()}


def each(function):
    return pytest.mark.parametrize("name", FIGURES)(function)


# --- reading a figure -------------------------------------------------------------


def rasters(figure):
    """The pixels, and the place (left, top, right, bottom), of each embedded raster."""
    found = []
    for element in ElementTree.fromstring(figure.svg).iter():
        if not element.tag.endswith("image"):
            continue
        kind, data = element.get("href").split(";base64,")
        picture = Image.open(BytesIO(base64.b64decode(data)))
        assert f"data:image/{picture.format.lower()}" == kind
        numbers = re.fullmatch(r"matrix\((.*)\)", element.get("transform"))[1]
        a, b, c, d, e, f = map(float, numbers.split())
        assert b == c == 0
        assert a > 0 < d  # neither mirrored nor upside down
        width, height = int(element.get("width")), int(element.get("height"))
        assert picture.size == (width, height)
        place = (e, f, e + a * width, f + d * height)
        found.append((np.asarray(picture.convert("RGB")), place))
    return found


def texts(figure):
    root = ElementTree.fromstring(figure.svg)
    return [element.text for element in root.iter() if element.tag.endswith("text")]


def sample(figure, x, y):
    """The colour of the PNG at a point of the SVG."""
    picture = Image.open(BytesIO(figure.png)).convert("RGB")
    view = ElementTree.fromstring(figure.svg).get("viewBox").split()
    scale = picture.width / float(view[2])
    return np.array(picture.getpixel((int(x * scale), int(y * scale)))) / 255


def within(place, x, y):
    """The point at fractions `x` and `y` of a place."""
    left, top, right, bottom = place
    return left + x * (right - left), top + y * (bottom - top)


# --- what holds for every figure --------------------------------------------------


def test_every_public_function_that_draws_is_in_this_list():
    public = {name for name in vars(plots) if re.match("show_|plot_", name)}
    assert public == {name.split(",")[0] for name in FIGURES}


@each
def test_it_says_the_facts_it_shows(name, drawn):
    figure = drawn[name]
    assert FIGURES[name][1] in figure.alt
    svg = ElementTree.fromstring(figure.svg)
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == figure.alt


def test_it_shows_its_caption(drawn):
    for name, (draw, _) in FIGURES.items():
        if name in ("show_pixels", "show_attention", "plot_bars"):
            assert "<figcaption" not in drawn[name].html
            assert (
                ">Look &lt;here&gt;.</figcaption>" in draw(caption="Look <here>.").html
            )


@each
def test_all_its_colours_follow_the_theme(name, drawn):
    svg = drawn[name].svg
    used = set(re.findall(r"var\(--course-(\w+), (#\w{6})\)", svg))
    assert {("ink", "#1F2933"), ("surface", "#FFFFFF")} <= used <= set(COLOURS.items())
    bare = re.sub(r"var\([^)]*\)|url\(#[^)]*\)|href=\"[^\"]*\"", "", svg)
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb|black|white", bare)


@each
def test_it_reaches_nothing_else_on_the_page(name, drawn):
    svg = drawn[name].svg
    assert not re.search(r"<style|<script|<metadata|<!--|@import|DOCTYPE", svg)
    links = re.findall(r'href="([^"]{6})|url\((.)', svg)
    assert {link or at for link, at in links} <= {
        "data:i",
        "#",
        *(link for link, _ in links if link.startswith("#")),
    }
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_no_two_figures_of_a_page_share_an_id(drawn):
    page = "".join(figure.svg for figure in drawn.values())
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', page)) == set(ids)


@pytest.mark.parametrize("name", ["show_patches", "show_attention", "plot_curves"])
def test_the_same_input_gives_the_same_bytes(name, drawn):
    assert FIGURES[name][0]() == drawn[name]


@each
def test_there_is_a_png_of_it(name, drawn):
    png = drawn[name].png
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    view = ElementTree.fromstring(drawn[name].svg).get("viewBox").split()
    size = [2 * float(side) for side in view[2:]]  # twice 72 dots an inch
    assert Image.open(BytesIO(png)).size == pytest.approx(size, abs=1.01)


@each
def test_its_text_can_be_read_on_a_phone(name, drawn):
    svg = drawn[name].svg
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    room = 390 - 2 * 16 - 2 * 8  # a phone, the margins of the page and of the figure
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", svg)]
    assert min(sizes, default=11) * min(room / width, 4 / 3) >= 10
    assert "DejaVu" not in svg  # the reader's own font


@each
def test_it_is_small(name, drawn):
    photos = {"show_grid": 25_000, "show_patches, small": 110_000}
    assert len(drawn[name].html) < photos.get(name, 30_000)


def test_drawing_needs_no_network_and_leaves_matplotlib_alone(
    monkeypatch, untouched_random_state
):
    def refuse(*_):
        raise AssertionError("a figure asked the network")

    monkeypatch.setattr(socket, "socket", refuse)
    mine = pyplot.figure()
    settings, backend = dict(matplotlib.rcParams), matplotlib.get_backend()
    for name in ("show_grid", "plot_curves"):
        FIGURES[name][0]()
    assert dict(matplotlib.rcParams) == settings
    assert matplotlib.get_backend() == backend
    assert pyplot.get_fignums() == [mine.number]
    assert pyplot.gcf() is mine
    pyplot.close(mine)


def test_drawing_does_not_import_pyplot_which_may_choose_a_backend():
    code = (
        "import sys; from course_utils import plots; plots.show_pixels([[1, 2]]); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- a figure of one's own --------------------------------------------------------


def test_a_figure_of_ones_own_is_themed_and_closed():
    fig, axes = pyplot.subplots()
    axes.plot([1, 2], color="black")
    axes.plot([2, 1], color=COLOURS["2"])
    axes.plot([2, 2], color="#123456")
    drawn = plots.figure(fig, alt="Two crossing lines.", caption="They cross.")
    assert not pyplot.get_fignums()
    for ink in ("var(--course-ink, #1F2933)", "var(--course-2, #C8551B)", "#123456"):
        assert f"stroke: {ink}" in drawn.svg
    assert (drawn.alt, drawn.caption) == ("Two crossing lines.", "They cross.")
    with pytest.raises(ValueError, match="pass alt="):
        plots.figure(MatplotlibFigure(), alt=" ")


def test_a_new_figure_has_the_axes_asked_for_in_the_courses_style():
    fig, axes = plots.new_figure(4, 2, rows=2, columns=3)
    assert axes.shape == (2, 3)
    assert tuple(fig.get_size_inches()) == (4, 2)
    assert not axes[0, 0].spines["top"].get_visible()
    with plots.style():
        assert matplotlib.rcParams["font.size"] == plots.TEXT
    assert matplotlib.rcParams["font.size"] != plots.TEXT


# --- images and patches -----------------------------------------------------------


def marked(H, W):
    """A black image with one white patch of 2 × 2 at its top right, not square."""
    image = torch.zeros(1, H, W)
    image[0, :2, -2:] = 1
    return image


def test_an_image_stands_as_it_is_neither_turned_nor_mirrored():
    image = marked(6, 10)
    for figure in (
        plots.show_images(image[None], alt="A marked image."),
        plots.show_grid(image, 2),
        plots.show_grids(image, (2,)),
    ):
        ((pixels, place),) = rasters(figure)
        assert np.array_equal(pixels[..., 0], image[0] * 255)
        left, top, right, bottom = place
        assert (right - left) / (bottom - top) == pytest.approx(10 / 6)
        assert sample(figure, *within(place, 0.93, 0.13)).min() > 0.95
        for x, y in ((0.07, 0.13), (0.93, 0.87), (0.07, 0.87)):
            assert sample(figure, *within(place, x, y)).max() < 0.05


def test_a_grid_lies_on_the_borders_of_the_patches():
    figure = plots.show_grid(torch.zeros(1, 4, 12), (2, 3))
    ((_, place),) = rasters(figure)
    orange = np.array([0xD9, 0x48, 0x0F]) / 255

    def is_line(x, y):
        return np.abs(sample(figure, *within(place, x, y)) - orange).max() < 0.35

    assert [is_line(0.02 + k / 48, 0.25) for k in range(48)].count(True) <= 3
    assert all(is_line(x, 0.25) for x in (0.25, 0.5, 0.75))
    assert is_line(0.1, 0.5)
    assert not is_line(0.1, 0.25)


def test_grids_are_titled_with_their_tokens_and_stand_two_in_a_row():
    figure = plots.show_grids(PHOTO, (56, 28, 16, (8, 16)))
    assert texts(figure) == [
        "P = 56: 16 tokens",
        "P = 28: 64 tokens",
        "P = 16: 196 tokens",
        "P = 8 × 16: 392 tokens",
    ]
    places = [place for _, place in rasters(figure)]
    assert places[0][1] == places[1][1] < places[2][1] == places[3][1]
    assert places[0][0] == places[2][0] < places[1][0] == places[3][0]
    assert texts(plots.show_grid(PHOTO, 16)) == []


def test_tiles_are_the_patches_of_patchify_in_reading_order():
    image = torch.rand(3, 6, 12, generator=torch.Generator().manual_seed(0))
    figure = plots.show_patches(image, (3, 4))
    (_, (apart, place)) = rasters(figure)
    down, across = len(apart) - 6, (len(apart[0]) - 12) // 2
    tiles = [
        apart[y : y + 3, x : x + 4]
        for y in (0, 3 + down)
        for x in (0, 4 + across, 8 + 2 * across)
    ]
    patches = patchify(image[None], (3, 4))[0].reshape(6, 3, 4, 3)
    assert np.array_equal(tiles, (patches * 255).round().byte())
    assert set("012345") <= set(texts(figure))
    # Between the tiles there is nothing but the page.
    gap = within(place, (4 + across / 2) / len(apart[0]), 1.5 / len(apart))
    assert sample(figure, *gap).min() > 0.95


def test_only_a_photograph_is_compressed_and_smoothed():
    noise = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    scores = np.linspace(0, 1, 80 * 80).reshape(1, 80, 80)
    for figure in (plots.show_grid(noise, 8), plots.show_maps(scores)):
        assert "image/jpeg" not in figure.svg
        assert figure.svg.count("image-rendering:pixelated") == len(rasters(figure))
    ((pixels, _),) = rasters(plots.show_grid(noise, 8))
    assert np.array_equal(pixels, (noise * 255).round().byte().permute(1, 2, 0))
    figure = plots.show_grid(PHOTO, 16)
    ((pixels, _),) = rasters(figure)
    assert "image/jpeg" in figure.svg
    assert "image-rendering" not in figure.svg
    exact = (PHOTO * 255).round().permute(1, 2, 0).numpy()
    assert np.abs(pixels - exact).mean() < 3
    assert len(figure.svg) < 40_000


def test_bytes_and_floats_grey_and_rgb_show_the_same():
    grey = (marked(4, 6) * 200).byte()
    figures = [
        plots.show_grid(image, 2).svg
        for image in (
            grey,
            grey.expand(3, -1, -1),
            grey.numpy(),
            grey / 255,
            (grey / 255).double().requires_grad_(),
        )
    ]
    assert len(set(figures)) == 1


def test_numbers_and_the_rows_they_become_are_printed():
    figure = plots.show_pixels(np.arange(16).reshape(4, 4), patch_size=2)
    words = texts(figure)
    assert words[:16] == [str(k) for k in range(16)]
    rows = [word for word in words[16:] if word.isdigit()]
    assert " ".join(rows) == "0 1 4 5 2 3 6 7 8 9 12 13 10 11 14 15"
    assert {"4 × 4 pixels", "4 rows of 4", "patch 0", "patch 3"} <= set(words)


def test_a_number_has_the_colour_of_its_patch_on_both_sides():
    svg = plots.show_pixels(np.arange(8).reshape(2, 4), patch_size=2).svg
    cells = re.findall(r"fill: var\(--course-(\d)[^\"]*fill-opacity", svg) or (
        re.findall(r"fill: var\(--course-(\d)", svg)
    )
    assert "".join(cells) == "1122112211112222"


def test_negative_and_fractional_numbers_are_printed_as_such():
    assert texts(plots.show_pixels([[-1.5, 0.125], [12345.678, 2.0]]))[:4] == [
        "−1.5",
        "0.125",
        "12,346",
        "2",
    ]


# --- maps -------------------------------------------------------------------------


def test_the_marked_patch_is_bright_where_it_is_in_the_image():
    images = marked(4, 8)[None]  # in patches of 2 × 2
    maps = torch.zeros(1, 2, 4)
    maps[0, 0, 3] = 0.6
    figure = plots.show_attention(images, maps)
    (_, above), (pixels, below), _ = rasters(figure)
    assert np.unravel_index(pixels.sum(2).argmax(), (2, 4)) == (0, 3)
    yellow = sample(figure, *within(below, 0.9, 0.2))
    assert yellow[0] > 0.9 > 0.2 > yellow[2]
    for x, y in ((0.1, 0.2), (0.9, 0.8), (0.1, 0.8)):
        assert sample(figure, *within(below, x, y))[0] < 0.3
    # It lies under its image, in the same size and column.
    assert (above[0], above[2]) == (below[0], below[2])
    assert above[3] < below[1]
    assert "largest in row 1, column 4" in figure.alt


def test_a_map_of_oblong_patches_is_as_large_as_its_image():
    images, maps = torch.zeros(1, 1, 8, 8), torch.rand(1, 4, 2) * 0
    maps[0, 0, 0] = 1
    (_, above), (_, below), _ = rasters(plots.show_attention(images, maps))
    assert above[3] - above[1] == pytest.approx(below[3] - below[1])
    assert above[3] - above[1] == pytest.approx(above[2] - above[0])


def test_all_maps_share_one_scale():
    maps = torch.tensor([[[0.0, 0.25]], [[0.25, 0.5]], [[0.5, 1.0]]])
    shown = [pixels[0] for pixels, _ in rasters(plots.show_maps(maps))]
    assert np.array_equal(shown[0][1], shown[1][0])
    assert np.array_equal(shown[1][1], shown[2][0])
    assert not np.array_equal(shown[0][1], shown[2][1])
    bar = shown[3]
    assert np.array_equal(bar[0], shown[0][0])
    assert np.array_equal(bar[-1], shown[2][1])
    assert np.abs(bar[64].astype(int) - shown[2][0]).max() <= 3
    assert texts(plots.show_maps(maps, vmax=2))[:3] == ["0", "1", "2"]


# --- charts -----------------------------------------------------------------------


def test_curves_and_the_baseline_are_named_beside_their_ends(drawn):
    assert {"ViT", "CNN", "guess", "digits", "accuracy", "100", "1,000"} <= set(
        texts(drawn["plot_curves"])
    )


def test_names_of_curves_that_end_together_do_not_overlap():
    same = {f"curve number {k}": [0.5, 0.9] for k in range(6)}
    root = ElementTree.fromstring(plots.plot_curves(same, ylabel="accuracy").svg)
    heights = sorted(
        float(element.get("y"))
        for element in root.iter()
        if element.tag.endswith("text") and "curve" in element.text
    )
    assert len(heights) == 6
    assert np.diff(heights).min() > 12  # points, for letters of 11.5


def test_a_bar_is_as_long_as_its_number():
    svg = plots.plot_bars({"a": 1, "b": 3}, xlabel="parameters").svg
    bars = re.findall(r'd="M ([\d.]+) [\d.]+\s+L ([\d.]+) [^"]*" clip', svg)
    lengths = [float(right) - float(left) for left, right in bars]
    assert lengths[1] / lengths[0] == pytest.approx(3, rel=1e-4)


def test_the_likeliest_class_stands_out(drawn):
    svg = drawn["plot_probabilities"].svg
    inks = re.findall(r"style=\"fill: var\(--course-(1|highlight)", svg)
    assert inks == ["1", "highlight", "1"]
    assert {"10.0%", "70.0%", "20.0%", "cat"} <= set(texts(drawn["plot_probabilities"]))


def test_numbers_are_written_for_the_eye():
    words = ["1,500", "0.939", "−12", "1,235", "0", "5,717,416"]
    numbers = [1500, 0.9393, -12, 1234.5678, 0, 5717416]
    bars = plots.show_pixels([[number] for number in numbers])
    assert texts(bars)[: len(words)] == words


# --- what is refused --------------------------------------------------------------

REFUSED = {
    "0 to 255 as floats": (
        lambda: plots.show_grid(PHOTO * 255, 16),
        r"image runs from .* to 2\d\d; .* divide by 255",
    ),
    "normalised": (
        lambda: plots.show_images(DIGITS * 2 - 1, alt="Digits."),
        "images runs from -1 to 1; .* undo the normalisation",
    ),
    "no batch": (
        lambda: plots.show_images(PHOTO, alt="A cat."),
        r"images has shape \(3, 224, 224\), .*\(B, C, H, W\); .*images\[None\]",
    ),
    "a batch": (
        lambda: plots.show_grid(DIGITS, 7),
        r"image has shape \(3, 1, 28, 28\), .*\(C, H, W\); take one with image\[0\]",
    ),
    "channels last": (
        lambda: plots.show_grid(PHOTO.permute(1, 2, 0), 16),
        r"224 channels in shape \(224, 224, 3\); .* before height and width",
    ),
    "NaN": (
        lambda: plots.show_grid(torch.full((1, 4, 4), torch.nan), 2),
        r"image holds 16 numbers that are not finite \(NaN or infinite\)",
    ),
    "nothing": (
        lambda: plots.show_images(DIGITS[:0], []),
        r"images has shape \(0, 1, 28, 28\); there is nothing to draw",
    ),
    "a patch that does not divide": (
        lambda: plots.show_patches(DIGITS[0], 5),
        "28x28 image cannot be cut into 5x5 patches",
    ),
    "one such patch size of several": (
        lambda: plots.show_grids(DIGITS[0], (7, 5)),
        "28x28 image cannot be cut into 5x5 patches",
    ),
    "no patch sizes": (
        lambda: plots.show_grids(DIGITS[0], ()),
        "patch_sizes is empty; give at least one",
    ),
    "pixels too many to read": (
        lambda: plots.show_pixels(DIGITS[0, 0]),
        r"pixels of shape \(28, 28\) need 28 × 28 cells; .*show_images",
    ),
    "images without words": (
        lambda: plots.show_images(DIGITS),
        "nothing says what the images show; pass titles=… or alt=…",
    ),
    "too few titles": (
        lambda: plots.show_images(DIGITS, ["six"]),
        "1 names for 3 to be named; give one each",
    ),
    "no columns": (
        lambda: plots.show_images(DIGITS, alt="Digits.", columns=0),
        "columns is 0; draw at least 1 picture in a row",
    ),
    "values above the scale": (
        lambda: plots.show_maps(MAPS, vmax=0.5),
        "maps run from 0 to 0.958, which the scale from 0 to 0.5 does not hold; "
        "choose another vmin or vmax",
    ),
    "attention below 0": (
        lambda: plots.show_attention(DIGITS, MAPS - 1),
        "maps run from -1 to -0.0417, which the scale from 0 ",
    ),
    "heads": (
        lambda: plots.show_attention(DIGITS, MAPS[None]),
        r"maps has shape \(1, 3, 2, 4\), .*\(B, h, w\); take one with maps\[0\]",
    ),
    "too few maps": (
        lambda: plots.show_attention(DIGITS, MAPS[:2]),
        "3 images for 2 maps; give one a map",
    ),
    "tokens that fall": (
        lambda: plots.plot_scaling([2, 1], [1, 1]),
        r"tokens \[2.0, 1.0\] and time .* do not go together; tokens must rise",
    ),
    "a time of nothing": (
        lambda: plots.plot_scaling([1, 2], [0, 1]),
        r"time \[0, 1\] do not go together; .* all above 0",
    ),
    "a memory too few": (
        lambda: plots.plot_scaling([1, 2], [1, 1], memory=[1]),
        r"memory \[1\] do not go together",
    ),
    "no curves": (
        lambda: plots.plot_curves({}, ylabel="accuracy"),
        "got 0 curves; draw 1 to 6",
    ),
    "seven curves": (
        lambda: plots.plot_curves({name: [1] for name in "abcdefg"}, ylabel="accuracy"),
        "got 7 curves; draw 1 to 6",
    ),
    "curves of different lengths": (
        lambda: plots.plot_curves({"a": [1, 2], "b": [1]}, ylabel="accuracy"),
        r"x has 2 points and the curves {'a': 2, 'b': 1}; make them equal",
    ),
    "points without a place": (
        lambda: plots.plot_curves({"a": [1, 2]}, ylabel="accuracy", x=[1]),
        r"x has 1 points and the curves {'a': 2}; make them equal",
    ),
    "a negative bar": (
        lambda: plots.plot_bars({"a": -1}, xlabel="accuracy"),
        "bars are {'a': -1}; give at least one, and no value below 0",
    ),
    "no bars": (lambda: plots.plot_bars({}, xlabel="accuracy"), "give at least one"),
    "logits": (
        lambda: plots.plot_probabilities([2.0, -1.0]),
        "values sum to 1, their smallest is -1; .* with softmax",
    ),
    "names that do not fit": (
        lambda: plots.plot_probabilities([0.5, 0.5], ["a"]),
        "1 names for 2 to be named; give one each",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_drawn_honestly_is_refused_with_its_values_and_a_remedy(name):
    draw, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        draw()
