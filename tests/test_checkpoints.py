"""Chapter 9: weights come in whole, from where they say, or not at all."""

from __future__ import annotations

import copy
import errno
import json
import pickle
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from hub import Hub, cache, cached, serving
from models import fresh, kinds, lively, pixels
from peers import (
    hugging_face_dinov2,
    hugging_face_vit,
    import_peer,
    timm_vit,
    torchvision_vit,
)
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file
from torch import Tensor

from course_utils import data
from course_utils.checkpoints import (
    DIGIT_MODELS,
    LEFT_OUT,
    PRETRAINED,
    CheckpointError,
    Published,
    derive_config,
    digit_weights,
    load_digit_model,
    load_model,
    load_pretrained,
    our_names,
    save_model,
    standardise,
)
from course_utils.data import DataError, load_digits
from course_utils.training import evaluate
from course_utils.vit import VARIANTS, VisionTransformer, ViTConfig

GOOGLE = "google/vit-base-patch16-224"
DINOV2 = "facebook/dinov2-small"
DEIT = "timm/deit_tiny_patch16_224.fb_in1k"


def assert_equal_states(
    one: Mapping[str, Tensor], other: Mapping[str, Tensor], but: str = " "
) -> None:
    assert one.keys() == other.keys()
    for name in one:
        if not name.startswith(but):
            assert torch.equal(one[name], other[name]), name


# Our own files ------------------------------------------------------------------------


