"""Chapter 7: what a Vision Transformer costs, by formula, before it is built."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from course_utils import attention
from course_utils.counting import Cost, Costs, count
from course_utils.record import Record
from course_utils.vit import VisionTransformer, ViTConfig

ZERO = Cost(0, 0, 0, 0)


@st.composite
def configs(draw: Callable[..., Any]) -> ViTConfig:
    """Any small configuration: every option that changes what a model costs."""
    patch = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    grid = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    heads = draw(st.integers(1, 3))
    class_token = draw(st.booleans())
    return ViTConfig(
        img_size=(patch[0] * grid[0], patch[1] * grid[1]),
        patch_size=patch,
        in_chans=draw(st.integers(1, 3)),
        num_classes=draw(st.integers(0, 5)),
        embed_dim=4 * heads * draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 3)),
        num_heads=heads,
        mlp_ratio=draw(st.sampled_from([0.5, 1.3, 2.0, 4.0])),
        qkv_bias=draw(st.booleans()),
        class_token=class_token,
        pool=draw(st.sampled_from(["cls", "mean"])) if class_token else "mean",
        positions=draw(st.sampled_from(["learned", "sincos2d", "none"])),
        norm=draw(st.sampled_from(["pre", "post"])),
        final_norm=draw(st.booleans()),
        layer_scale=draw(st.sampled_from([None, 0.1])),
    )


def without_memory(config: ViTConfig) -> VisionTransformer:
    with torch.device("meta"):
        return VisionTransformer(config)


def images_for(config: ViTConfig, B: int = 1, device: str = "cpu") -> Tensor:
    size = (B, config.in_chans, *config.img_size)  # type: ignore[misc]
    return torch.rand(size, generator=torch.Generator().manual_seed(0)).to(device)


def learned(model: VisionTransformer, name: str) -> int:
    """Count the parameters of the module or the parameter that has this name."""
    whole = f"{name}."
    named = model.named_parameters()
    return sum(p.numel() for n, p in named if f"{n}.".startswith(whole))


# Parameters


def test_vit_base_by_hand() -> None:
    costs = count(ViTConfig.preset("B/16"))
    numbers = {
        "patch_embed": 768 * 768 + 768,
        "cls_token": 768,
        "pos_embed": 197 * 768,
        "block.attn": 4 * (768 * 768 + 768),
        "block.mlp.fc1": 768 * 3072 + 3072,
        "block.mlp.fc2": 3072 * 768 + 768,
        "block.mlp": 4_722_432,
        "block": 7_087_872,
        "blocks": 85_054_464,
        "norm": 1_536,
        "head": 768 * 1000 + 1000,
    }
    assert {name: costs[name].parameters for name in numbers} == numbers
    assert numbers["patch_embed"] == 590_592
    assert numbers["pos_embed"] == 151_296
    assert numbers["block.attn"] == 2_362_368
    assert (costs["block.norm1"] + costs["block.norm2"]).parameters == 3_072
    assert costs.parameters == 86_567_656
    headless = count(ViTConfig.preset("B/16", num_classes=0))
    assert headless.parameters == 85_798_656


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("Ti/16", 5_717_416),
        ("S/16", 22_050_664),
        ("B/16", 86_567_656),
        ("B/32", 88_224_232),
        ("L/16", 304_326_632),
        ("L/32", 306_535_400),
        ("H/14", 632_045_800),
        ("digits", 105_098),
    ],
)
def test_one_formula_counts_the_whole_family(preset: str, parameters: int) -> None:
    assert count(ViTConfig.preset(preset)).parameters == parameters


@given(configs())
@settings(deadline=None, max_examples=60)
def test_each_part_has_the_parameters_of_the_module_of_that_name(
    config: ViTConfig,
) -> None:
    costs, model = count(config), without_memory(config)
    for name, cost in costs.parts.items():
        if name not in ("block.attn.scores", "block.attn.mix"):  # no module's
            module = name.replace("block.", "blocks.0.")
            assert cost.parameters == learned(model, module), name
    for name in ("attn", "mlp"):
        assert costs[f"block.{name}"].parameters == learned(model, f"blocks.0.{name}")
    assert costs["block"].parameters == learned(model, "blocks.0")
    assert costs["blocks"].parameters == learned(model, "blocks")
    assert costs.parameters == sum(p.numel() for p in model.parameters())


def test_a_fixed_position_table_is_nothing_learned() -> None:
    rows = 17 * 64
    learned, fixed, none = (
        count(ViTConfig.preset("digits", positions=positions))
        for positions in ("learned", "sincos2d", "none")
    )
    assert learned["pos_embed"].parameters == rows
    assert fixed["pos_embed"] == none["pos_embed"] == ZERO
    assert learned.parameters - fixed.parameters == rows


# What the counts tell


def test_what_is_made_for_images_is_under_one_hundredth() -> None:
    costs = count(ViTConfig.preset("B/16"))
    stage = costs["patch_embed"] + costs["cls_token"] + costs["pos_embed"]
    assert stage.parameters == 742_656 < costs.parameters / 100


@pytest.mark.parametrize("preset", ["Ti/16", "B/16", "H/14"])
def test_the_mlps_hold_twice_what_attention_holds(preset: str) -> None:
    costs = count(ViTConfig.preset(preset))
    ratio = costs["block.mlp"].parameters / costs["block.attn"].parameters
    assert ratio == pytest.approx(2, rel=0.003)


def test_only_the_position_table_grows_with_the_image() -> None:
    small, large = (count(ViTConfig(img_size=side)) for side in (224, 384))
    differ = [
        name
        for name, cost in small.parts.items()
        if cost.parameters != large[name].parameters
    ]
    assert differ == ["pos_embed"]
    assert large["pos_embed"].parameters == 577 * 768


def test_heads_add_no_parameters_and_no_multiply_adds_but_maps() -> None:
    one, twelve = (count(ViTConfig(num_heads=heads)) for heads in (1, 12))
    assert one.parameters == twelve.parameters
    assert one.multiply_adds == twelve.multiply_adds
    assert one.activation_bytes == twelve.activation_bytes
    assert 12 * one.attention_bytes == twelve.attention_bytes


def test_half_the_patch_side_is_sixteen_times_the_pairs_not_the_parameters() -> None:
    coarse, fine = (count(ViTConfig(patch_size=side)) for side in (16, 8))
    assert fine.attention_bytes / coarse.attention_bytes == pytest.approx(
        785**2 / 197**2
    )
    assert 15.8 < 785**2 / 197**2 < 15.9
    assert fine["blocks"].parameters == coarse["blocks"].parameters
    assert fine["patch_embed"].parameters == 8 * 8 * 3 * 768 + 768
    assert fine["pos_embed"].parameters == 785 * 768
    by_token = [costs["block.mlp"].multiply_adds for costs in (coarse, fine)]
    assert by_token[1] / by_token[0] == pytest.approx(785 / 197)


# Multiply-adds


class Full(nn.Module):
    """A model all of whose tokens go through every block, along either path."""

    def __init__(self, vit: VisionTransformer, explicit: bool) -> None:
        super().__init__()
        self.vit, self.explicit = vit, explicit

    def forward(self, images: Tensor) -> Tensor:
        record = Record(only="weights") if self.explicit else None
        return self.vit.forward_head(self.vit.forward_features(images, record))


def counted_by_torch(
    config: ViTConfig, B: int = 1, *, explicit: bool = False
) -> dict[str, int]:
    """Half the operations of each module, as PyTorch's own counter sees them."""
    model = Full(without_memory(config), explicit)
    with FlopCounterMode(display=False) as counter:
        model(images_for(config, B, "meta"))
    return {
        name.removeprefix("Full.vit."): sum(by_kind.values()) // 2
        for name, by_kind in counter.get_flop_counts().items()
    }


