"""Chapters 4, 5, 6 and 9: maps of what a ViT looks at."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.inspection import (
    Heads,
    attention,
    attention_distance,
    cls_maps,
    colour_basis,
    feature_colours,
    layer_features,
    patch_maps,
    random_control,
    rollout,
)
from course_utils.plots import show_attention, show_images
from course_utils.positions import sincos2d
from course_utils.vit import VisionTransformer, ViTConfig

Grid = tuple[int, int]
Array = NDArray[np.float64]
GRIDS = st.tuples(st.integers(1, 5), st.integers(1, 5))
RECTANGLE: dict[str, Any] = {"img_size": (6, 20), "patch_size": (2, 5), "in_chans": 2}
KINDS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"norm": "post", "final_norm": False},
    "mean": {"pool": "mean"},
    "mean without [CLS]": {"pool": "mean", "class_token": False},
    "fixed positions": {"positions": "sincos2d"},
    "no positions": {"positions": "none"},
    "more than 64 tokens": {"img_size": (18, 40)},
}
kinds = pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
both = pytest.mark.parametrize("look", [attention, layer_features])


def trained(**changes: Any) -> VisionTransformer:
    """A model in double precision whose every weight, norms' too, is its own."""
    config = ViTConfig.preset("micro", **(RECTANGLE | changes))
    model = VisionTransformer(config, torch.Generator().manual_seed(0)).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            change = torch.randn(parameter.shape, generator=generator).double()
            parameter.add_(change / 4 if parameter.ndim == 1 else change / 10)
    return model


def pixels(model: VisionTransformer, B: int = 3) -> Tensor:
    size = (B, model.config.in_chans, *model.config.img_size)  # type: ignore[misc]
    images = torch.rand(size, generator=torch.Generator().manual_seed(2))
    return images.to(model.patch_embed.proj.weight)


def some_weights(*shape: int, seed: int = 0) -> Tensor:
    """Attention weights of that shape, sharp enough to differ."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(shape, generator=generator).double()).softmax(-1)


def some_features(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(shape[-1], shape[-1], generator=generator).double()
    return torch.randn(shape, generator=generator).double() @ mixed + 3


# What the model gives


def torchs_block(model: VisionTransformer, i: int) -> nn.TransformerEncoderLayer:
    """PyTorch's own encoder layer with the weights of block i."""
    c = model.config
    layer = nn.TransformerEncoderLayer(
        c.embed_dim,
        c.num_heads,
        int(c.mlp_ratio * c.embed_dim),
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=c.layer_norm_eps,
        batch_first=True,
        norm_first=c.norm == "pre",
        dtype=torch.float64,
    )
    renamed = {}
    for name, weight in model.blocks[i].state_dict().items():
        for old, new in [
            ("attn.qkv.", "self_attn.in_proj_"),
            ("attn.proj", "self_attn.out_proj"),
            ("mlp.fc", "linear"),
        ]:
            name = name.replace(old, new)
        renamed[name] = weight
    layer.load_state_dict(renamed)
    return layer.eval()


@kinds
def test_features_are_the_tokens_as_they_pass_through_pytorchs_own_layers(
    changes: dict[str, Any],
) -> None:
    model = trained(**changes)
    images, c = pixels(model), model.config
    features = layer_features(model, images)
    assert features.shape == (3, c.depth + 1, c.num_tokens, c.embed_dim)

    proj = model.patch_embed.proj
    x = F.conv2d(images, proj.weight, proj.bias, c.patch_size)  # type: ignore[arg-type]
    x = x.flatten(2).transpose(1, 2)
    if model.cls_token is not None:
        x = torch.cat([model.cls_token.expand(3, 1, -1), x], dim=1)
    if model.pos_embed is not None:
        x = x + model.pos_embed
    torch.testing.assert_close(features[:, 0], x)
    for i in range(c.depth):
        x = torchs_block(model, i)(x)
        torch.testing.assert_close(features[:, i + 1], x)


@kinds
def test_the_final_norm_of_the_last_features_is_what_the_head_reads(
    changes: dict[str, Any],
) -> None:
    model = trained(**changes)
    images = pixels(model)
    last = model.norm(layer_features(model, images)[:, -1])
    torch.testing.assert_close(last, model.forward_features(images))
    torch.testing.assert_close(model.forward_head(last), model(images))


