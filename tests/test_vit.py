"""Chapter 6: the whole model, from pixels to logits."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from models import MICRO, count, fresh, kinds, lively, pixels
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.patches import patchify, unpatchify
from course_utils.positions import resize_positions, sincos2d
from course_utils.record import Record
from course_utils.vit import VisionTransformer, ViTConfig

# How large a ViT is


def test_a_model_on_the_meta_device_has_shapes_and_no_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    untouched = generator.get_state()
    with torch.device("meta"):
        model = VisionTransformer(ViTConfig.preset("H/14"), generator)
        logits = model(torch.empty(2, 3, 224, 224))
    assert all(weight.is_meta for weight in model.state_dict().values())
    assert logits.shape == (2, 1000)
    assert torch.equal(generator.get_state(), untouched)


def test_the_digits_are_17_tokens_and_the_photo_197() -> None:
    assert ViTConfig.preset("digits").num_tokens == 4 * 4 + 1
    assert ViTConfig().num_tokens == ViTConfig.preset("B/16").num_tokens == 197
    assert ViTConfig() == ViTConfig.preset("B/16")
    assert ViTConfig.preset("B/32").grid == (7, 7)
    assert ViTConfig.preset("H/14").grid == (16, 16)


# The same function as PyTorch's own layers


class PlainViT(nn.Module):
    """The same model from nothing but PyTorch's own layers."""

    def __init__(self, c: ViTConfig) -> None:
        super().__init__()
        D, eps = c.embed_dim, c.layer_norm_eps
        self.embed = nn.Conv2d(c.in_chans, D, c.patch_size, c.patch_size)
        self.cls = nn.Parameter(torch.zeros(1, 1, D))
        self.positions = nn.Parameter(torch.zeros(1, c.num_tokens, D))
        layer = nn.TransformerEncoderLayer(
            D,
            c.num_heads,
            int(c.mlp_ratio * D),
            dropout=0.0,
            activation="gelu",
            layer_norm_eps=eps,
            batch_first=True,
            norm_first=c.norm == "pre",
        )
        norm = nn.LayerNorm(D, eps) if c.final_norm else None
        self.encoder = nn.TransformerEncoder(
            layer, c.depth, norm, enable_nested_tensor=False
        )
        self.head = nn.Linear(D, c.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), 1, -1), x], dim=1) + self.positions
        logits: Tensor = self.head(self.encoder(x)[:, 0])
        return logits