@kinds
def test_a_saved_model_comes_back_bit_for_bit(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    model = lively(**changes).float()
    save_model(model, tmp_path / "vit.safetensors")
    again = load_model(tmp_path / "vit.safetensors")
    assert again.config == model.config
    assert_equal_states(again.state_dict(), model.state_dict())
    assert torch.equal(again(pixels(model)), model(pixels(model)))
    assert not again.training
    assert all(p.requires_grad and p.is_leaf for p in again.parameters())


@pytest.mark.usefixtures("untouched_random_state")
def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    save_model(fresh(), tmp_path / "vit.safetensors")
    load_model(tmp_path / "vit.safetensors")
    generator = torch.Generator().manual_seed(0)
    load_pretrained(fresh().state_dict(), config=fresh().config)
    load_pretrained(
        fresh().state_dict(), config=fresh().config, num_classes=3, generator=generator
    )


@pytest.mark.parametrize("kept", [torch.float64, torch.bfloat16, torch.float16])
def test_a_model_is_in_single_precision_unless_another_is_asked_for(
    kept: torch.dtype, tmp_path: Path
) -> None:
    path = tmp_path / "vit.safetensors"
    model = lively().to(kept)
    single = copy.deepcopy(model).float()
    save_model(model, path)
    assert {w.dtype for w in load_file(path).values()} == {kept}
    for load in (load_model, load_pretrained):
        default, asked = load(path), load(path, dtype=kept)
        assert {w.dtype for w in default.state_dict().values()} == {torch.float32}
        assert {w.dtype for w in asked.state_dict().values()} == {kept}
        assert_equal_states(asked.state_dict(), model.state_dict())
        assert_equal_states(default.state_dict(), single.state_dict())


def test_the_file_is_plain_safetensors_with_the_configuration_to_read(
    tmp_path: Path,
) -> None:
    model = fresh(in_chans=3).to(memory_format=torch.channels_last)
    save_model(model, str(tmp_path / "vit.safetensors"))
    assert_equal_states(load_file(tmp_path / "vit.safetensors"), model.state_dict())
    with safe_open(tmp_path / "vit.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt"
    config = json.loads(metadata["config"])
    assert config == json.loads(json.dumps(asdict(model.config)))
    assert list(tmp_path.iterdir()) == [tmp_path / "vit.safetensors"]


def write_half(path: Path, raw: bytes) -> int:
    with path.open("wb") as file:
        file.write(raw[: len(raw) // 2])
    raise OSError(errno.ENOSPC, "No space left on device")


def refuse(*_: object) -> None:
    raise OSError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(
    ("step", "fault", "reason"),
    [
        ("write_bytes", write_half, "No space left"),
        ("write_bytes", refuse, "Permission denied"),
        ("replace", refuse, "Permission denied"),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["over another", "anew"])
def test_a_file_that_cannot_be_written_leaves_what_was_there(
    step: str,
    fault: Callable[..., Any],
    reason: str,
    before: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "vit.safetensors"
    if before:
        save_model(fresh(seed=7), path)
    monkeypatch.setattr(Path, step, fault)
    with pytest.raises(CheckpointError, match=rf"{reason}.*bytes free") as caught:
        save_model(fresh(), path)
    assert str(path) in str(caught.value)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == ([path] if before else [])
    if before:
        assert_equal_states(load_model(path).state_dict(), fresh(seed=7).state_dict())


@pytest.mark.parametrize("place", ["nowhere/vit.safetensors", "file/vit", "folder"])
def test_a_place_that_cannot_hold_a_file_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"could not be saved.*Choose a folder"):
        save_model(fresh(), tmp_path / place)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_weights_without_our_configuration_are_for_load_pretrained(
    tmp_path: Path,
) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file(fresh().state_dict(), path)
    with pytest.raises(CheckpointError, match=r"save_model did not.*load_pretrained"):
        load_model(path)
    again = load_pretrained(path, config=fresh().config)
    assert_equal_states(again.state_dict(), fresh().state_dict())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('{"windows": 7}', "windows"),
        ('{"depth": -1}', "depth is -1"),
        ("[1, 2]", "mapping"),
        ("{half", "Expecting property name"),
    ],
)
@pytest.mark.parametrize("load", [load_model, load_pretrained])
def test_a_configuration_of_another_version_is_told(
    load: Callable[[Path], Any], config: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "vit.safetensors"
    save_file(fresh().state_dict(), path, {"config": config})
    with pytest.raises(CheckpointError, match=rf"{reason}.*Update the course"):
        load(path)


# Bad files ----------------------------------------------------------------------------

WHOLE = save(fresh().state_dict())
BAD: dict[str, bytes] = {
    "a proxy's page": b"<!DOCTYPE html><title>Please sign in</title>",
    "nothing": b"",
    "a large-file pointer": b"version 1\noid sha256:0\nsize 1231030\n",
    "a header cut short": WHOLE[:100],
    "weights cut short": WHOLE[:-1],
    "weights and more": WHOLE + b"\0",
    "a header of another length": b"\xff\xff\x00" + WHOLE[3:],
    "a header with a wrong letter": WHOLE[:8] + b"[" + WHOLE[9:],
    "a pickle": pickle.dumps({"head.weight": [1.0]}),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("load", [load_model, load_pretrained])
def test_a_file_that_is_not_whole_is_refused_with_how_it_begins(
    load: Callable[[Path], Any], bad: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "vit.safetensors"
    path.write_bytes(bad)
    with pytest.raises(CheckpointError, match="no whole safetensors file") as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert repr(bad[:32]) in str(caught.value)
    assert path.read_bytes() == bad  # it is the reader's own


class Trap:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["m.bin", "m.pt", "m.pth", "m.CKPT", "m.safetensors"])
def test_a_pickle_is_never_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    remedy = "no whole safetensors" if "safe" in name else "pickle.*weights_only=True"
    for load in (load_model, load_pretrained):
        with pytest.raises(CheckpointError, match=remedy):
            load(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_a_path_that_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be read.*Give the path"):
        load_model(tmp_path / "missing.safetensors")
    for load in (load_model, load_pretrained):
        with pytest.raises(CheckpointError, match=r"cannot be read.*Give the path"):
            load(tmp_path)


@pytest.mark.parametrize("name", ["google/vit-base", "vit.safetensors", "B/16"])
def test_an_unknown_name_is_told_with_the_known_ones(name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(name)
    assert str(caught.value).startswith(f"{name} is no file")
    assert all(known in str(caught.value) for known in PRETRAINED)


# The course's trained models ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "least", "most"),
    [
        ("positions", {}, 0.97, 1.0),
        ("no positions", {"positions": "none"}, 0.87, 0.95),
        ("mean", {"pool": "mean"}, 0.97, 1.0),
    ],
)
def test_the_trained_models_read_digits_as_well_as_their_credits_say(
    name: str, changes: dict[str, Any], least: float, most: float
) -> None:
    model = load_digit_model(name)
    assert model.config == ViTConfig.preset("digits", **changes)
    assert not model.training
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    accuracy = evaluate(model, load_digits()[1]).accuracy
    assert least < accuracy < most
    told_of = Path(data.__file__).with_name("data").joinpath("CREDITS.md").read_text()
    file = f"digits-{name.replace(' ', '-')}.safetensors"
    (told,) = re.findall(rf"^\| {file} \|[^`\n]* ([\d.]+) % \|", told_of, flags=re.M)
    assert float(told) == pytest.approx(100 * accuracy, abs=0.07)  # one digit of 1,500


def test_without_positions_the_trained_model_ignores_the_order_of_patches() -> None:
    images = load_digits()[1].images[:50]
    turned = images.reshape(50, 1, 4, 7, 28).flip(2).reshape(50, 1, 28, 28)
    with torch.no_grad():
        blind, sees = load_digit_model("no positions"), load_digit_model("positions")
        assert (blind(images) - blind(turned)).abs().max() < 1e-4
        assert (sees(images) - sees(turned)).abs().max() > 1


def test_the_file_that_pages_read_is_the_file_that_python_reads(
    tmp_path: Path,
) -> None:
    for name in DIGIT_MODELS:
        path = tmp_path / "model.safetensors"
        path.write_bytes(digit_weights(name))
        assert_equal_states(
            load_model(path).state_dict(), load_digit_model(name).state_dict()
        )


def test_other_names_and_damaged_files_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"'cls'; choose one of positions, no pos"):
        load_digit_model("cls")
    monkeypatch.setattr(data, "_FOLDER", tmp_path)
    (tmp_path / "digits-mean.safetensors").write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"digits-mean\.safetensors is damaged"):
        load_digit_model("mean")
    with pytest.raises(DataError, match=r"digits-positions.*cannot be read"):
        digit_weights("positions")


# Weights that do not fit --------------------------------------------------------------


def test_all_that_does_not_fit_is_told_at_once() -> None:
    model = fresh()
    state = model.state_dict()
    del state["norm.bias"], state["blocks.1.attn.qkv.weight"]
    state["fc_norm.weight"] = torch.ones(16)
    state["blocks.0.norm1.weight"] = torch.ones(12)
    state["blocks.0.mlp.fc1.bias"] = torch.zeros(64, dtype=torch.int8)
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(state, config=model.config)
    message = str(caught.value)
    assert "missing: blocks.1.attn.qkv.weight, norm.bias;" in message
    assert "unexpected: fc_norm.weight;" in message
    assert "of another shape: blocks.0.norm1.weight (12,) instead of (16,);" in message
    assert "not floating point: blocks.0.mlp.fc1.bias torch.int8." in message
    assert "Give the config=ViTConfig(...)" in message


@pytest.mark.parametrize("name", fresh(layer_scale=0.1).state_dict())
def test_no_weight_may_be_missing(name: str) -> None:
    model = fresh(layer_scale=0.1)
    state = {n: w for n, w in model.state_dict().items() if n != name}
    with pytest.raises(CheckpointError, match=rf"missing: {re.escape(name)}\. Give"):
        load_pretrained(state, config=model.config)


def test_a_table_of_1370_rows_into_257_names_both_grids_and_the_remedy_works() -> None:
    made = ViTConfig.preset("micro", img_size=518, patch_size=14)
    state = fresh(img_size=518, patch_size=14).state_dict()
    with pytest.raises(CheckpointError) as caught:
        load_pretrained(state, config=replace(made, img_size=224))
    message = str(caught.value)
    assert "pos_embed (1, 1370, 16) instead of (1, 257, 16)" in message
    assert "made for a 37x37 grid, and the config's is 16x16" in message
    assert "img_size=(518, 518)" in message
    assert "load_pretrained(..., img_size=(224, 224))" in message
    model = load_pretrained(state, config=made, img_size=224)
    assert_equal_states(
        model.state_dict(),
        fresh(img_size=518, patch_size=14).at_size(224).state_dict(),
    )


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((1, 8, 16), "7-patch grid"),
        ((1, 17, 16), "4x4 grid"),
        ((1, 0, 16), ""),
        ((16,), ""),
        ((1, 5, 8), ""),
    ],
)
def test_any_other_table_is_told_too(shape: tuple[int, ...], grid: str) -> None:
    state = fresh().state_dict() | {"pos_embed": torch.zeros(shape)}
    with pytest.raises(CheckpointError, match=re.escape(f"{shape} instead of")) as told:
        load_pretrained(state, config=fresh().config)
    assert ("grid" in str(told.value)) == bool(grid)
    assert grid in str(told.value)


# The head -----------------------------------------------------------------------------


def test_a_new_head_is_drawn_from_the_generator_and_the_rest_stays() -> None:
    published = lively().float()

    def load(seed: int) -> VisionTransformer:
        generator = torch.Generator().manual_seed(seed)
        return load_pretrained(
            published.state_dict(),
            config=published.config,
            num_classes=500,
            generator=generator,
        )

    one, same, other = load(0), load(0), load(1)
    assert one.config == replace(published.config, num_classes=500)
    assert one(pixels(one)).shape == (3, 500)
    assert_equal_states(one.state_dict(), same.state_dict())
    assert not torch.equal(one.head.weight, other.head.weight)
    rest = {n: w for n, w in one.state_dict().items() if not n.startswith("head.")}
    for name, weight in rest.items():
        assert torch.equal(weight, published.state_dict()[name]), name
    assert not one.head.bias.any()
    reset = fresh(num_classes=500).head.weight
    assert one.head.weight.std().item() == pytest.approx(reset.std().item(), rel=0.05)


def test_the_published_head_stays_unless_another_is_asked_for() -> None:
    published = lively().float()
    state, config = published.state_dict(), published.config
    for asked in ({}, {"num_classes": 10}):
        model = load_pretrained(state, config=config, **asked)
        assert_equal_states(model.state_dict(), state)
    features = load_pretrained(state, config=config, num_classes=0)
    images = pixels(published)
    expected = published.forward_features(images)[:, 0]
    torch.testing.assert_close(features(images), expected)
    assert "head.weight" not in features.state_dict()


def test_no_head_is_made_in_silence() -> None:
    config = fresh().config
    bare = fresh(num_classes=0).state_dict()
    with pytest.raises(
        CheckpointError, match=r"missing: head\.weight, head\.bias\..*num_classes= asks"
    ):
        load_pretrained(bare, config=config)
    assert load_pretrained(bare, config=config, num_classes=10).config == config
    with pytest.raises(
        CheckpointError, match=r"head\.weight \(10, 16\) instead of \(7"
    ):
        load_pretrained(fresh().state_dict(), config=replace(config, num_classes=7))
    with pytest.raises(CheckpointError, match=r"unexpected: head\.weight.*for none"):
        load_pretrained(fresh().state_dict(), config=replace(config, num_classes=0))
    with pytest.raises(ValueError, match="num_classes is -1"):
        load_pretrained(bare, config=config, num_classes=-1)


# What shapes tell ---------------------------------------------------------------------


def on_meta(config: ViTConfig) -> dict[str, Tensor]:
    with torch.device("meta"):
        return VisionTransformer(config).state_dict()


@pytest.mark.parametrize(
    "config",
    [
        *(ViTConfig.preset(f"{name}/16") for name in VARIANTS),
        ViTConfig.preset("B/32", num_classes=0, img_size=384),
        ViTConfig.preset("S/14", img_size=518, num_classes=0, layer_scale=1.0),
        ViTConfig.preset("Ti/16", patch_size=(8, 16), img_size=(112, 224), in_chans=1),
        ViTConfig.preset("S/16", mlp_ratio=3.5, layer_norm_eps=1e-12),
    ],
)
def test_shapes_tell_the_configuration_of_a_published_variant(
    config: ViTConfig,
) -> None:
    assert derive_config(on_meta(config), config.layer_norm_eps) == config


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (ViTConfig.preset("micro"), "no published variant is 16 wide and 2 blocks"),
        (ViTConfig.preset("S/16", depth=6), "384 wide and 6 blocks deep"),
        (ViTConfig.preset("S/16", img_size=(224, 112)), "99 positions are not"),
        (ViTConfig.preset("S/16", class_token=False, pool="mean"), "196 positions"),
        (ViTConfig.preset("S/16", positions="none"), "there is no pos_embed"),
    ],
)
def test_what_shapes_leave_open_is_asked_for(config: ViTConfig, reason: str) -> None:
    with pytest.raises(CheckpointError, match=rf"{reason}.*Give config=ViTConfig"):
        load_pretrained(on_meta(config))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("patch_embed.proj.weight", (192, 768)),
        ("pos_embed", (197, 192)),
        ("pos_embed", (1, 1, 192)),
        ("pos_embed", (1, 0, 192)),
        ("blocks.0.mlp.fc1.weight", ()),
    ],
)
def test_weights_that_make_no_vit_are_told(name: str, shape: tuple[int, ...]) -> None:
    state = on_meta(ViTConfig.preset("Ti/16"))
    with pytest.raises(CheckpointError, match="do not tell which ViT they make"):
        load_pretrained(state | {name: torch.zeros(shape)})
    with pytest.raises(CheckpointError, match="do not tell which ViT they make"):
        load_pretrained({"weight": torch.zeros(3)})


