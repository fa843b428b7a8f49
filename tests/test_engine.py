"""The digit ViT in the page gives PyTorch's numbers, from the same file of weights."""

from __future__ import annotations

import base64
import copy
import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import build_kernel
import numpy as np
import pytest
import torch
from engine import Engine, pack, safetensors, unpack
from models import MICRO, fresh, lively, pixels
from playwright.sync_api import Browser
from safetensors.torch import save
from torch import Tensor, nn

from course_utils.checkpoints import (
    DIGIT_MODELS,
    digit_weights,
    load_digit_model,
    save_model,
)
from course_utils.data import load_digits
from course_utils.patches import patchify, unpatchify
from course_utils.vit import VisionTransformer
from course_utils.widgets.base import FOLDER

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
REFUSED = {
    "layer scale": "layer_scale is 0.3 in the file; this engine runs [null]",
    "tanh": 'activation is "gelu_tanh" in the file; this engine runs ["gelu"]',
    "features": "num_classes is 0 in the file: there is no head",
}
RUN = {
    **{name: changes for name, changes in MICRO.items() if name not in REFUSED},
    "post-norm and mean": {"norm": "post", "final_norm": False, "pool": "mean"},
    "large eps": {"layer_norm_eps": 0.5},
    "three heads of five": {"embed_dim": 15, "num_heads": 3},
    "seven wide": {"embed_dim": 7, "num_heads": 1, "mlp_ratio": 1.5, "num_classes": 3},
}


@pytest.fixture(scope="module")
def engine(browser: Browser) -> Iterator[Engine]:
    """The engine with the digit models, in one page for all tests."""
    with browser.new_context() as context:
        engine = Engine(context.new_page())
        for name in DIGIT_MODELS:
            assert engine.load(name, digit_weights(name))["simd"]
        yield engine


@pytest.fixture(scope="module")
def digits() -> Tensor:
    """The 1,500 embedded test digits, (1500, 1, 28, 28)."""
    _, test = load_digits()
    return test.images


def file_of(model: VisionTransformer, folder: Path) -> bytes:
    save_model(model, folder / "model.safetensors")
    return (folder / "model.safetensors").read_bytes()


