"""The parameter calculator: every number in the page is that of `counting.count`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from widget_page import Held, faults, open_widgets, read_facts, read_out

from course_utils.counting import Cost, Costs, count
from course_utils.vit import ViTConfig
from course_utils.widgets import ParameterCalculator
from course_utils.widgets.base import FOLDER, files
from course_utils.widgets.parameter_calculator import GROUPS, PRESETS, SIZES

ENTRIES = {
    "parameters": "parameters",
    "multiplyAdds": "multiply_adds",
    "activationBytes": "activation_bytes",
    "attentionBytes": "attention_bytes",
}
NOTHING = Cost(0, 0, 0, 0)


def grid_of_sizes() -> list[dict[str, Any]]:
    """Presets, and sizes of every kind: odd, tiny, long, without a head."""
    named = [dict(ParameterCalculator(name).traits_in_page) for name in PRESETS]
    presets = [{name: sizes[name] for name in SIZES} for sizes in named]
    images = [(28, 7, 1), (64, 1, 3), (224, 16, 3), (518, 14, 3), (99, 33, 5)]
    models = [(64, 2, 4, 4.0), (30, 1, 5, 2.5), (33, 7, 3, 0.5), (1280, 32, 16, 3.3)]
    mixed = [
        dict(zip(SIZES, (side, P, C, K, D, L, A, ratio), strict=True))
        for (side, P, C), (D, L, A, ratio), K in itertools.product(
            images, models, (0, 10, 1000)
        )
    ]
    return presets + mixed


def in_javascript(costs: Costs) -> dict[str, Any]:
    """The costs as `counting.js` writes them."""

    def entries(cost: Cost) -> dict[str, int]:
        return {theirs: getattr(cost, ours) for theirs, ours in ENTRIES.items()}

    left_out = ("block.ls1", "block.ls2")  # no LayerScale: they cost nothing
    parts = {name: cost for name, cost in costs.parts.items() if name not in left_out}
    return {
        "parts": {name: entries(cost) for name, cost in parts.items()},
        "total": entries(costs),
    }


def table_of(config: ViTConfig) -> list[list[str]]:
    """The page's table, row by row, from Python's counts."""
    costs = count(config)

    def row(name: str, cost: Cost) -> list[str]:
        of_parameters = f"{100 * cost.parameters / costs.parameters:.1f} %"
        of_arithmetic = f"{100 * cost.multiply_adds / costs.multiply_adds:.1f} %"
        return [
            name,
            f"{cost.parameters:,}",
            of_parameters,
            f"{cost.multiply_adds:,}",
            of_arithmetic,
            f"{cost.activation_bytes:,}",
            f"{cost.attention_bytes:,}",
        ]

    rows = []
    for name, parts in GROUPS.items():
        cost = NOTHING
        for part in parts:
            cost += costs[part] * (config.depth if part.startswith("block.") else 1)
        rows.append(row(name.replace("'", "’"), cost))
    return [*rows, row("all", costs)]


def read_table(page: Page) -> list[list[str]]:
    return page.locator(".vit-table tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent))"
    )


# In Python


def test_a_preset_sets_the_sizes_and_sizes_name_the_preset() -> None:
    widget = ParameterCalculator()
    assert widget.config == ViTConfig()
    for name in PRESETS:
        widget.preset = name
        assert widget.config == ViTConfig.preset(name)
    assert widget.costs.parameters == 105_098
    widget.depth = 3
    assert widget.preset == ""
    widget.depth = 2
    assert widget.preset == "digits"
    assert ParameterCalculator("L/16", patch_size=32).preset == ""
    assert ParameterCalculator("B/16", patch_size=32).preset == "B/32"


def test_a_configuration_goes_in_and_comes_out() -> None:
    widget = ParameterCalculator()
    config = ViTConfig(img_size=96, patch_size=8, embed_dim=96, num_heads=8, depth=4)
    widget.config = config
    assert widget.config == config
    assert (widget.img_size, widget.embed_dim, widget.preset) == (96, 96, "")
    for other in (ViTConfig(img_size=(224, 448)), ViTConfig(layer_scale=1e-5)):
        with pytest.raises(ValueError, match=r"cannot show.*counting\.count"):
            widget.config = other
    assert widget.config == config


@pytest.mark.parametrize(
    ("trait", "value", "words"),
    [
        ("patch_size", 15, "15"),
        ("img_size", 100, "100"),
        ("num_heads", 7, "768 cannot be shared by 7"),
        ("embed_dim", 770, "770 cannot be shared by 12"),
        ("depth", 0, "depth is 0"),
        ("mlp_ratio", -1.0, "mlp_ratio is -1"),
        ("preset", "B/17", "'B/17'; choose from Ti/16"),
        ("num_classes", 2**43, "Choose smaller sizes"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    trait: str, value: Any, words: str
) -> None:
    widget = ParameterCalculator()
    with pytest.raises(ValueError, match=words):
        setattr(widget, trait, value)
    assert (widget.config, widget.preset) == (ViTConfig(), "B/16")


def test_an_unknown_size_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="no size width; choose from img_size"):
        ParameterCalculator(width=64)
    with pytest.raises(ValueError, match="no preset 'G/14'"):
        ParameterCalculator("G/14")


def test_the_figure_tells_the_counts() -> None:
    figure = ParameterCalculator().figure()
    assert "MLP: 56.7. LayerNorm: 0.0384." in figure.alt
    assert "products" not in figure.alt  # they have no parameters
    assert "86,567,656 parameters and 17,563,828,224 multiply-adds" in figure.caption


# In the page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("calculator")
    with open_widgets(browser, folder) as seen:
        yield seen.page


@pytest.fixture
def held(page: Page) -> Iterator[Held]:
    held = Held(page, ParameterCalculator())
    yield held
    held.unmount()


@pytest.mark.browser
def test_the_pages_formulas_give_pythons_numbers_to_the_last_digit(page: Page) -> None:
    configs = grid_of_sizes()
    assert len(configs) >= 60
    contents = {name: f._asdict() for name, f in files("counting.js").items()}
    link = (FOLDER / "link.js").read_text("utf-8")
    counted = page.evaluate(
        """async ([link, files, configs]) => {
          const { count } = await (0, eval)(`(${link})`)("counting.js", files);
          return configs.map(count);
        }""",
        [link, contents, configs],
    )
    for sizes, theirs in zip(configs, counted, strict=True):
        config = ViTConfig(**sizes)
        assert theirs.pop("T") == config.num_tokens
        assert theirs.pop("N") == config.num_tokens - 1
        assert theirs == in_javascript(count(config)), sizes


@pytest.mark.browser
def test_the_table_holds_the_counts_part_by_part(held: Held) -> None:
    for sizes in grid_of_sizes()[::6]:
        held.set(**sizes)
        assert read_table(held.page) == table_of(ViTConfig(**sizes))


@pytest.mark.browser
def test_the_facts_are_those_of_the_preset(held: Held) -> None:
    held.page.get_by_role("radio", name="L/16").check()
    assert held.get("preset") == "L/16"
    config, costs = ViTConfig.preset("L/16"), count(ViTConfig.preset("L/16"))
    assert read_facts(held.page) == {
        "parameters": f"{costs.parameters / 1e6:.0f} million",
        "multiply-adds an image": f"{costs.multiply_adds / 1e9:.1f} billion",
        "tokens": f"{config.num_tokens}",
        "pairs of tokens": f"{config.num_tokens**2:,}",
        "memory of the weights": f"{4 * costs.parameters / 1e9:.2f} GB",
        "activations an image": (
            f"{(costs.activation_bytes + costs.attention_bytes) / 1e6:.0f} MB"
        ),
    }
    assert "in each of 16 × 24 attention maps" in held.page.inner_text(".vit-facts")
    assert read_out(held.page).startswith("L/16: 304 million parameters, 61.6 billion")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("label", "trait", "value"),
    [
        ("Image side", "img_size", 256),
        ("Patch side P", "patch_size", 28),
        ("Width D", "embed_dim", 896),
        ("Blocks L", "depth", 13),
        ("Heads A", "num_heads", 16),
        ("MLP, times the width", "mlp_ratio", 5),
        ("Classes K", "num_classes", 21_843),
    ],
)
def test_each_slider_takes_the_next_value(
    held: Held, label: str, trait: str, value: float
) -> None:
    held.page.get_by_role("slider", name=label).focus()
    held.page.keyboard.press("ArrowRight")
    assert held.get(trait) == value
    assert held.get("preset") == ""
    sizes = {name: held.get(name) for name in SIZES}
    assert read_table(held.page) == table_of(ViTConfig(**sizes))
    assert held.page.evaluate("document.activeElement.type") == "range"


@pytest.mark.browser
def test_patches_and_heads_follow_and_the_widget_says_so(held: Held) -> None:
    page = held.page
    held.set(img_size=64)
    page.get_by_role("button", name="Image side: more").click()
    assert (held.get("img_size"), held.get("patch_size")) == (96, 16)
    page.get_by_role("radio", name="H/14").check()
    page.get_by_role("button", name="Image side: more").click()
    assert (held.get("img_size"), held.get("patch_size")) == (256, 16)
    assert "14 does not divide 256 pixels, so P is now 16. H/14 with" in read_out(page)
    page.get_by_role("radio", name="B/16").check()
    page.get_by_role("button", name="Width D: less").click()
    assert (held.get("embed_dim"), held.get("num_heads")) == (640, 10)
    assert "12 heads cannot share a width of 640, so A is now 10." in read_out(page)
    page.get_by_role("button", name="Blocks L: more").click()
    assert "so A is now" not in read_out(page)


@pytest.mark.browser
def test_other_sizes_are_compared_with_the_preset_they_came_from(held: Held) -> None:
    held.set(patch_size=8)
    before, now = count(ViTConfig()), count(ViTConfig(patch_size=8))
    assert read_out(held.page) == (
        f"B/16 with P = 8 pixels: {now.parameters / 1e6:.1f} million parameters, "
        f"{now.parameters / before.parameters:.2g} × those of B/16; "
        f"{now.multiply_adds / 1e9:.1f} billion multiply-adds, "
        f"{now.multiply_adds / before.multiply_adds:.2g} ×; 785 tokens, 4 ×; "
        "616,225 pairs, 16 ×."
    )
    assert not held.page.get_by_role("radio", name="B/16").is_checked()


@pytest.mark.browser
def test_values_from_python_join_the_slider_and_no_others_fit(held: Held) -> None:
    held.set(img_size=100, patch_size=20, embed_dim=60, num_heads=5, in_chans=4)
    sizes = {name: held.get(name) for name in SIZES}
    assert read_table(held.page) == table_of(ViTConfig(**sizes))
    patch = held.page.get_by_role("slider", name="Patch side P")
    offered = []
    patch.focus()
    held.page.keyboard.press("Home")
    while not offered or offered[-1] != held.get("patch_size"):
        offered.append(held.get("patch_size"))
        held.page.keyboard.press("ArrowRight")
    assert offered == [1, 2, 4, 5, 10, 20, 25, 50, 100]


@pytest.mark.browser
def test_a_misfit_from_outside_is_said_in_words(held: Held) -> None:
    held.set(patch_size=15)
    assert read_out(held.page) == (
        "A patch side of 15 does not divide an image side of 224: choose one that does."
    )
    held.set(patch_size=16, num_heads=7)
    assert "7 heads cannot share a width of 768 evenly" in read_out(held.page)
    assert "NaN" not in held.page.inner_text("main")
    held.set(num_heads=12)
    assert read_out(held.page).startswith("B/16: ")


@pytest.mark.browser
def test_the_bars_show_the_shares(held: Held) -> None:
    costs = count(ViTConfig())
    grow = held.page.locator(".vit-segments").evaluate_all(
        "(bars) => bars.map((bar) => [...bar.children].map((x) => +x.style.flexGrow))"
    )
    for entry, shares in zip(("parameters", "multiply_adds"), grow, strict=True):
        assert sum(shares) == pytest.approx(1)
        mlp = 12 * getattr(costs["block.mlp"], entry) / getattr(costs, entry)
        assert max(shares) == pytest.approx(mlp)


@pytest.mark.browser
def test_a_view_can_end_and_begin_again(held: Held) -> None:
    held.unmount()
    assert held.page.locator(".vit-widget").count() == 0
    held.set(depth=1)
    held.mount()
    assert read_table(held.page) == table_of(ViTConfig(depth=1))


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1000, "dark")])
def test_nothing_is_wrong_with_the_page(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    two = ParameterCalculator(), ParameterCalculator("digits", num_classes=0)
    with open_widgets(browser, tmp_path, *two, width=width, scheme=scheme) as seen:
        seen.page.get_by_role("radio", name="H/14").first.check()
        assert faults(seen.page) == []
