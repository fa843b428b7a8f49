"""The widgets' engine in a page, called from Python with tensors."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

import numpy as np
import torch
from playwright.sync_api import Page
from torch import Tensor

from course_utils.widgets.base import FOLDER, files

HELPERS = """
  const unpack = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const floats = (text) => new Float32Array(unpack(text).buffer);
  const pack = (...arrays) => new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(",")[1]);
    reader.readAsDataURL(new Blob(arrays, { type: "application/octet-stream" }));
  });
"""
PREPARE = f"""async ([link, files]) => {{
  const linkModule = (0, eval)(`(${{link}})`);
  {HELPERS}
  Object.assign(globalThis, {{ unpack, floats, pack, models: {{}} }});
  globalThis.vit = await linkModule("vit.js", files);
  globalThis.gemm = (await linkModule("gemm.wasm", files)).default;
}}"""
LOAD = """async ([name, weights, options]) => {
  const model = await vit.loadViT(unpack(weights), options);
  models[name] = model;
  const { config, grid, simd } = model;
  return { config, grid, simd };
}"""
RUN = """([name, images, count, options]) => {
  const pixels = floats(images);
  const size = pixels.length / count;
  const results = [];
  for (let i = 0; i < count; i += 1) {
    const image = pixels.subarray(i * size, (i + 1) * size);
    const { logits, probabilities, attention } = models[name].forward(image, options);
    results.push(logits, probabilities, ...attention);
  }
  return pack(...results);
}"""
RECORD = """async ([name, image, options]) => {
  const { record } = models[name].forward(floats(image), { ...options, record: true });
  const entries = Object.entries(record).map(async ([key, { shape, data }]) =>
    [key, shape, await pack(data)]);
  return Promise.all(entries);
}"""


def pack(x: Tensor) -> str:
    """Write numbers as float32 in base64."""
    return base64.b64encode(x.detach().float().contiguous().numpy().tobytes()).decode()


def unpack(text: str, *shape: int) -> Tensor:
    """Read what `pack` wrote, in either language."""
    numbers = np.frombuffer(base64.b64decode(text), np.float32).copy()
    return torch.from_numpy(numbers).reshape(shape)


class Result(NamedTuple):
    logits: Tensor  # (B, K)
    probabilities: Tensor  # (B, K)
    attention: Tensor  # (B, depth, A, T, T)


class Engine:
    """The engine in a page of its own, which has no kernel and no site."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.loaded: dict[str, dict[str, Any]] = {}
        link = (FOLDER / "link.js").read_text("utf-8")
        link = link[link.index("function linkModule") :]
        parts = {name: file._asdict() for name, file in files("vit.js").items()}
        page.evaluate(PREPARE, [link, parts])

    def load(self, name: str, weights: bytes, **options: bool) -> dict[str, Any]:
        """Load a model under a name; its config, grid and whether SIMD is used."""
        text = base64.b64encode(weights).decode()
        about = self.page.evaluate(LOAD, [name, text, options])
        self.loaded[name] = about
        return about

    def run(self, name: str, images: Tensor, **options: Any) -> Result:
        """Run images (B, C, H, W) one by one."""
        config, B = self.loaded[name]["config"], len(images)
        K, A = config["num_classes"], config["num_heads"]
        T = self.loaded[name]["grid"]["tokens"]
        text = self.page.evaluate(RUN, [name, pack(images), B, options])
        sizes = [K, K, config["depth"] * A * T * T]
        logits, probabilities, attention = unpack(text, B, sum(sizes)).split(sizes, 1)
        shape = (B, config["depth"], A, T, T)
        return Result(logits, probabilities, attention.reshape(shape))

    def record(self, name: str, image: Tensor, **options: Any) -> dict[str, Tensor]:
        """Every intermediate of one image (C, H, W), in the order kept."""
        entries = self.page.evaluate(RECORD, [name, pack(image), options])
        return {key: unpack(text, *shape) for key, shape, text in entries}

    def head(self, name: str, vector: Tensor) -> Tensor:
        """Read a vector (D,) of the residual stream: logits (K,)."""
        script = "([name, vector]) => pack(models[name].head(floats(vector)))"
        return unpack(self.page.evaluate(script, [name, pack(vector)]), -1)

    def error(self, script: str, *arguments: Any) -> str:
        """Run an async function's body that must fail; the error's kind and words."""
        script = f"""async (given) => {{
          try {{ {script} }}
          catch ({{ name, message }}) {{ return `${{name}}: ${{message}}`; }}
          return "no error";
        }}"""
        return self.page.evaluate(script, list(arguments))

    def load_error(self, weights: bytes) -> str:
        """The error of a file that cannot be loaded."""
        text = base64.b64encode(weights).decode()
        return self.error("await vit.loadViT(unpack(given[0]));", text)


def safetensors(header: Any, data: bytes = b"") -> bytes:
    """A file by hand: a header, JSON or raw, and the bytes that follow it."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data
