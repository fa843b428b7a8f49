"""How long the widgets' engine takes for one digit, in headless Chromium.

    python benchmarks/engine.py

The digit ViT runs with its WebAssembly kernel and in plain JavaScript, in turns, at the
machine's own speed and four times slowed down, as on a phone. Each time is that of 50
digits, divided, for a page's clock is coarse. Printed first: how long a page that has
not run the engine needs from a file's bytes to its first answer.
"""

from __future__ import annotations

import argparse
import base64
import statistics
from collections.abc import Callable

from playwright.sync_api import Browser
from turns import print_table, spread, take_turns

from course_utils.checkpoints import digit_weights
from course_utils.data import load_digits
from tests.engine import Engine, pack
from tools.chromium import chromium

DIGITS = 50
KERNELS = {"WebAssembly": True, "plain JavaScript": False}
PREPARE = """([images, weights]) => {
  globalThis.digits = floats(images);
  globalThis.weights = unpack(weights);
}"""
FIRST = """async () => {
  const start = performance.now();
  (await vit.loadViT(weights)).forward(digits.subarray(0, 784));
  return performance.now() - start;
}"""
PASSES = """(name) => {
  for (let i = 0; i < digits.length; i += 784) {
    models[name].forward(digits.subarray(i, i + 784));
  }
}"""


def fresh_engine(browser: Browser) -> Engine:
    """Open a page that has digits and weights, and has not run the engine."""
    engine = Engine(browser.new_page())
    images = load_digits()[1].images[:DIGITS]
    weights = base64.b64encode(digit_weights()).decode()
    engine.page.evaluate(PREPARE, [pack(images), weights])
    return engine


def first_answer(browser: Browser) -> float:
    """Measure, in ms, a page's way from bytes to its first answer."""
    page = fresh_engine(browser).page
    try:
        return page.evaluate(FIRST)
    finally:
        page.close()


def passes(engine: Engine) -> dict[str, Callable[[], object]]:
    """Make a function of each kernel that runs all digits, one by one."""

    def run(name: str) -> Callable[[], object]:
        return lambda: engine.page.evaluate(PASSES, name)

    for name, simd in KERNELS.items():
        engine.load(name, digit_weights(), simd=simd)
    return {name: run(name) for name in KERNELS}


def main() -> None:
    """Measure the first answer, then both kernels at both speeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with chromium() as browser:
        times = [first_answer(browser) for _ in range(rounds)]
        low, high = spread(times)
        print(f"first answer of a page: {statistics.median(times):.1f} ms", end="")
        print(f" (10-90 %: {low:.1f} - {high:.1f})")
        engine = fresh_engine(browser)
        contenders = passes(engine)
        devtools = engine.page.context.new_cdp_session(engine.page)
        for slower in (1, 4):
            devtools.send("Emulation.setCPUThrottlingRate", {"rate": slower})
            measured = take_turns(contenders, rounds)
            each = {name: [t / DIGITS for t in ts] for name, ts in measured.items()}
            print(f"\none digit, Chromium {browser.version}, {slower}x slowed down")
            print_table(each, "WebAssembly")


if __name__ == "__main__":
    main()