@pytest.mark.parametrize(
    ("build", "eps", "changes"),
    [
        (hugging_face_vit, 1e-12, {}),
        (hugging_face_dinov2, 1e-6, {"layer_scale": 1.0, "num_classes": 0}),
        (torchvision_vit, 1e-6, {}),
        (timm_vit, 1e-6, {}),
    ],
)
def test_names_tell_whose_eps_the_norms_have(
    build: Callable[[ViTConfig], Any], eps: float, changes: dict[str, Any]
) -> None:
    config = ViTConfig.preset("Ti/16", patch_size=112, layer_norm_eps=eps, **changes)
    assert load_pretrained(build(config).state_dict()).config == config


def test_a_missing_norm_is_not_taken_for_a_model_without() -> None:
    state = fresh("Ti/16", depth=12, patch_size=112).state_dict()
    assert load_pretrained(state).config.final_norm
    for name in ("norm.weight", "norm.bias"):
        del state[name]
    with pytest.raises(CheckpointError, match=r"missing: norm\.weight, norm\.bias"):
        load_pretrained(state)


# The publishers' names ----------------------------------------------------------------

SIZES = {"in_chans": 3, "embed_dim": 24, "depth": 12, "num_heads": 12, "num_classes": 5}


def saved_by_transformers(peer: Any, folder: Path) -> dict[str, Tensor]:
    peer.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def in_memory_and_in_file(which: str, folder: Path) -> list[dict[str, Tensor]]:
    build = hugging_face_dinov2 if which == "DINOv2" else hugging_face_vit
    config = ViTConfig.preset("micro", **SIZES, layer_scale=1.0)
    if which != "ViT":
        config = replace(config, num_classes=0)
    peer = build(config)
    return [peer.state_dict(), saved_by_transformers(peer, folder)]