@given(configs(), st.integers(1, 3), st.booleans())
@settings(deadline=None, max_examples=25)
def test_multiply_adds_are_half_the_operations_that_torch_counts(
    config: ViTConfig, B: int, explicit: bool
) -> None:
    costs = count(config, batch=B)
    found = counted_by_torch(config, B, explicit=explicit)
    assert costs.multiply_adds == found["Global"]
    for name in ("attn", "attn.qkv", "attn.proj", "mlp", "mlp.fc1", "mlp.fc2"):
        part = costs[f"block.{name}"]
        assert part.multiply_adds == found[f"blocks.0.{name}"], name
    assert costs["patch_embed"].multiply_adds == found["patch_embed"]
    assert costs["block"].multiply_adds == found["blocks.0"]
    assert costs["head"].multiply_adds == found.get("head", 0)


@pytest.mark.parametrize(
    ("side", "total", "attention"), [(224, 17.56, 0.715), (384, 55.48, 6.137)]
)
def test_vit_base_takes_as_many_multiply_adds_as_published(
    side: int, total: float, attention: float
) -> None:
    config = ViTConfig(img_size=side)
    costs = count(config)
    assert costs.multiply_adds / 1e9 == pytest.approx(total, abs=0.005)
    pairs = 12 * (costs["block.attn.scores"] + costs["block.attn.mix"])
    assert pairs.multiply_adds / 1e9 == pytest.approx(attention, abs=0.0005)
    assert counted_by_torch(config)["Global"] == costs.multiply_adds