@torch.no_grad()
def expected(model: VisionTransformer, images: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, K) and attention (B, depth, A, T, T) by PyTorch."""
    logits, attention = model(images, return_attention=True)
    return logits.float(), torch.stack(attention, 1).float()


def without_positions(model: VisionTransformer) -> VisionTransformer:
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.pos_embed.zero_()  # type: ignore[union-attr]
    return model


# The same numbers as PyTorch ----------------------------------------------------------


@pytest.mark.parametrize("name", DIGIT_MODELS)
def test_all_test_digits_get_pytorchs_logits_and_attention(
    engine: Engine, digits: Tensor, name: str
) -> None:
    found = engine.run(name, digits)
    logits, attention = expected(load_digit_model(name), digits)
    assert (found.logits - logits).abs().max() < 1e-5
    assert (found.attention - attention).abs().max() < 1e-5
    assert (found.probabilities - logits.softmax(1)).abs().max() < 1e-5
    assert (found.logits.argmax(1) == logits.argmax(1)).all()


@pytest.mark.parametrize("changes", RUN.values(), ids=RUN)
def test_every_kind_of_model_gives_pytorchs_intermediates(
    engine: Engine, tmp_path: Path, changes: dict[str, Any]
) -> None:
    model = lively(**changes).float()
    about = engine.load("micro", file_of(model, tmp_path))
    c = model.config
    assert about["config"] == json.loads(json.dumps(asdict(c)))
    grid = {"rows": c.grid[0], "columns": c.grid[1], "tokens": c.num_tokens}
    assert about["grid"] == grid
    image = pixels(model, B=1)
    found = engine.record("micro", image[0])
    model = model.double()
    with torch.no_grad():
        record = model.intermediates(image.double())
    assert list(found) == list(record)
    for name, tensor in record.items():
        torch.testing.assert_close(
            found[name], tensor[0].float(), **CLOSE, msg=lambda m, name=name: name + m
        )
    logits, attention = expected(model, image.double())
    result = engine.run("micro", image)
    torch.testing.assert_close(result.logits, logits, **CLOSE)
    torch.testing.assert_close(result.attention, attention, **CLOSE)


@pytest.mark.parametrize("name", DIGIT_MODELS)
def test_the_digit_models_intermediates_are_pytorchs(
    engine: Engine, digits: Tensor, name: str
) -> None:
    model = load_digit_model(name)
    for image in digits[:5]:
        with torch.no_grad():
            record = model.intermediates(image[None])
        found = engine.record(name, image)
        assert list(found) == list(record)
        for key, tensor in record.items():
            torch.testing.assert_close(found[key], tensor[0], **CLOSE)


def test_positions_can_be_left_out(engine: Engine, digits: Tensor) -> None:
    model = without_positions(load_digit_model("positions"))
    found = engine.run("positions", digits[:20], positions=False)
    logits, attention = expected(model, digits[:20])
    torch.testing.assert_close(found.logits, logits, **CLOSE)
    torch.testing.assert_close(found.attention, attention, **CLOSE)
    before, _ = expected(load_digit_model("positions"), digits[:20])
    assert (before - logits).abs().max() > 0.1


@pytest.mark.parametrize("name", DIGIT_MODELS)
def test_an_order_is_as_if_the_images_patches_were_shuffled(
    engine: Engine, digits: Tensor, name: str
) -> None:
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
    shuffled = unpatchify(patchify(digits[:20], 7)[:, order], 7, 28)
    found = engine.run(name, digits[:20], order=order.tolist())
    logits, attention = expected(load_digit_model(name), shuffled)
    torch.testing.assert_close(found.logits, logits, **CLOSE)
    torch.testing.assert_close(found.attention, attention, **CLOSE)


def test_without_positions_the_logits_ignore_the_order_of_patches(
    engine: Engine, digits: Tensor
) -> None:
    order = list(range(16))[::-1]
    for name, options in [("no positions", {}), ("positions", {"positions": False})]:
        here = engine.run(name, digits[:5], **options)
        there = engine.run(name, digits[:5], order=order, **options)
        torch.testing.assert_close(here.logits, there.logits, **CLOSE)
    here = engine.run("positions", digits[:5])
    there = engine.run("positions", digits[:5], order=order)
    assert (here.logits - there.logits).abs().max() > 0.1


@pytest.mark.parametrize("name", DIGIT_MODELS)
def test_the_head_reads_any_vector_of_the_residual_stream(
    engine: Engine, digits: Tensor, name: str
) -> None:
    model = load_digit_model(name)
    with torch.no_grad():
        record = model.intermediates(digits[:1])
        for key in ("tokens", "blocks.0.add1", "blocks.1.add2"):
            vector = record[key][0, 0]
            found = engine.head(name, vector)
            torch.testing.assert_close(found, model.head(model.norm(vector)), **CLOSE)


def test_without_a_final_norm_the_head_reads_the_vector_itself(
    engine: Engine, tmp_path: Path
) -> None:
    model = lively(norm="post", final_norm=False).float()
    engine.load("micro", file_of(model, tmp_path))
    vector = torch.linspace(-2, 3, 16)
    with torch.no_grad():
        logits = model.head(vector)
    torch.testing.assert_close(engine.head("micro", vector), logits, **CLOSE)


def test_gelu_is_exact_to_float32(engine: Engine, tmp_path: Path) -> None:
    model = fresh(mlp_ratio=256, depth=1)
    fc1 = model.blocks[0].mlp.fc1
    x = torch.linspace(-10, 10, fc1.out_features)
    with torch.no_grad():
        fc1.weight.zero_()
        fc1.bias.copy_(x)
    engine.load("wide", file_of(model, tmp_path))
    hidden = engine.record("wide", pixels(model, B=1)[0])["blocks.0.mlp.hidden"]
    gelu = nn.functional.gelu(x.double())
    for row in hidden:
        torch.testing.assert_close(row.double(), gelu, rtol=1e-7, atol=1e-8)


# Two kernels --------------------------------------------------------------------------


def test_plain_javascript_gives_what_the_kernel_gives(
    engine: Engine, digits: Tensor
) -> None:
    assert not engine.load("plain", digit_weights(), simd=False)["simd"]
    plain = engine.run("plain", digits[:50])
    kernel = engine.run("positions", digits[:50])
    torch.testing.assert_close(plain.logits, kernel.logits, **CLOSE)
    torch.testing.assert_close(plain.attention, kernel.attention, **CLOSE)


@pytest.mark.parametrize("way", ["missing", "barred"])
def test_where_webassembly_does_not_run_plain_javascript_does(
    browser: Browser, digits: Tensor, way: str
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        if way == "missing":
            page.evaluate("() => { delete globalThis.WebAssembly; }")
        else:
            policy = "script-src 'unsafe-inline' blob:"
            page.set_content(
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            )
        engine = Engine(page)
        assert not engine.load("positions", digit_weights())["simd"]
        logits, _ = expected(load_digit_model(), digits[:5])
        found = engine.run("positions", digits[:5]).logits
    torch.testing.assert_close(found, logits, **CLOSE)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_kernel_multiplies_matrices_of_any_length_and_stride(
    engine: Engine, transposed: bool
) -> None:
    m, n = 8, 24
    script = """([a, b, sizes]) => {
      const memory = new WebAssembly.Memory({ initial: 1 });
      const module = new WebAssembly.Module(gemm);
      const { exports } = new WebAssembly.Instance(module, { page: { memory } });
      const numbers = new Float32Array(memory.buffer).fill(7);
      numbers.set(floats(a), 0);
      numbers.set(floats(b), 1000);
      exports.gemm(...sizes, 8000, 4 * 32);
      return pack(numbers.subarray(2000, 2000 + 8 * 32));
    }"""
    generator = torch.Generator().manual_seed(0)
    for k in (1, 2, 17):
        a, b = (torch.randn(*s, generator=generator) for s in ((m, k), (k, n)))
        stored = a.T if transposed else a
        strides = [4, 4 * m] if transposed else [4 * k, 4]
        sizes = [m, n, k, 0, *strides, 4000, 4 * n]
        text = engine.page.evaluate(script, [pack(stored), pack(b), sizes])
        c = unpack(text, m, 32)
        torch.testing.assert_close(c[:, :n], a @ b, **CLOSE)
        assert (c[:, n:] == 7).all()  # nothing is written beside the matrix


def test_the_kernel_is_what_its_source_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build_kernel.main(["--check"]) == 0
    monkeypatch.setattr(build_kernel, "ROOT", tmp_path)
    monkeypatch.setattr(build_kernel, "KERNEL", tmp_path / "gemm.wasm")
    source = tmp_path / "gemm.wat"
    source.write_text(
        build_kernel.SOURCE.read_text("utf-8").replace("const 8", "const 16")
    )
    monkeypatch.setattr(build_kernel, "SOURCE", source)
    assert build_kernel.main([]) == 0
    assert build_kernel.main(["--check"]) == 0
    kernel = (tmp_path / "gemm.wasm").read_bytes()
    assert kernel != (FOLDER / "gemm.wasm").read_bytes()
    (tmp_path / "gemm.wasm").write_bytes(kernel[:-1])
    assert build_kernel.main(["--check"]) == 1
    assert "gemm.wasm is not what gemm.wat makes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(i32.const 1))", "1 parentheses are not closed"),
        ("(i32.const 1))))", "closed that was not opened"),
        ("(i32.const 1))) (x)", "2 forms; expected one module"),
        ("nop))", "nop stands alone"),
        ("(local.get $y)))", "local.get $y: there is no such local"),
        ("(br_if $l (i32.const 1))))", "br_if $l stands in no such loop"),
        ("(i32.xor (i32.const 1) (i32.const 2))))", r"does not know \(i32.xor"),
        ("(v128.const i32x4 1 2)))", r"does not know \(v128.const"),
    ],
)
def test_the_assembler_names_what_it_does_not_know(body: str, message: str) -> None:
    start = '(module (import "a" "b" (memory 1)) (func (export "c") '
    with pytest.raises(build_kernel.KernelError, match=message.replace("$", r"\$")):
        build_kernel.assemble(start + body)
    with pytest.raises(build_kernel.KernelError, match=r"expected \(module"):
        build_kernel.assemble("(module)")


@pytest.mark.parametrize("number", [0, 1, 63, 64, 127, 128, 300, -1, -64, -65, 2**31])
def test_leb128_is_read_back(number: int) -> None:
    def read(raw: bytes, sign: bool) -> int:
        value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(raw))
        return value - (1 << 7 * len(raw)) if sign and raw[-1] & 0x40 else value

    assert read(build_kernel.signed(number), sign=True) == number
    if number >= 0:
        assert read(build_kernel.unsigned(number), sign=False) == number


# Reading files ------------------------------------------------------------------------


def test_float16_is_read_exactly(engine: Engine) -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    raw = save({"halves": torch.from_numpy(halves), "rest": torch.tensor([0.1, -2.0])})
    script = """async ([file, at]) => {
      const padded = new Uint8Array([...new Uint8Array(at), ...unpack(file)]);
      const views = [padded.slice(at).buffer, padded.subarray(at),
                     new DataView(padded.buffer, at)];
      return Promise.all(views.map((view) => {
        const { halves, rest } = vit.readSafetensors(view).tensors;
        return pack(halves.data, rest.data);
      }));
    }"""
    text = base64.b64encode(raw).decode()
    for found in engine.page.evaluate(script, [text, 3]):
        numbers = unpack(found, -1).numpy()
        exact = halves.astype(np.float32)
        assert np.isnan(numbers[: 2**16][np.isnan(exact)]).all()
        usual = ~np.isnan(exact)
        assert (numbers[: 2**16].view(np.uint32) == exact.view(np.uint32))[usual].all()
        assert numbers[2**16 :].tolist() == [np.float32(0.1), -2.0]


def test_parameters_come_out_as_they_are_in_the_file(engine: Engine) -> None:
    for name, weight in load_digit_model().state_dict().items():
        script = """async (name) => {
          const { shape, data } = models.positions.tensor(name);
          return [shape, await pack(data)];
        }"""
        shape, text = engine.page.evaluate(script, name)
        assert torch.equal(unpack(text, *shape), weight), name


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "it has 0 bytes, and the header's length alone takes 8"),
        (b"1234567", "it has 7 bytes"),
        (b"\xff" * 7 + b"\x7f", "its header should end at byte 922"),
        (safetensors({"a": ONE})[:-1], "its header should end at byte 69, the file"),
        (safetensors(b"{]"), "its header is not JSON"),
        (safetensors(b'{"\xff": 1}'), "its header is not JSON"),
        (safetensors({"a": ONE}, b"123"), "a lies at bytes 69 to 73 of 72"),
        (
            safetensors({"a": {**ONE, "data_offsets": [-4, 0]}}),
            "a lies at bytes 66 to 70 of 70",
        ),
        (
            safetensors({"a": {**ONE, "shape": [2, 3]}}, b"1234"),
            "a has 4 bytes, its shape 2,3 needs 24",
        ),
        (
            safetensors({"a": {**ONE, "dtype": "BF16"}}, b"1234"),
            "a is stored as BF16; only F32,F16 are read",
        ),
        (safetensors({"a": ONE}, b"1234"), "no config in it"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_apart(
    engine: Engine, raw: bytes, message: str
) -> None:
    error = engine.load_error(raw)
    assert error.startswith("Error: ")
    assert message in error


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_that_the_engine_lacks_is_refused_by_name(
    engine: Engine, tmp_path: Path, kind: str
) -> None:
    error = engine.load_error(file_of(fresh(**MICRO[kind]), tmp_path))
    assert REFUSED[kind] in error


def test_weights_that_do_not_fit_their_config_are_named(engine: Engine) -> None:
    model = fresh()
    metadata = {"config": json.dumps(asdict(model.config))}
    state = model.state_dict()
    for name, weight in state.items():
        rest = {other: state[other] for other in state if other != name}
        error = engine.load_error(save(rest, metadata))
        assert f"The file has no {name}." in error
        longer = torch.cat([weight, weight])
        error = engine.load_error(save({**rest, name: longer}, metadata))
        # This one says how wide hidden layers are: what does not fit is its bias.
        if name == "blocks.0.mlp.fc1.weight":
            name = "blocks.0.mlp.fc1.bias"
        assert f"{name} has the shape" in error


# Bad calls ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "forward(new Float32Array(783))",
            "RangeError: There are 783 pixel values; this model reads 28 × 28 = 784.",
        ),
        (
            "forward(blank, { order: [0, 1] })",
            "RangeError: The order has 2 places; the image has 16 patches.",
        ),
        (
            "forward(blank, { order: new Array(16).fill(4) })",
            "RangeError: The order holds patch 4 twice, at 0 and 1.",
        ),
        (
            "forward(blank, { order: blank.slice(0, 16).map((_, i) => i + 1) })",
            "RangeError: Place 15 of the order holds 16; patches are 0 to 15.",
        ),
        (
            "forward(blank, { order: Array.from({ length: 16 }, (_, i) => i / 2) })",
            "RangeError: Place 1 of the order holds 0.5; patches are 0 to 15.",
        ),
        (
            "head(new Float32Array(63))",
            "RangeError: The vector has 63 numbers; the model is 64 wide.",
        ),
        ("tensor('nobody')", "Error: The file has no nobody."),
    ],
)
def test_a_bad_call_names_what_does_not_fit(
    engine: Engine, call: str, message: str
) -> None:
    script = f"const blank = new Float32Array(784); models.positions.{call};"
    assert engine.error(script) == message


def test_colour_images_say_how_many_values_they_need(
    engine: Engine, tmp_path: Path
) -> None:
    engine.load("rectangle", file_of(fresh(**MICRO["rectangle"]), tmp_path))
    error = engine.error("models.rectangle.forward(new Float32Array(128));")
    assert "this model reads 3 × 16 × 8 = 384." in error


# The rest of the module ---------------------------------------------------------------


def test_results_are_the_callers_own(engine: Engine, digits: Tensor) -> None:
    script = """async ([one, other]) => {
      const flat = ({ logits, probabilities, attention, record }) =>
        pack(logits, probabilities, ...attention,
             ...Object.values(record).map(({ data }) => data));
      const model = models.positions;
      const [a, b] = [floats(one), floats(other)];
      const first = model.forward(a, { record: true });
      const before = await flat(first);
      const second = model.forward(b, { record: true });
      const after = await flat(first);
      for (const part of [second.logits, second.attention[0]]) part.fill(9);
      const names = ["logits", "blocks.0.attn.weights"];
      const shared = names.some((name) => second.record[name].data[0] === 9);
      for (const { data } of Object.values(second.record)) data.fill(9);
      return [shared, before, after, await flat(model.forward(a, { record: true }))];
    }"""
    images = [pack(image) for image in digits[:2]]
    shared, before, after, again = engine.page.evaluate(script, images)
    assert not shared
    assert before == after == again


def test_no_record_is_kept_unless_asked_for(engine: Engine) -> None:
    script = "() => models.positions.forward(new Float32Array(784)).record"
    assert engine.page.evaluate(script) is None


def test_softmax_does_not_overflow(engine: Engine) -> None:
    scores = torch.tensor([1000.0, 999.0, -1000.0])
    found = engine.page.evaluate(
        "(scores) => [...vit.softmax(scores)]", [1e3, 999, -1e3]
    )
    torch.testing.assert_close(torch.tensor(found), scores.softmax(0))


@pytest.mark.parametrize("kind", ["pre-norm", "rectangle"])
def test_patches_are_pythons(engine: Engine, kind: str) -> None:
    model = fresh(**MICRO[kind])
    config = model.config
    images = pixels(model, B=1)
    found = engine.page.evaluate(
        "([image, config]) => pack(vit.patchify(floats(image), config))",
        [pack(images), json.loads(json.dumps(asdict(config)))],
    )
    patches = patchify(images, config.patch_size)
    assert torch.equal(unpack(found, *patches.shape), patches)


def test_the_engine_is_light() -> None:
    sizes = [
        len(gzip.compress((FOLDER / name).read_bytes(), 9))
        for name in ("vit.js", "gemm.wasm")
    ]
    assert sum(sizes) <= 12_000