@pytest.mark.parametrize("which", ["ViT", "ViT without a head", "DINOv2"])
def test_names_in_memory_and_in_files_lead_to_the_same_weights(
    which: str, tmp_path: Path
) -> None:
    memory, file = in_memory_and_in_file(which, tmp_path)
    assert any(".q_proj." in name for name in memory)
    assert any(".attention.query." in name for name in file)
    assert_equal_states(our_names(memory), our_names(file))
    prefix = "dinov2." if which == "DINOv2" else "vit."
    bare = {name.removeprefix(prefix): w for name, w in file.items()}
    named = {
        name if name.startswith("classifier") else prefix + name: w
        for name, w in bare.items()
    }
    assert bare.keys() != named.keys()
    assert_equal_states(our_names(bare), our_names(named))


def test_torchvisions_old_names_of_the_mlp_are_known() -> None:
    block = "encoder.layers.encoder_layer_1"
    new = {
        f"{block}.self_attention.in_proj_weight": torch.zeros(1),
        f"{block}.mlp.0.weight": torch.ones(1),
        f"{block}.mlp.3.bias": torch.ones(2),
    }
    old = {
        name.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): weight
        for name, weight in new.items()
    }
    assert old.keys() != new.keys()
    assert_equal_states(our_names(old), our_names(new))
    assert our_names(old).keys() == {
        "blocks.1.attn.qkv.weight",
        "blocks.1.mlp.fc1.weight",
        "blocks.1.mlp.fc2.bias",
    }