@kinds
def test_attention_is_that_of_pytorchs_own_layers_block_by_block_and_head_by_head(
    changes: dict[str, Any],
) -> None:
    model = trained(**changes)
    images, c = pixels(model), model.config
    weights = attention(model, images)
    assert weights.shape == (3, c.depth, c.num_heads, c.num_tokens, c.num_tokens)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]).double())
    for i, x in enumerate(layer_features(model, images)[:, :-1].unbind(1)):
        layer = torchs_block(model, i)
        x = layer.norm1(x) if c.norm == "pre" else x
        _, expected = layer.self_attn(x, x, x, average_attn_weights=False)
        torch.testing.assert_close(weights[:, i], expected)


@both
@kinds
def test_an_image_looks_the_same_alone_and_in_a_batch_of_any_size(
    look: Callable[..., Tensor], changes: dict[str, Any]
) -> None:
    model = trained(**changes)
    images = pixels(model, 5)
    together = look(model, images)
    assert not torch.allclose(together[0], together[1])
    for size in (1, 2, 5):
        torch.testing.assert_close(look(model, images, batch_size=size), together)
    for image, expected in zip(images, together, strict=True):
        torch.testing.assert_close(look(model, image[None])[0], expected)
    assert look(model, images[:0]).shape == (0, *together.shape[1:])


@both
def test_a_model_in_training_is_looked_at_without_dropout_and_left_as_it_was(
    look: Callable[..., Tensor], untouched_random_state: None
) -> None:
    quiet = trained()
    model = trained(drop_rate=0.5, attn_drop_rate=0.5).train()
    model.blocks[0].eval()  # a part that its owner keeps fixed
    modes = [module.training for module in model.modules()]
    images = pixels(model)
    seen = look(model, images)
    assert torch.equal(seen, look(quiet, images))
    assert not seen.requires_grad
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(TypeError):
        look(model, images.long())
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


@both
def test_images_are_taken_to_the_models_device_and_precision(
    look: Callable[..., Tensor],
) -> None:
    model = trained().float()
    images = pixels(model)
    single = look(model, images)
    assert single.dtype == torch.float32
    assert torch.equal(look(model, images.double()), single)
    half = look(model.bfloat16(), images)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), single, rtol=0.05, atol=0.05)
    elsewhere = look(model.to("meta"), images)  # a device that has shapes alone
    assert elsewhere.is_meta
    assert elsewhere.shape == single.shape


@both
def test_images_that_do_not_fit_are_refused_as_the_model_refuses_them(
    look: Callable[..., Tensor],
) -> None:
    model = trained()
    with pytest.raises(TypeError, match=r"images are torch.uint8.*images.float\(\)"):
        look(model, pixels(model).byte())
    with pytest.raises(ValueError, match=r"images are 20x6 pixels.*for 6x20"):
        look(model, pixels(model).mT)
    with pytest.raises(ValueError, match="add the batch axis"):
        look(model, pixels(model)[0])


def test_the_weights_of_vit_base_take_22_megabytes_an_image() -> None:
    with torch.device("meta"):  # no memory is taken here
        model = VisionTransformer(ViTConfig.preset("B/16"))
    weights = attention(model, torch.empty(2, 3, 224, 224))
    assert weights.shape == (2, 12, 12, 197, 197)
    assert weights[0].numel() * 4 == 22_353_984


# The control


@kinds
def test_the_control_is_the_fresh_model_of_its_seed(
    changes: dict[str, Any], untouched_random_state: None
) -> None:
    model = trained(**changes).float()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    control = random_control(model, seed=7)
    expected = VisionTransformer(model.config, torch.Generator().manual_seed(7))
    assert control.config == model.config
    for name, weight in control.state_dict().items():
        assert torch.equal(weight, expected.state_dict()[name]), name
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    for name, parameter in control.named_parameters():  # nothing learned is left
        assert not torch.isclose(parameter, before[name]).any(), name
    other = random_control(model, seed=8)
    assert not torch.equal(other.head.weight, control.head.weight)