def test_reading_cls_alone_spares_most_of_the_last_block() -> None:
    config = ViTConfig.preset("B/16")
    model = without_memory(config)
    with FlopCounterMode(display=False) as counter:
        model(images_for(config, device="meta"))
    costs = count(config)
    spared = costs.multiply_adds - counter.get_total_flops() // 2
    assert 0.7 < spared / costs["block"].multiply_adds < 1


# Memory


def saved_by_torch(config: ViTConfig, B: int, dtype: torch.dtype) -> dict[str, int]:
    """Bytes that each module keeps for the backward pass, weights apart.

    A tensor that is kept twice counts once.
    """
    model = VisionTransformer(config, torch.Generator().manual_seed(0)).to(dtype)
    weights = {w.untyped_storage().data_ptr() for w in model.state_dict().values()}
    kept: dict[tuple[int, int], int] = {}
    alive = []  # so that no address is used again
    found: dict[str, int] = {}

    def pack(x: Tensor) -> Tensor:
        alive.append(x)
        if x.untyped_storage().data_ptr() not in weights:
            kept[x.data_ptr(), x.numel()] = x.numel() * x.element_size()
        return x

    def watch(name: str, module: nn.Module) -> None:
        def before(*_: Any) -> None:
            found[name] = -sum(kept.values())

        def after(*_: Any) -> None:
            found[name] += sum(kept.values())

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)

    for name, module in model.named_modules():
        watch(name, module)
    with saved_tensors_hooks(pack, lambda x: x):
        images = images_for(config, B).to(dtype)
        model.forward_head(model.forward_features(images))
    return found | {"model": sum(kept.values())}


@given(
    configs(),
    st.integers(1, 3),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
@settings(deadline=None, max_examples=60)
def test_activation_memory_is_what_the_explicit_path_keeps_for_backward(
    config: ViTConfig, B: int, dtype: torch.dtype
) -> None:
    costs = count(config, batch=B, dtype=dtype)
    found = saved_by_torch(config, B, dtype)
    assert found["model"] == costs.activation_bytes + costs.attention_bytes
    for name, cost in costs.parts.items():
        module = name.replace("block.", "blocks.0.")
        if module in found:
            assert found[module] == cost.activation_bytes, name
    layer = costs["block.attn"]
    assert found["blocks.0.attn"] == layer.activation_bytes + layer.attention_bytes
    block = costs["block"]
    assert found["blocks.0"] == block.activation_bytes + block.attention_bytes


@given(configs(), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_the_fused_path_keeps_one_number_a_row_in_place_of_the_maps(
    config: ViTConfig, B: int
) -> None:
    costs = count(config, batch=B)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "FEW_TOKENS", 0)
        found = saved_by_torch(config, B, torch.float32)
    rows = config.depth * B * config.num_heads * config.num_tokens
    assert found["model"] == costs.activation_bytes + 4 * rows


@given(configs(), st.integers(1, 3))
@settings(deadline=None, max_examples=20)
def test_attention_memory_is_that_of_the_maps_a_model_makes(
    config: ViTConfig, B: int
) -> None:
    model = VisionTransformer(config, torch.Generator().manual_seed(0))
    kept = model.intermediates(images_for(config, B))
    maps = [x for name, x in kept.items() if name.endswith("attn.weights")]
    costs = count(config, batch=B)
    assert len(maps) == config.depth
    assert costs.attention_bytes == sum(x.numel() * x.element_size() for x in maps)
    assert costs["block.attn.scores"].attention_bytes == maps[0].numel() * 4


@given(configs(), st.integers(1, 5))
@settings(deadline=None, max_examples=20)
def test_a_batch_takes_work_and_memory_for_each_image_and_no_more_parameters(
    config: ViTConfig, B: int
) -> None:
    one, batch = count(config), count(config, batch=B)
    half = count(config, batch=B, dtype=torch.bfloat16)
    assert batch.parameters == half.parameters == one.parameters
    assert batch.multiply_adds == half.multiply_adds == B * one.multiply_adds
    assert batch.activation_bytes == B * one.activation_bytes
    assert batch.attention_bytes == B * one.attention_bytes
    assert 2 * half.activation_bytes == batch.activation_bytes
    assert 2 * half.attention_bytes == batch.attention_bytes


# Parts and sums


@given(configs())
@settings(deadline=None, max_examples=20)
def test_the_parts_add_up(config: ViTConfig) -> None:
    costs = count(config)
    outside = ("patch_embed", "cls_token", "pos_embed", "norm", "head")
    total = sum((costs[name] for name in outside), costs["blocks"])
    assert vars(total).items() <= vars(costs).items()
    inside = [cost for name, cost in costs.parts.items() if name.startswith("block.")]
    assert costs["block"] == sum(inside, ZERO)
    assert costs["blocks"] == config.depth * costs["block"]


@pytest.mark.parametrize("name", ["block.", "bloc", "atn", "block.attn.q", "", "total"])
def test_an_unknown_part_is_refused_with_the_known_ones(name: str) -> None:
    known = "patch_embed.*block.attn.qkv.*head, block, blocks"
    with pytest.raises(KeyError, match=f"no part is called '{name}'.*{known}"):
        count(ViTConfig())[name]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"batch": 0}, ValueError, "batch is 0; give at least 1 image"),
        ({"batch": -2}, ValueError, "batch is -2"),
        ({"batch": 2.0}, TypeError, "batch is 2.0; give a whole number"),
        ({"batch": True}, TypeError, "batch is True"),
        ({"dtype": torch.int64}, TypeError, "dtype is torch.int64; .*torch.bfloat16"),
        ({"dtype": "float16"}, TypeError, "dtype is 'float16'; .*torch.float32"),
    ],
)
def test_what_cannot_be_counted_is_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        count(ViTConfig(), **changes)