def test_names_of_timm_stay() -> None:
    state = fresh(layer_scale=0.1).state_dict()
    assert_equal_states(our_names(state), state)


def test_only_named_exceptions_are_left_out() -> None:
    assert set(LEFT_OUT) == {"mask_token", "embeddings.mask_token", "pooler.dense"}
    extra = {
        "mask_token": torch.zeros(1, 16),
        "vit.pooler.dense.weight": torch.zeros(16, 16),
        "pooler.dense.bias": torch.zeros(16),
    }
    state = fresh().state_dict()
    assert_equal_states(our_names(state | extra), state)
    for name in ("pooler.weight", "blocks.0.mask_token", "decoder.weight"):
        with pytest.raises(CheckpointError, match=f"unexpected: {name}"):
            load_pretrained(state | {name: torch.zeros(1)}, config=fresh().config)


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["reg_token"], "register tokens"),
        (["register_tokens"], "register tokens"),
        (["dinov2_with_registers.x", "embeddings.register_tokens"], "register tokens"),
        (["dist_token", "head_dist.weight"], "a distillation token"),
        (["deit.embeddings.distillation_token"], "a distillation token"),
        (["distillation_classifier.weight"], "a distillation token"),
        (["encoder.layer.0.mlp.weights_in.weight"], r"a gated MLP \(SwiGLU\)"),
        (["blocks.0.mlp.w12.weight"], r"a gated MLP \(SwiGLU\)"),
    ],
)
def test_parts_that_our_model_lacks_are_refused_by_name(
    names: list[str], part: str
) -> None:
    state = fresh().state_dict() | {name: torch.zeros(1) for name in names}
    last = re.escape(names[-1].removeprefix("deit."))
    with pytest.raises(CheckpointError, match=rf"a ViT with {part} \(.*{last}\)"):
        load_pretrained(state, config=fresh().config)