@pytest.mark.parametrize("preset", ["micro", "digits"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("final_norm", [True, False])
def test_the_model_is_pytorchs_own_layers_put_together(
    preset: str, norm: str, final_norm: bool
) -> None:
    ours = lively(preset, norm=norm, final_norm=final_norm)
    plain = PlainViT(ours.config).double()
    renamed = {}
    for name, weight in ours.state_dict().items():
        for old, new in [
            ("cls_token", "cls"),
            ("pos_embed", "positions"),
            ("patch_embed.proj", "embed"),
            ("blocks", "encoder.layers"),
            ("attn.qkv.", "self_attn.in_proj_"),
            ("attn.proj", "self_attn.out_proj"),
            ("mlp.fc", "linear"),
        ]:
            name = name.replace(old, new)
        name = f"encoder.{name}" if name.startswith("norm.") else name
        renamed[name] = weight
    plain.load_state_dict(renamed)
    images = pixels(ours)
    torch.testing.assert_close(ours(images), plain(images), rtol=1e-12, atol=1e-12)


# The short cut: the last block need not compute what the head does not read


@kinds
def test_the_short_cut_to_the_logits_changes_neither_them_nor_gradients(
    changes: dict[str, Any],
) -> None:
    quick, full = lively(**changes), lively(**changes)
    images = pixels(quick)
    features = full.forward_features(images)
    short, long = quick(images), full.forward_head(features)
    torch.testing.assert_close(short, long, rtol=1e-12, atol=1e-12)
    assert short.std() > 1e-3  # there is something to compare
    read = quick.forward_features(images, read=1)
    torch.testing.assert_close(read, features[:, :1], rtol=1e-12, atol=1e-12)
    for logits in (short, long):
        logits.square().sum().backward()
    for (name, a), b in zip(quick.named_parameters(), full.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)


def test_the_short_cut_computes_only_cls_in_the_last_block() -> None:
    model, record = lively(), Record()
    model.forward_features(pixels(model), record, read=1)
    last = model.config.depth - 1
    assert record.tensors[f"blocks.{last}.attn.weights"].shape == (3, 4, 1, 5)
    assert record.tensors[f"blocks.{last}.mlp.hidden"].shape == (3, 1, 64)
    assert record.tensors["blocks.0.mlp.hidden"].shape == (3, 5, 64)


@pytest.mark.parametrize(("pool", "tokens"), [("cls", 1), ("mean", 5)])
def test_classifying_takes_the_short_cut_where_there_is_one(
    pool: str, tokens: int
) -> None:
    model, seen = lively(pool=pool), []
    model.blocks[-1].mlp.fc1.register_forward_pre_hook(
        lambda _, inputs: seen.append(tuple(inputs[0].shape))
    )
    model(pixels(model))
    assert seen == [(3, tokens, 16)]


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_the_head_reads_what_the_pool_says(pool: str) -> None:
    model = lively(pool=pool)
    x = model.forward_features(pixels(model))
    pooled = x[:, 0] if pool == "cls" else sum(x[:, i] for i in range(1, 5)) / 4
    expected = pooled @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model.forward_head(x), expected)


def test_a_model_without_classes_gives_features() -> None:
    model = lively(num_classes=0)
    images = pixels(model)
    assert model(images).shape == (3, 16)
    torch.testing.assert_close(model(images), model.forward_features(images)[:, 0])


# What one can ask for: attention and every step between


@kinds
def test_attention_comes_a_block_at_a_time_and_a_head_at_a_time(
    changes: dict[str, Any],
) -> None:
    model = lively(**changes)
    images, c = pixels(model), model.config
    logits, attention = model(images, return_attention=True)
    torch.testing.assert_close(logits, model(images), rtol=1e-12, atol=1e-12)
    assert isinstance(attention, list)
    T = c.num_tokens
    assert [tuple(w.shape) for w in attention] == [(3, c.num_heads, T, T)] * c.depth
    for weights in attention:
        ones = torch.ones(3, c.num_heads, T).double()
        torch.testing.assert_close(weights.sum(-1), ones)
        assert (weights > 0).all()
    assert (attention[0][:, 0] - attention[0][:, 1]).abs().max() > 1e-3  # heads differ


def test_attention_is_softmax_of_the_scaled_products_of_queries_and_keys() -> None:
    model = lively(num_heads=2)
    images = pixels(model)
    kept = model.intermediates(images)
    q, k, _ = model.blocks[1].attn.qkv(kept["blocks.1.norm1"]).split(16, dim=-1)
    for head, part in enumerate([slice(0, 8), slice(8, 16)]):
        scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(8)
        weights = model(images, return_attention=True)[1][1][:, head]
        torch.testing.assert_close(weights, scores.softmax(dim=2))


def test_attention_in_training_is_taken_before_dropout() -> None:
    model = lively(drop_rate=0.5, attn_drop_rate=0.5).train()
    for weights in model(pixels(model), return_attention=True)[1]:
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 5).double())


@kinds
def test_every_step_has_a_name_and_the_shape_that_the_docstring_says(
    changes: dict[str, Any],
) -> None:
    model = lively(**changes)
    images, c = pixels(model), model.config
    kept = model.intermediates(images)
    B, N, T, D, A = 3, math.prod(c.grid), c.num_tokens, c.embed_dim, c.num_heads
    shapes: dict[str, tuple[int, ...]] = {"patch_embed": (B, N, D)}
    if c.class_token:
        shapes["cls"] = (B, T, D)
    shapes["tokens"] = (B, T, D)
    steps = {
        "pre": "norm1 attn.weights attn add1 norm2 mlp.hidden mlp add2",
        "post": "attn.weights attn add1 norm1 mlp.hidden mlp add2 norm2",
    }[c.norm]
    special = {"attn.weights": (B, A, T, T), "mlp.hidden": (B, T, 4 * D)}
    for i in range(c.depth):
        for step in steps.split():
            shapes[f"blocks.{i}.{step}"] = special.get(step, (B, T, D))
    shapes["norm"] = (B, T, D)
    shapes["pooled"] = (B, D)
    shapes["logits"] = (B, c.num_classes or D)
    assert [(name, tuple(x.shape)) for name, x in kept.items()] == list(shapes.items())
    torch.testing.assert_close(kept["logits"], model(images))
    torch.testing.assert_close(kept["norm"], model.forward_features(images))


# Positions