def test_the_control_keeps_fixed_positions() -> None:
    model = trained(positions="sincos2d").at_size((4, 30))
    control = random_control(model, seed=0)
    torch.testing.assert_close(control.pos_embed, model.pos_embed)
    expected = sincos2d((2, 6), model.config.embed_dim)
    assert control.pos_embed is not None
    torch.testing.assert_close(control.pos_embed.float(), expected)


def test_the_control_serves_the_size_that_its_model_was_taken_to() -> None:
    model = trained().at_size((4, 30))
    control = random_control(model, seed=0)
    assert attention(control, pixels(model)).shape == (3, 2, 4, 13, 13)


def test_the_control_has_the_models_mode_precision_and_new_head() -> None:
    model = trained().bfloat16()
    model.head = nn.Linear(16, 5).bfloat16()
    model.patch_embed.requires_grad_(False)
    control = random_control(model, seed=0)
    assert not control.training
    assert random_control(model.train(), seed=0).training
    assert {x.dtype for x in control.state_dict().values()} == {torch.bfloat16}
    assert control(pixels(model)).shape == (3, 5)
    assert not control.patch_embed.proj.weight.requires_grad
    assert control.head.weight.requires_grad


# [CLS] and patches on the grid


@given(GRIDS, st.integers(1, 2))
@settings(deadline=None, max_examples=30)
def test_a_cls_map_is_row_0_of_the_weights_in_reading_order(
    grid: Grid, num_prefix: int
) -> None:
    T = num_prefix + grid[0] * grid[1]
    weights = some_weights(2, 3, 2, T, T)
    maps = cls_maps(weights, grid, num_prefix)
    assert maps.shape == (2, 3, 2, *grid)
    for i, j in np.ndindex(grid):
        assert torch.equal(
            maps[..., i, j], weights[..., 0, num_prefix + i * grid[1] + j]
        )


def test_a_cls_map_lacks_what_cls_reads_from_itself() -> None:
    model = trained()
    weights = attention(model, pixels(model))
    maps = cls_maps(weights, model.config.grid)
    own = weights[..., 0, 0]
    assert own.min() > 0.01
    torch.testing.assert_close(maps.sum((-2, -1)), 1 - own)


@given(GRIDS, st.integers(0, 2))
@settings(deadline=None, max_examples=30)
def test_patch_maps_are_the_rows_of_patches_in_reading_order(
    grid: Grid, num_prefix: int
) -> None:
    T = num_prefix + grid[0] * grid[1]
    weights = some_weights(2, 3, T, T)
    maps = patch_maps(weights, grid, num_prefix)
    assert maps.shape == (2, 3, *grid, *grid)
    for i, j, k, m in np.ndindex(grid + grid):
        query, key = (num_prefix + r * grid[1] + c for r, c in ((i, j), (k, m)))
        assert torch.equal(maps[..., i, j, k, m], weights[..., query, key])


def test_one_block_one_head_and_a_rollout_make_maps_too() -> None:
    weights = some_weights(2, 3, 4, 7, 7)
    for make in (cls_maps, patch_maps):
        maps = make(weights, (2, 3))
        assert torch.equal(make(weights[:, 1], (2, 3)), maps[:, 1])
        assert torch.equal(make(weights[1, 2, 3], (2, 3)), maps[1, 2, 3])
    assert cls_maps(rollout(weights), (2, 3)).shape == (2, 2, 3)


def test_without_cls_there_are_patch_maps_and_no_cls_maps() -> None:
    model = trained(pool="mean", class_token=False)
    weights, c = attention(model, pixels(model)), model.config
    with pytest.raises(ValueError, match=r"num_prefix is 0.*no \[CLS\].*patch_maps"):
        cls_maps(weights, c.grid, c.num_prefix)
    maps = patch_maps(weights, c.grid, c.num_prefix)
    torch.testing.assert_close(maps.sum((-2, -1)), torch.ones(3, 2, 4, 3, 4).double())


# Each function that lays tokens on a grid, with the name of what it takes.
ON_A_GRID: dict[str, tuple[Callable[[Tensor, Grid, int], Tensor], str]] = {
    "cls_maps": (cls_maps, "weights"),
    "patch_maps": (patch_maps, "weights"),
    "attention_distance": (
        lambda x, grid, prefix: attention_distance(x, grid, 4, prefix),
        "weights",
    ),
    "feature_colours": (
        lambda x, grid, prefix: feature_colours(x, grid, prefix),
        "features",
    ),
}