def test_real_models_with_more_tokens_are_refused() -> None:
    timm, transformers = import_peer("timm"), import_peer("transformers")
    sizes = {"img_size": 32, "embed_dim": 16, "depth": 1, "num_heads": 2}
    registers = timm.models.VisionTransformer(**sizes, reg_tokens=4)
    distilled = timm.models.deit.VisionTransformerDistilled(**sizes)
    theirs = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for peer, part in [
        (registers, "register tokens"),
        (distilled, "a distillation token"),
        (
            transformers.Dinov2WithRegistersModel(
                transformers.Dinov2WithRegistersConfig(**theirs, image_size=28)
            ),
            "register tokens",
        ),
        (
            transformers.DeiTForImageClassificationWithTeacher(
                transformers.DeiTConfig(**theirs, image_size=32)
            ),
            "a distillation token",
        ),
        (
            transformers.Dinov2Model(
                transformers.Dinov2Config(**theirs, image_size=28, use_swiglu_ffn=True)
            ),
            "a gated MLP",
        ),
    ]:
        with pytest.raises(CheckpointError, match=rf"a ViT with {part}"):
            load_pretrained(peer.state_dict())


def test_the_head_that_transformers_puts_on_dinov2_is_refused_and_can_be_left() -> None:
    """It reads the mean of the patches beside [CLS]."""
    transformers = import_peer("transformers")
    theirs = transformers.Dinov2Config(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=8,
        patch_size=4,
        num_labels=5,
    )
    state = transformers.Dinov2ForImageClassification(theirs).state_dict()
    config = ViTConfig.preset("micro", in_chans=3, num_classes=5, layer_scale=1.0)
    with pytest.raises(CheckpointError, match=r"head\.weight \(5, 32\) instead.*none"):
        load_pretrained(state, config=config)
    features = load_pretrained(state, config=config, num_classes=0)
    assert features.config.num_classes == 0


def test_a_weight_under_two_names_is_refused() -> None:
    layer = "encoder.layer.0"
    state = {f"{layer}.layernorm_before.weight": torch.ones(4)}
    for name in ("attention.attention.query", "attention.q_proj"):
        state[f"{layer}.{name}.weight"] = torch.zeros(4, 4)
    with pytest.raises(CheckpointError, match=r"blocks\.0\.attn\.query.*twice"):
        our_names(state)


def test_queries_keys_and_values_are_joined_in_this_order() -> None:
    state = {"layers.0.layernorm_before.weight": torch.ones(4)}
    for number, part in enumerate("vkq"):  # however the file has them
        state[f"layers.0.attention.{part}_proj.weight"] = torch.full((4, 4), number)
    joined = our_names(state)["blocks.0.attn.qkv.weight"]
    assert joined[:, 0].tolist() == [2] * 4 + [1] * 4 + [0] * 4