@pytest.mark.parametrize(
    "changes",
    [{}, {"positions": "sincos2d"}, {"class_token": False, "pool": "mean"}],
    ids=["learned", "sincos2d", "without [CLS]"],
)
def test_row_i_is_added_to_token_i_of_every_image(changes: dict[str, Any]) -> None:
    model = lively(img_size=(16, 8), **changes)
    kept = model.intermediates(pixels(model))
    before = kept["cls" if model.config.class_token else "patch_embed"]
    for i in range(model.config.num_tokens):
        for image in range(3):
            added = kept["tokens"][image, i] - before[image, i]
            torch.testing.assert_close(added, model.pos_embed[0, i])
    if model.config.positions == "sincos2d":
        torch.testing.assert_close(model.pos_embed.float(), sincos2d((4, 2), 16))


@pytest.mark.parametrize("positions", ["learned", "sincos2d", "none"])
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_only_positions_let_the_model_see_the_order_of_patches(
    positions: str, pool: str
) -> None:
    model = fresh("digits", positions=positions, pool=pool).double()
    images = pixels(model)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
    shuffled = unpatchify(patchify(images, 7)[:, order], 7, 28)
    tokens = model.forward_features(images)
    moved = torch.cat([tokens[:, :1], tokens[:, 1 + order]], dim=1)
    token_change = (model.forward_features(shuffled) - moved).abs().max()
    logit_change = (model(shuffled) - model(images)).abs().max()
    if positions == "none":
        assert token_change < 1e-12  # the tokens move with their patches
        assert logit_change < 1e-12  # and the read-out does not see it
    else:
        assert token_change > 1e-2
        assert logit_change > 1e-4