@pytest.mark.parametrize("name", ON_A_GRID)
@pytest.mark.parametrize(
    ("T", "grid", "num_prefix"), [(13, (4, 4), 1), (12, (3, 4), 1), (14, (3, 4), 1)]
)
def test_a_grid_that_does_not_fit_is_refused_and_both_are_named(
    name: str, T: int, grid: Grid, num_prefix: int
) -> None:
    function, what = ON_A_GRID[name]
    h, w = grid
    message = (
        f"the {what} have shape (2, {T}, {T}), {T} tokens; a {h}x{w} grid with "
        f"{num_prefix} prefix tokens needs {num_prefix + h * w}. Give the model's"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        function(some_weights(2, T, T), grid, num_prefix)
    function(some_weights(2, T, T), (1, T - num_prefix), num_prefix)


@pytest.mark.parametrize(
    "function", [cls_maps, patch_maps, partial(attention_distance, patch_size=4)]
)
@pytest.mark.parametrize("shape", [(2, 1, 13), (13,), (2, 13, 12)])
def test_weights_without_a_row_and_a_column_a_token_are_refused(
    function: Callable[..., Tensor], shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{shape}; expected (..., T, T)")):
        function(torch.rand(shape), (3, 4))


# Rollout


def test_rollout_of_two_blocks_and_three_tokens_is_the_product_by_hand() -> None:
    first = [[0.5, 0.5, 0], [0, 1, 0], [0.25, 0.25, 0.5]]
    second = [[0, 0, 1], [0, 0.5, 0.5], [1, 0, 0]]
    # With half of the identity the two are
    #   .75  .25  0           .5  0   .5
    #   0    1    0     and   0   .75 .25
    #   .125 .125 .75         .5  0   .5
    # and this is the second times the first.
    expected = [[0.4375, 0.1875, 0.375], [0.03125, 0.78125, 0.1875]]
    expected.append(expected[0])
    weights = torch.tensor([first, second])[None, :, None]  # (B, L, A, T, T)
    assert rollout(weights).tolist() == [expected]


def rollout_by_hand(blocks: Array, heads: str, discard: float) -> Array:
    """Rollout of one image, from weights (L, A, T, T), in loops."""
    T = blocks.shape[-1]
    flow = np.eye(T)
    for block in blocks:
        joined: Array = {"mean": np.mean, "max": np.max, "min": np.min}[heads](block, 0)
        for q in range(T):
            others = sorted(set(range(T)) - {q}, key=lambda k: joined[q, k])
            for k in others[: int(discard * (T - 1))]:
                joined[q, k] = 0
        mixed = 0.5 * joined + 0.5 * np.eye(T)
        flow = (mixed / mixed.sum(axis=1, keepdims=True)) @ flow
    return flow


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
@pytest.mark.parametrize("discard", [0, 0.3, 0.5, 0.9, 0.999])
def test_every_way_to_roll_out_is_the_recipe_written_as_loops(
    heads: Heads, discard: float
) -> None:
    weights = some_weights(2, 3, 4, 7, 7)
    rolled = rollout(weights, heads=heads, discard=discard)
    assert rolled.shape == (2, 7, 7)
    for image, seen in zip(weights.numpy(), rolled, strict=True):
        np.testing.assert_allclose(seen, rollout_by_hand(image, heads, discard))
    torch.testing.assert_close(rolled.sum(-1), torch.ones(2, 7).double())
    alone = torch.cat([rollout(w[None], heads=heads, discard=discard) for w in weights])
    torch.testing.assert_close(alone, rolled)


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
@pytest.mark.parametrize("discard", [0, 0.5])
def test_tokens_that_read_from_themselves_alone_stay_themselves(
    heads: Heads, discard: float
) -> None:
    identity = torch.eye(5).expand(2, 3, 4, 5, 5)
    rolled = rollout(identity, heads=heads, discard=discard)
    assert torch.equal(rolled, torch.eye(5).expand(2, 5, 5))


def test_cls_keeps_its_own_weight_when_it_is_the_lowest() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
    rolled = rollout(weights[None, None, None], discard=0.5)
    # (0.1 + 1) : 0 : 0.7, and its share of 0.7 patches is not made larger.
    torch.testing.assert_close(rolled[0, 0], torch.tensor([1.1, 0, 0.7]) / 1.8)
    # Equal weights stay together, whichever comes first.
    torch.testing.assert_close(rolled[0, 2], torch.tensor([0.3, 0.3, 1.4]) / 2)


def test_what_is_discarded_does_not_depend_on_the_order_of_tokens() -> None:
    weights = some_weights(1, 2, 2, 9, 9).round(decimals=1)  # with ties
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    moved = weights[..., order, :][..., order]
    rolled = rollout(weights, discard=0.6)
    torch.testing.assert_close(
        rollout(moved, discard=0.6), rolled[:, order][..., order]
    )


def test_rollout_looks_as_far_back_as_there_are_blocks() -> None:
    step = torch.eye(6).roll(1, dims=1)  # token q reads from token q + 1
    for L in range(1, 5):
        reached = rollout(step.expand(1, L, 1, 6, 6))[0, 0].nonzero().flatten()
        assert reached.tolist() == list(range(L + 1))


def test_what_all_tokens_read_first_has_half_of_every_map_of_the_rollout() -> None:
    weights = some_weights(2, 12, 4, 7, 7)
    weights[:, 0] = F.one_hot(torch.tensor(5), 7)
    assert rollout(weights)[..., 5].min() >= 0.5 - 1e-9
    assert rollout(weights[:, 1:])[..., 5].max() < 0.5


def test_rollout_of_half_precision_is_computed_in_single() -> None:
    weights = some_weights(1, 12, 4, 50, 50)
    rolled = rollout(weights.bfloat16())
    assert rolled.dtype == torch.float32
    torch.testing.assert_close(rolled.sum(-1), torch.ones(1, 50))
    torch.testing.assert_close(rolled.double(), rollout(weights), rtol=0.02, atol=1e-3)


def test_rollout_refuses_one_block_or_the_short_cuts_weights() -> None:
    message = r"\(3, 4, 7, 7\); expected all blocks, \(B, L, A, T, T\)"
    with pytest.raises(ValueError, match=message):
        rollout(some_weights(3, 4, 7, 7))
    with pytest.raises(ValueError, match=r"\(3, 2, 4, 1, 7\); expected all blocks"):
        rollout(some_weights(3, 2, 4, 1, 7))


def test_rollout_refuses_options_that_it_does_not_know() -> None:
    weights = some_weights(1, 1, 1, 3, 3)
    with pytest.raises(ValueError, match=r"heads is 'median'.*'mean', 'max', 'min'"):
        rollout(weights, heads="median")  # type: ignore[arg-type]
    for discard in (-0.1, 1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=f"discard is {discard}; give 0 up to 1"):
            rollout(weights, discard=discard)


# How far patches look


def uniform(T: int) -> Tensor:
    return torch.full((T, T), 1 / T, dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 2, 5, 14])
def test_looking_everywhere_alike_in_a_row_of_n_patches_is_a_third_of_the_way(
    n: int,
) -> None:
    # The mean of |i - j| over n times n pairs is (n² - 1) / 3n.
    steps = (n * n - 1) / (3 * n)
    across = attention_distance(uniform(n + 1), (1, n), (3, 7))
    down = attention_distance(uniform(n + 1), (n, 1), (3, 7))
    assert across.item() == pytest.approx(7 * steps)
    assert down.item() == pytest.approx(3 * steps)


def test_looking_everywhere_alike_at_224_pixels_is_116_pixels() -> None:
    distance = attention_distance(uniform(197), (14, 14), 16).item()
    i, j = np.divmod(np.arange(196), 14)
    pairs = [np.sqrt((i - a) ** 2 + (j - b) ** 2) for a, b in zip(i, j, strict=True)]
    assert distance == pytest.approx(16 * np.mean(pairs))
    assert round(distance) == 116


def test_a_patch_that_looks_at_itself_looks_nowhere_else() -> None:
    own = torch.eye(13).expand(2, 3, 4, 13, 13)
    assert torch.equal(attention_distance(own, (3, 4), (2, 5)), torch.zeros(2, 3, 4))


@given(GRIDS, st.integers(0, 2))
@settings(deadline=None, max_examples=30)
def test_the_distance_is_the_weighted_mean_in_loops(
    grid: Grid, num_prefix: int
) -> None:
    (h, w), (P, Q) = grid, (2, 5)
    weights = some_weights(2, 3, num_prefix + h * w, num_prefix + h * w)
    measured = attention_distance(weights, grid, (P, Q), num_prefix)
    assert measured.shape == (2, 3)
    for b, a in np.ndindex(2, 3):
        maps = weights[b, a, num_prefix:, num_prefix:].reshape(h, w, h, w).numpy()
        means = []
        for i, j in np.ndindex(h, w):
            far = [np.hypot(P * (k - i), Q * (m - j)) for k, m in np.ndindex(h, w)]
            means.append(np.average(far, weights=maps[i, j].flatten()))
        assert measured[b, a].item() == pytest.approx(np.mean(means))
    each = [attention_distance(x, grid, (P, Q), num_prefix) for x in weights]
    torch.testing.assert_close(torch.stack(each), measured)


def test_what_patches_read_from_cls_does_not_shorten_the_distance() -> None:
    weights = some_weights(2, 13, 13)
    sink = weights.clone()
    sink[..., 0] = 30  # and after renormalising, nearly all goes to [CLS]
    sink /= sink.sum(-1, keepdim=True)
    sink[:, 0] = uniform(13)[0]  # [CLS] itself asks for something else
    measured = attention_distance(sink, (3, 4), (2, 5))
    torch.testing.assert_close(measured, attention_distance(weights, (3, 4), (2, 5)))


def test_a_patch_that_reads_from_cls_alone_does_not_count() -> None:
    weights = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert attention_distance(weights, (1, 2), (3, 7)).item() == 7
    weights[2] = weights[1]
    assert attention_distance(weights, (1, 2), (3, 7)).isnan()


def test_distances_of_half_precision_are_computed_in_single() -> None:
    weights = some_weights(2, 197, 197)
    measured = attention_distance(weights.half(), (14, 14), 16)
    assert measured.dtype == torch.float32
    expected = attention_distance(weights, (14, 14), 16)
    torch.testing.assert_close(measured.double(), expected, rtol=1e-3, atol=0)


# Features as colours


def test_colours_are_the_principal_components_two_standard_deviations_wide() -> None:
    features = some_features(4, 13, 8)
    patches = features[:, 1:].reshape(48, 8).numpy()
    centred = patches - patches.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    axes *= np.sign(np.take_along_axis(axes, abs(axes).argmax(1)[:, None], axis=1))
    scores = centred @ axes[:3].T / (singular[:3] / np.sqrt(48))
    expected = np.clip(0.5 + scores / 4, 0, 1)  # (B*N, 3)
    colours = feature_colours(features, (3, 4))
    assert colours.shape == (4, 3, 3, 4)
    assert colours.dtype == torch.float64
    for b, i, j in np.ndindex(4, 3, 4):
        np.testing.assert_allclose(colours[b, :, i, j], expected[b * 12 + i * 4 + j])
    assert colours.min() == 0
    assert 0.99 < colours.max() <= 1


def test_one_basis_gives_an_image_the_same_colours_alone_and_in_any_batch() -> None:
    features = some_features(5, 13, 8).float()
    basis = colour_basis(features[:3])
    together = feature_colours(features, (3, 4), basis=basis)
    for image, expected in zip(features, together, strict=True):
        colours = feature_colours(image[None], (3, 4), basis=basis)
        torch.testing.assert_close(colours[0], expected)
    assert torch.equal(
        feature_colours(features[:3], (3, 4)),
        feature_colours(features[:3], (3, 4), basis=basis),
    )


def test_without_a_basis_a_colour_means_the_same_in_all_images() -> None:
    features = some_features(2, 13, 8)
    features[1, 5] = features[0, 9]
    colours = feature_colours(features, (3, 4)).flatten(2)
    torch.testing.assert_close(colours[1, :, 4], colours[0, :, 8])


@given(st.integers(0, 2))
@settings(deadline=None)
def test_prefix_tokens_have_no_colour_and_change_none(num_prefix: int) -> None:
    features = some_features(2, 12 + num_prefix, 8)
    colours = feature_colours(features, (3, 4), num_prefix)
    features[:, :num_prefix] += 1000
    assert torch.equal(feature_colours(features, (3, 4), num_prefix), colours)


def test_colours_do_not_depend_on_the_order_of_images_or_a_choice_of_sign() -> None:
    features = some_features(4, 13, 8)
    mean, axes = colour_basis(features)
    again = colour_basis(features.flip(0))
    torch.testing.assert_close(again.axes, axes)
    torch.testing.assert_close(again.mean, mean)
    largest = axes.abs().argmax(0)
    assert (axes[largest, range(3)] > 0).all()
    assert axes.norm(dim=0).diff().min() > 0  # ever narrower, so ever more enlarged


def test_features_that_do_not_differ_are_grey() -> None:
    rounding = torch.tensor([0, 1, -1, 0, 1, 0]).reshape(1, 6, 1) * 1e-7
    same = torch.tensor([0.0, 0.1, 7.3, -2.0]) + rounding
    for features in (same, same * 0):
        colours = feature_colours(features, (2, 3), 0)
        torch.testing.assert_close(colours, torch.full((1, 3, 2, 3), 0.5))


def test_what_hardly_differs_has_its_colours_too() -> None:
    features = some_features(2, 13, 8)
    features[..., 3:] = 500  # and three directions of very different strength:
    features[..., :3] = some_features(2, 13, 3, seed=1) * torch.tensor([9, 0.1, 0.01])
    for colour in feature_colours(features, (3, 4)).unbind(1):
        assert 0.15 < colour.std() < 0.3  # 0.25, were nothing cut off


def test_features_on_one_line_differ_in_one_colour() -> None:
    line = torch.tensor([0.0, 1, 2, 3, 4, 5]).reshape(1, 6, 1)
    features = 0.1 + line * torch.tensor([1.0, 2.0, -3.0, 0.5])
    colours = feature_colours(features, (2, 3), 0)
    assert (colours[0, 0].flatten().diff() < 0).all()  # the largest entry was -3
    torch.testing.assert_close(colours[:, 1:], torch.full((1, 2, 2, 3), 0.5))
    # One patch, or two, are enough not to fail.
    assert feature_colours(features[:, :1], (1, 1), 0).tolist() == [[[[0.5]]] * 3]
    assert feature_colours(features[:, :2], (1, 2), 0).isfinite().all()


def test_colours_of_half_precision_are_computed_in_single() -> None:
    features = some_features(2, 13, 8)
    colours = feature_colours(features.bfloat16(), (3, 4))
    assert colours.dtype == torch.float32
    expected = feature_colours(features, (3, 4))
    torch.testing.assert_close(colours.double(), expected, rtol=0, atol=0.02)


def test_colours_are_made_on_the_device_of_the_features() -> None:
    features = some_features(2, 13, 8).float()
    basis = colour_basis(features)
    assert feature_colours(features.to("meta"), (3, 4), basis=basis).is_meta


def test_features_of_all_layers_at_once_or_of_another_model_are_refused() -> None:
    features = some_features(2, 3, 13, 8)
    basis = colour_basis(features[:, -1])
    with pytest.raises(ValueError, match=r"\(2, 3, 13, 8\); expected one layer"):
        colour_basis(features)
    with pytest.raises(ValueError, match=r"\(2, 3, 13, 8\); expected one layer"):
        feature_colours(features, (3, 4))
    message = r"\(2, 13, 6\); this basis colours \(B, T, 8\).*colour_basis"
    with pytest.raises(ValueError, match=message):
        feature_colours(features[:, -1, :, :6], (3, 4), basis=basis)
    with pytest.raises(ValueError, match=r"\(2, 13, 2\); .*D at least 3"):
        colour_basis(features[:, -1, :, :2])


# Right way up: every token of this model reads from the one bright patch


def drawn_to_the_light(**changes: Any) -> VisionTransformer:
    """A model with weights by hand: keys shine with the patch, queries ask for it."""
    config = ViTConfig.preset("micro", positions="none", **(RECTANGLE | changes))
    model = VisionTransformer(config).eval()
    D, A = config.embed_dim, config.num_heads
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.patch_embed.proj.weight[0] = 1  # feature 0 is how bright a patch is
        for block in model.blocks:
            for norm in (block.norm1, block.norm2):
                norm.weight.fill_(1)
            for first in range(0, D, D // A):
                block.attn.qkv.bias[first] = 5  # each head's query asks
                block.attn.qkv.weight[D + first, 0] = 5  # for what is bright
    return model


GRID = (3, 4)
PLACES = list(np.ndindex(GRID))


def one_bright_patch(place: tuple[int, ...]) -> Tensor:
    image = torch.zeros(2, 6, 20)
    i, j = place
    image[:, 2 * i : 2 * i + 2, 5 * j : 5 * j + 5] = 1
    return image


MARKED = torch.stack([one_bright_patch(place) for place in PLACES])  # (N, C, H, W)


def brightest(maps: Tensor) -> list[tuple[int, ...]]:
    """Row and column of the largest number of each map (B, h, w)."""
    return [
        tuple(int(x) for x in np.unravel_index(int(one.argmax()), one.shape))
        for one in maps
    ]


@pytest.mark.parametrize("changes", [{}, {"norm": "post"}], ids=["pre", "post"])
def test_the_marked_patch_is_where_cls_looks(changes: dict[str, Any]) -> None:
    weights = attention(drawn_to_the_light(**changes), MARKED)
    maps = cls_maps(weights, GRID)
    assert maps.shape == (12, 2, 4, 3, 4)
    for block in range(2):
        for head in range(4):
            assert brightest(maps[:, block, head]) == PLACES
    assert maps.amax((-2, -1)).min() > 0.9
    assert brightest(cls_maps(rollout(weights), GRID)) == PLACES


@pytest.mark.parametrize("class_token", [True, False])
def test_the_marked_patch_is_where_every_patch_looks(class_token: bool) -> None:
    model = drawn_to_the_light(pool="mean", class_token=class_token)
    num_prefix = model.config.num_prefix
    maps = patch_maps(attention(model, MARKED), GRID, num_prefix)
    for i, j in PLACES:
        assert brightest(maps[:, 1, 2, i, j]) == PLACES
    rolled = patch_maps(rollout(attention(model, MARKED)), GRID, num_prefix)
    received = rolled.sum((1, 2))  # over the asking patches
    assert brightest(received) == PLACES


def test_the_marked_patch_has_a_colour_of_its_own() -> None:
    features = layer_features(drawn_to_the_light(), MARKED)
    for layer in range(3):
        colours = feature_colours(features[:, layer], GRID)
        for k, place in enumerate(PLACES):
            shown = colours[k].flatten(1)  # (3, N)
            others = torch.cat([shown[:, :k], shown[:, k + 1 :]], dim=1)
            assert torch.equal(others, others[:, :1].expand(-1, 11))
            distance = (colours[k] - others[:, :1, None]).norm(dim=0)
            assert brightest(distance[None]) == [place]


def test_the_distance_is_that_from_each_patch_to_the_marked_one() -> None:
    weights = attention(drawn_to_the_light(), MARKED)
    measured = attention_distance(weights, GRID, (2, 5))[:, 0, 0]
    for (i, j), distance in zip(PLACES, measured, strict=True):
        far = [np.hypot(2 * (k - i), 5 * (m - j)) for k, m in PLACES]
        assert distance.item() == pytest.approx(np.mean(far), rel=0.01)


def test_the_figures_show_maps_and_colours_the_way_the_images_stand() -> None:
    model = drawn_to_the_light()
    weights = attention(model, MARKED[6:7])  # row 1, column 2, counted from 0
    maps = cls_maps(weights, GRID)[:, -1].mean(1)
    figure = show_attention(MARKED[6:7, :1], maps)
    assert "1 map of 3 × 4 numbers, attention weight" in figure.alt
    assert "largest in row 2, column 3." in figure.alt
    colours = feature_colours(layer_features(model, MARKED)[:, -1], GRID)
    shown = show_images(colours, alt="Features.")
    assert "12 images of 3 × 4 pixels" in shown.alt


# Together, on the course's own model


def test_three_lines_hold_a_map_against_its_control() -> None:
    config = ViTConfig.preset("digits")
    model = VisionTransformer(config, torch.Generator().manual_seed(0))
    images = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    for looked_at in (model, random_control(model, seed=1)):
        maps = cls_maps(attention(looked_at, images), config.grid, config.num_prefix)
        assert maps.shape == (2, 2, 4, 4, 4)
        assert maps.min() > 0
        assert (maps.sum((-2, -1)) < 1).all()