def test_a_key_bias_that_is_missing_changes_nothing() -> None:
    """It adds the same number to all scores of a query."""
    config = ViTConfig.preset("micro", in_chans=3, layer_norm_eps=1e-12)
    state = hugging_face_vit(config).double().state_dict()
    without = {n: w for n, w in state.items() if not n.endswith("k_proj.bias")}
    assert len(state) - len(without) == 2
    whole, ours = (
        load_pretrained(weights, config=config, dtype=torch.float64)
        for weights in (state, without)
    )
    assert not ours.blocks[1].attn.qkv.bias[16:32].any()
    assert whole.blocks[1].attn.qkv.bias[16:32].all()
    images = pixels(ours)
    torch.testing.assert_close(ours(images), whole(images), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("gone", ["q_proj.bias", "v_proj.bias", "k_proj.weight"])
def test_no_other_part_of_the_attention_may_be_missing(gone: str) -> None:
    config = ViTConfig.preset("micro", in_chans=3)
    state = hugging_face_vit(config).state_dict()
    del state[f"vit.layers.1.attention.{gone}"]
    kind = gone.partition(".")[2]
    with pytest.raises(
        CheckpointError, match=rf"missing: blocks\.1\.attn\.qkv\.{kind};"
    ):
        load_pretrained(state, config=config)


# From the hub -------------------------------------------------------------------------


def address(name: str) -> str:
    return f"/{name}/resolve/{PRETRAINED[name].revision}/model.safetensors"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub whose models have all of their blocks and names, and are narrow."""
    for name, about in PRETRAINED.items():
        heads = about.config.num_heads
        narrow = replace(about.config, embed_dim=2 * heads, img_size=4, patch_size=2)
        monkeypatch.setitem(PRETRAINED, name, replace(about, config=narrow))
    with serving(address(DEIT), tmp_path, monkeypatch) as hub:
        hub.body = save(timm_vit(PRETRAINED[DEIT].config).state_dict())
        yield hub


@pytest.mark.parametrize(
    ("name", "build"),
    [(GOOGLE, hugging_face_vit), (DINOV2, hugging_face_dinov2), (DEIT, timm_vit)],
)
def test_a_model_comes_from_the_hub_once_at_its_pinned_revision(
    hub: Hub, tmp_path: Path, name: str, build: Callable[[ViTConfig], Any]
) -> None:
    config = PRETRAINED[name].config
    peer = build(config)
    if build is timm_vit:
        hub.body = save(peer.state_dict())
    else:
        saved_by_transformers(peer, tmp_path)
        hub.body = (tmp_path / "model.safetensors").read_bytes()
    hub.path = address(name)
    model = load_pretrained(name)
    assert model.config == config
    assert_equal_states(model.state_dict(), our_names(peer.state_dict()))
    assert hub.requests[-1] == f"GET {address(name)}"
    fetched = len(hub.requests)
    five = load_pretrained(name, num_classes=5, img_size=(8, 6), dtype=torch.float64)
    assert five.config == replace(config, num_classes=5, img_size=(8, 6))
    assert five(pixels(five)).shape == (3, 5)
    assert len(hub.requests) == fetched  # the second time, from the cache


def test_revisions_are_whole_hashes_of_commits() -> None:
    for about in PRETRAINED.values():
        assert re.fullmatch(r"[0-9a-f]{40}", about.revision)


def test_the_description_may_be_changed_for_fine_tuning(hub: Hub) -> None:
    config = replace(PRETRAINED[DEIT].config, drop_rate=0.1)
    assert load_pretrained(DEIT, config=config).config == config


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_no_model_is_not_kept_and_the_next_try_works(
    hub: Hub, tmp_path: Path, bad: bytes
) -> None:
    good, hub.body = hub.body, bad
    with pytest.raises(CheckpointError, match=r"no whole safetensors.*been deleted"):
        load_pretrained(DEIT)
    assert cached(tmp_path) == []
    hub.body = good
    assert load_pretrained(DEIT).config == PRETRAINED[DEIT].config


def test_a_model_spoilt_in_the_cache_later_is_deleted_too(
    hub: Hub, tmp_path: Path
) -> None:
    load_pretrained(DEIT)
    for path in cache(tmp_path).rglob("model.safetensors"):
        path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="has been deleted"):
        load_pretrained(DEIT)
    load_pretrained(DEIT)


def test_an_interrupted_download_leaves_nothing_behind(
    hub: Hub, tmp_path: Path
) -> None:
    hub.cut = 1_000
    with pytest.raises(CheckpointError, match="could not be fetched"):
        load_pretrained(DEIT)
    assert cached(tmp_path) == []
    hub.cut = 0
    load_pretrained(DEIT)


@pytest.mark.parametrize("status", [401, 403, 404, 503])
def test_a_refusal_by_the_host_is_told_with_the_way_round(
    hub: Hub, tmp_path: Path, status: int
) -> None:
    hub.status = status
    message = rf"could not be fetched.*{status}.*get model\.safetensors of {DEIT}"
    with pytest.raises(CheckpointError, match=message):
        load_pretrained(DEIT)
    assert cached(tmp_path) == []


def test_no_network_is_told_with_the_way_round_and_it_works(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    template = huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE
    monkeypatch.setattr(
        huggingface_hub.constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        template.replace(hub.url, nobody),
    )
    with pytest.raises(CheckpointError, match=r"Check the connection.*give its path"):
        load_pretrained(DEIT)
    assert hub.requests == []
    path = tmp_path / "by-hand.safetensors"
    path.write_bytes(hub.body)
    load_pretrained(path, config=PRETRAINED[DEIT].config)


def test_without_the_hubs_package_the_way_round_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r"ModuleNotFoundError.*give its path"):
        load_pretrained(GOOGLE)


def test_a_cache_that_cannot_be_written_is_told(hub: Hub, tmp_path: Path) -> None:
    cache(tmp_path).write_text("a file stands in the way")
    with pytest.raises(CheckpointError, match="could not be fetched"):
        load_pretrained(DEIT)


def test_a_bad_model_in_a_read_only_cache_is_named_to_be_deleted(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_pretrained(DEIT)
    [path] = cache(tmp_path).rglob("model.safetensors")
    path.write_bytes(b"<html>")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CheckpointError, match="cannot be deleted") as caught:
        load_pretrained(DEIT)
    assert str(path.resolve()) in str(caught.value)


def test_a_model_that_is_whole_but_another_is_told_and_kept(
    hub: Hub, tmp_path: Path
) -> None:
    hub.body = save(timm_vit(PRETRAINED[GOOGLE].config).state_dict())
    with pytest.raises(CheckpointError, match=rf"weights of {DEIT} do not fit"):
        load_pretrained(DEIT)
    assert cached(tmp_path)


# Pixels -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5), (2, 1, 3, 4, 5)])
def test_pixels_lose_their_mean_and_are_divided_by_their_spread(
    shape: tuple[int, ...],
) -> None:
    images = np.random.default_rng(0).random(shape)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.8)
    expected = np.stack(
        [(images[..., c, :, :] - mean[c]) / std[c] for c in range(3)], axis=-3
    )
    ours = standardise(torch.tensor(images), mean, std)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
    about = Published("0" * 40, ViTConfig(), mean, std)
    assert torch.equal(about.standardise(torch.tensor(images)), ours)
    half = standardise(torch.tensor(images).half(), mean, std)
    assert half.dtype == torch.float16


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(3, 4, 4, dtype=torch.uint8), TypeError, "uint8.*float.. / 255"),
        (torch.full((3, 4, 4), 255.0), ValueError, "expected 0 to 1.*images / 255"),
        (torch.full((3, 4, 4), -0.5), ValueError, "from -0.5 to -0.5"),
        (torch.full((3, 4, 4), torch.nan), ValueError, "from nan to nan"),
        (torch.zeros(1, 4, 4), ValueError, r"\(1, 4, 4\); expected \(\.\.\., 3, H, W"),
        (torch.zeros(4, 4, 3), ValueError, r"\(4, 4, 3\)"),
        (torch.zeros(3, 4), ValueError, r"\(3, 4\)"),
    ],
)
def test_pixels_that_would_give_nonsense_are_refused(
    images: Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        PRETRAINED[GOOGLE].standardise(images)