def test_a_fixed_table_is_no_parameter_and_never_learns() -> None:
    model = fresh(positions="sincos2d")
    assert "pos_embed" not in dict(model.named_parameters())
    assert "pos_embed" in dict(model.named_buffers())
    before = model.state_dict()["pos_embed"].clone()
    assert torch.equal(before, sincos2d((2, 2), 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(pixels(model)).square().sum().backward()
    optimizer.step()
    assert torch.equal(model.pos_embed, before)
    assert count(fresh()) - count(model) == before.numel()


# Batches and shapes


@kinds
def test_an_image_gets_the_same_logits_alone_and_in_a_batch_of_any_size(
    changes: dict[str, Any],
) -> None:
    model = lively(**changes)
    images = pixels(model, 7)
    together = model(images)
    for size in (1, 3):  # 7 = 3 + 3 + 1: a short last batch
        parts = torch.cat([model(batch) for batch in images.split(size)])
        torch.testing.assert_close(parts, together, rtol=1e-12, atol=1e-12)
    assert model(images[:0]).shape == together[:0].shape


def test_a_rectangle_keeps_its_grid() -> None:
    tall, wide = lively(img_size=(16, 8)), lively(img_size=(8, 16))
    assert (tall.config.grid, wide.config.grid) == ((4, 2), (2, 4))
    assert tall.pos_embed.shape == wide.pos_embed.shape == (1, 9, 16)
    assert ViTConfig(img_size=(224, 112)).grid == (14, 7)
    # The table of 3×224×336 has 295 rows.
    assert ViTConfig(img_size=(224, 336)).num_tokens == 14 * 21 + 1 == 295
    with pytest.raises(ValueError, match=r"8x16 pixels.*16x8"):
        tall(pixels(wide))


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_parameter_learns_from_the_logits(pool: str, norm: str) -> None:
    model = lively(pool=pool, norm=norm, layer_scale=0.3)
    model(pixels(model)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-9, name


# Images of another size


def test_a_model_for_224_serves_224_by_336_after_interpolation() -> None:
    model = lively(img_size=224, patch_size=16)
    wide = model.at_size((224, 336))
    assert wide.config.grid == (14, 21)
    assert wide.pos_embed.shape == (1, 295, 16)
    expected = resize_positions(model.pos_embed, (14, 14), (14, 21))
    assert torch.equal(wide.pos_embed, expected)
    assert torch.equal(wide.pos_embed[:, 0], model.pos_embed[:, 0])
    assert wide(pixels(wide, 1)).shape == (1, 10)
    assert wide.pos_embed.is_leaf
    assert wide.pos_embed.requires_grad
    assert model.config.grid == (14, 14)
    assert model.pos_embed.shape == (1, 197, 16)


@kinds
@pytest.mark.parametrize("antialias", [True, False])
def test_all_but_the_positions_stays_at_another_size(
    changes: dict[str, Any], antialias: bool
) -> None:
    model = lively(**changes)
    c = model.config
    H, W = c.img_size  # type: ignore[misc]
    other = model.at_size((2 * H, W // 2), antialias=antialias)
    before, after = model.state_dict(), other.state_dict()
    assert list(before) == list(after)
    for name in before.keys() - {"pos_embed"}:
        assert torch.equal(before[name], after[name]), name
    h, w = other.config.grid
    assert (h, w) == (2 * c.grid[0], c.grid[1] // 2)
    if c.positions == "learned":
        expected = resize_positions(
            model.pos_embed,
            c.grid,
            (h, w),
            num_prefix=c.num_prefix,
            antialias=antialias,
        )
        assert torch.equal(other.pos_embed, expected)
    elif c.positions == "sincos2d":
        assert torch.equal(other.pos_embed, sincos2d((h, w), 16).double())
    assert other(pixels(other)).isfinite().all()
    with torch.no_grad():
        for weight in other.state_dict().values():
            weight.zero_()
    for name, weight in lively(**changes).state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


def test_the_same_size_gives_the_same_model_and_a_wrong_one_is_refused() -> None:
    model = lively().train()
    model.pos_embed.requires_grad_(False)
    same = model.at_size(8)
    assert torch.equal(same(pixels(same)), model(pixels(model)))
    assert same.training
    assert not same.pos_embed.requires_grad
    with pytest.raises(ValueError, match=r"10x8 image.*4x4 patches.*Crop.*8x8"):
        model.at_size((10, 8))


# What does not fit is refused, with both numbers and a remedy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"img_size": 222}, r"222x222 image.*16x16 patches.*Crop.*208x208.*224x224"),
        ({"img_size": (121, 256)}, r"121x256 image.*16x16 patches.*128x256"),
        ({"patch_size": (16, 15)}, r"224x224 image.*16x15 patches"),
        ({"img_size": 0}, r"img_size is 0; each side must be at least 1"),
        ({"embed_dim": 100}, r"embed_dim 100.*12 heads.*multiple of 12, such as 108"),
        (
            {"embed_dim": 18, "num_heads": 3, "positions": "sincos2d"},
            r"embed_dim is 18.*sincos2d.*multiple of 4",
        ),
        ({"num_heads": 0}, r"num_heads is 0; it must be at least 1"),
        ({"depth": -1}, r"depth is -1; it must be at least 1"),
        ({"in_chans": 0}, r"in_chans is 0; it must be at least 1"),
        ({"num_classes": -1}, r"num_classes is -1; it must be at least 0"),
        ({"pool": "max"}, r"pool is 'max'; choose one of \('cls', 'mean'\)"),
        ({"pool": "cls", "class_token": False}, r"class_token=False.*pool='mean'"),
        ({"positions": "rope"}, r"'rope'; choose one of \('learned', 'sincos2d'"),
        ({"norm": "Pre"}, r"norm is 'Pre'; choose one of \('pre', 'post'\)"),
        ({"activation": "relu"}, r"'relu'; choose one of \('gelu', 'gelu_tanh'\)"),
        ({"drop_rate": 1.0}, r"drop_rate is 1.0; give 0 up to 1"),
        ({"attn_drop_rate": -0.1}, r"attn_drop_rate is -0.1"),
        ({"mlp_ratio": 0}, r"mlp_ratio is 0; it must be above 0"),
        ({"layer_norm_eps": 0.0}, r"layer_norm_eps is 0.0; it must be above 0"),
        ({"layer_norm_eps": math.nan}, r"layer_norm_eps is nan"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ViTConfig(**changes)
    with pytest.raises(ValueError, match=message):
        ViTConfig.preset("B/16", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": 2.0}, r"depth is 2.0; give a whole number"),
        ({"num_classes": True}, r"num_classes is True; give a whole number"),
        ({"img_size": "224"}, r"img_size is '224'; give one whole number or"),
        ({"patch_size": 16.0}, r"patch_size is 16.0; give one whole number"),
        ({"width": 64}, "width"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        ViTConfig(**changes)


@pytest.mark.parametrize("name", ["b/16", "B16", "B/", "B/x", "G/14", ""])
def test_an_unknown_preset_is_refused_with_the_known_ones(name: str) -> None:
    known = r"'digits', 'micro', or one of Ti, S, B, L, H.*'B/16'"
    with pytest.raises(ValueError, match=f"no preset is called '{name}'.*{known}"):
        ViTConfig.preset(name)


def test_images_of_another_size_are_told_how_to_fit_and_the_remedy_works() -> None:
    model = fresh(img_size=224, patch_size=16)
    images = torch.zeros(1, 1, 96, 96)
    message = r"96x96 pixels.*224x224.*Resize the images.*model\.at_size\(\(96, 96\)\)"
    with pytest.raises(ValueError, match=message):
        model(images)
    assert model.at_size((96, 96))(images).shape == (1, 10)
    with pytest.raises(ValueError, match=r"222x222 pixels.*224x224"):
        model(torch.zeros(1, 1, 222, 222))


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (1, 1, 1, 8, 8)])
def test_images_without_a_batch_axis_are_refused(shape: tuple[int, ...]) -> None:
    message = r"expects \(B, 1, H, W\)\. .*images\[None\]"
    with pytest.raises(ValueError, match=message) as error:
        fresh()(torch.zeros(shape))
    assert str(shape) in str(error.value)


def test_colour_images_are_refused_by_a_grey_model() -> None:
    message = r"\(2, 3, 8, 8\) have 3 channels.*expects 1.*in_chans=3"
    with pytest.raises(ValueError, match=message):
        fresh()(torch.zeros(2, 3, 8, 8))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_pixels_that_are_whole_numbers_are_refused(dtype: torch.dtype) -> None:
    message = rf"{dtype}; expected floating point.*images\.float\(\) / 255"
    with pytest.raises(TypeError, match=message):
        fresh()(torch.zeros(2, 1, 8, 8, dtype=dtype))


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, x: model(x, return_attention=True),
        lambda model, x: model.forward_features(x),
        lambda model, x: model.intermediates(x),
    ],
)
def test_every_way_in_checks_the_images(ask: Any) -> None:
    with pytest.raises(ValueError, match="12x8 pixels"):
        ask(fresh(), torch.zeros(2, 1, 12, 8))


# Small numbers that count


def test_exact_gelu_and_its_approximation_are_close_and_not_the_same() -> None:
    exact, tanh = lively(), lively(activation="gelu_tanh")
    difference = (exact(pixels(exact)) - tanh(pixels(tanh))).abs().max()
    assert 1e-6 < difference < 1e-2


def test_layer_scale_starts_where_it_is_told_and_can_silence_the_branches() -> None:
    model = fresh(layer_scale=1e-5)
    names = [name for name in model.state_dict() if "ls" in name.split(".", 2)[-1]]
    assert [n for n in names if n.endswith("gamma")] == [
        f"blocks.{i}.ls{j}.gamma" for i in (0, 1) for j in (1, 2)
    ]
    for name in (f"blocks.{i}.ls{j}.gamma" for i in (0, 1) for j in (1, 2)):
        assert torch.equal(model.state_dict()[name], torch.full((16,), 1e-5))
    kept = model.intermediates(pixels(model))
    passed = (kept["blocks.1.add2"] - kept["tokens"]).abs().max()
    assert 0 < passed < 1e-3
    assert not [name for name in fresh().state_dict() if ".ls" in name]


@pytest.mark.parametrize("rate", ["drop_rate", "attn_drop_rate"])
def test_dropout_is_off_in_evaluation_and_on_in_training(rate: str) -> None:
    model = lively(**{rate: 0.5})
    images = pixels(model)
    torch.testing.assert_close(model(images), lively()(images))
    tokens = model.intermediates(images)["tokens"]
    model.train()
    assert (model(images) - model(images)).abs().max() > 1e-3
    for block in model.blocks:  # in each block, not on the first tokens alone
        assert (block(tokens) - block(tokens)).abs().max() > 1e-3
    dropped = (model.intermediates(images)["tokens"] == 0).any()
    assert dropped == (rate == "drop_rate")


def test_a_fresh_model_guesses() -> None:
    for changes in MICRO.values():
        if changes.get("num_classes", 10):
            model = fresh(**changes)
            labels = torch.arange(200) % 10
            loss = F.cross_entropy(model(pixels(model, 200)), labels)
            assert loss.item() == pytest.approx(math.log(10), abs=0.1)
    model = fresh("digits")
    logits = model(pixels(model, 20))
    assert logits.std(0).max() > 1e-4  # and yet tells images apart


# Random numbers


@pytest.mark.usefixtures("untouched_random_state")
@kinds
def test_the_generator_alone_decides_the_weights(changes: dict[str, Any]) -> None:
    one, same, other = fresh(**changes), fresh(**changes), fresh(seed=1, **changes)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name]), name
    assert not torch.equal(one.blocks[1].mlp.fc2.weight, other.blocks[1].mlp.fc2.weight)
    one(pixels(one))
    one.at_size(tuple(2 * side for side in one.config.img_size))  # type: ignore[union-attr]


def test_without_a_generator_weights_follow_the_global_seed() -> None:
    models = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        models.append(VisionTransformer(ViTConfig.preset("micro")))
    a, b, c = (model.head.weight for model in models)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_fresh_weights_have_the_spread_that_reset_says() -> None:
    model = fresh("digits", embed_dim=256, num_heads=4, img_size=56)
    state = model.state_dict()
    for name, std in [
        ("patch_embed.proj.weight", 1 / 7),
        ("pos_embed", 0.02),
        ("head.weight", 0.02),
        ("blocks.0.attn.qkv.weight", math.sqrt(2 / (256 + 768))),
        ("blocks.1.attn.proj.weight", math.sqrt(2 / (256 + 256))),
        ("blocks.1.mlp.fc1.weight", math.sqrt(2 / (256 + 1024))),
        ("blocks.0.mlp.fc2.weight", math.sqrt(2 / (256 + 1024))),
    ]:
        assert state[name].std().item() == pytest.approx(std, rel=0.05), name
        assert abs(state[name].mean().item()) < 0.1 * std, name
    for name, value in state.items():
        if name == "cls_token" or name.endswith("bias"):
            assert not value.any(), name
        elif "norm" in name:
            assert (value == 1).all(), name


# Moving, copying, keeping


@pytest.mark.parametrize("positions", ["learned", "sincos2d"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_whole_model_moves_its_tables_too(
    positions: str, dtype: torch.dtype
) -> None:
    model = fresh(positions=positions)
    expected = model(pixels(model)).double()
    model.to(dtype)
    assert {w.dtype for w in model.state_dict().values()} == {dtype}
    logits = model(pixels(model))
    assert logits.dtype == dtype
    torch.testing.assert_close(logits.double(), expected, atol=0.03, rtol=0.03)
    larger = model.at_size(16)
    assert larger.pos_embed.dtype == dtype
    assert larger(pixels(larger)).dtype == dtype
    assert model.to("meta")(pixels(model)).is_meta


def test_the_names_are_those_of_published_weights() -> None:
    block = [
        f"{part}.{kind}"
        for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
        for kind in ("weight", "bias")
    ]
    assert list(fresh().state_dict()) == [
        "cls_token",
        "pos_embed",
        "patch_embed.proj.weight",
        "patch_embed.proj.bias",
        *(f"blocks.{i}.{name}" for i in (0, 1) for name in block),
        "norm.weight",
        "norm.bias",
        "head.weight",
        "head.bias",
    ]


@kinds
def test_weights_come_back_from_safetensors_bit_for_bit(
    changes: dict[str, Any],
) -> None:
    model, other = lively(**changes), fresh(seed=9, **changes).double()
    images = pixels(model)
    assert not torch.equal(model(images), other(images))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(model(images), other(images))


def test_missing_unexpected_and_misshapen_weights_are_not_passed_over() -> None:
    model = fresh()
    state = model.state_dict()
    with pytest.raises(RuntimeError, match=r"Missing.*head\.bias"):
        model.load_state_dict({k: v for k, v in state.items() if k != "head.bias"})
    with pytest.raises(RuntimeError, match=r"Unexpected.*reg_token"):
        model.load_state_dict(state | {"reg_token": torch.zeros(1)})
    with pytest.raises(RuntimeError, match=r"pos_embed.*10, 16.*5, 16"):
        model.load_state_dict(fresh(img_size=12).state_dict())


@kinds
def test_a_copy_is_the_same_model_and_its_own(changes: dict[str, Any]) -> None:
    model = lively(**changes)
    images = pixels(model)
    expected, twin = model(images), copy.deepcopy(model)
    assert torch.equal(twin(images), expected)
    assert twin.config == model.config
    with torch.no_grad():
        for weight in twin.state_dict().values():
            weight.zero_()
    assert torch.equal(model(images), expected)