# The table


class Table(HTMLParser):
    """The texts of one table's cells, by row, and the facts a screen reader needs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.caption = ""
        self.open: list[str] = []
        self.scopes: list[str | None] = []
        self.feed(text)
        assert self.open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "th":
            self.scopes.append(dict(attrs)["scope"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open[-1] == "caption":
            self.caption = text
        else:
            assert self.open[-1] in ("th", "td")
            self.rows[-1].append(text)


def text_rows(costs: Costs) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in repr(costs).splitlines()[1:]]


def test_the_table_says_what_was_counted_and_ends_in_the_total() -> None:
    config = ViTConfig(img_size=(224, 112), num_classes=0, layer_scale=0.1)
    for batch, images in [(1, "1 image in"), (8, "8 images in")]:
        costs = count(config, batch=batch, dtype=torch.bfloat16)
        assert repr(costs).splitlines()[0] == costs.caption
        assert costs.caption == (
            f"224×112 pixels in 16×16 patches: 99 tokens, 768 wide; {images} bfloat16"
        )
        names = [row[0] for row in text_rows(costs)]
        assert names[0] == "part"
        assert names[-1] == "total"
        assert "blocks = 12 × block" in names
        assert "block.ls1" in names
        assert "head" not in names  # this model has none
        assert text_rows(costs)[-1][1:] == [
            f"{costs.parameters:,}",
            f"{costs.multiply_adds:,}",
            f"{costs.activation_bytes:,}",
            f"{costs.attention_bytes:,}",
        ]


@given(configs())
@settings(deadline=None, max_examples=20)
def test_the_table_shows_every_part_that_costs_anything(config: ViTConfig) -> None:
    costs = count(config)
    header, *body, _ = text_rows(costs)
    assert [title.split()[0] for title in header] == [
        "part",
        "parameters",
        "multiply-adds",
        "activation",
        "attention",
    ]
    shown = {row[0].split(" ")[0]: row[1:] for row in body}
    costly = {name for name, cost in costs.parts.items() if cost != ZERO}
    assert set(shown) == costly | {"block", "blocks"}
    for name, numbers in shown.items():
        assert numbers == [f"{n:,}" for n in vars(costs[name]).values()], name


def test_the_columns_of_the_text_are_aligned() -> None:
    _, header, *lines = repr(count(ViTConfig())).splitlines()
    assert {len(line) for line in lines} == {len(header)}
    ends = [match.end() for match in re.finditer(r"\S+(?: \S+)*", header)][1:]
    for line in lines:
        assert [line[end - 1].isdigit() for end in ends] == [True] * 4, line
    assert "85,054,464" in repr(count(ViTConfig()))


def test_the_notebook_shows_the_same_table_to_eyes_and_to_screen_readers() -> None:
    costs = count(ViTConfig(num_classes=5))
    page = costs._repr_html_()
    table = Table(page)
    assert table.caption == costs.caption
    assert table.rows == text_rows(costs)
    assert table.scopes == ["col"] * 5 + ["row"] * (len(table.rows) - 1)
    assert not re.search("color|background|class=|id=", page)  # the theme's own
