"""Pin the whole environment: write requirements.txt and tests/requirements.txt.

The ranges come from pyproject.toml: its dependencies and the extra `book` give
requirements.txt, the extra `test` gives what tests/requirements.txt adds. The pins hold
for every supported Python and system at once; lines that only some of them need carry a
marker. Needs `uv`; run it as `make lock`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# torch itself names the CUDA libraries that its build for this machine needs. A CPU
# build needs none, so pinning them here would download gigabytes for nothing.
BROUGHT_BY_TORCH = re.compile(r"(cuda-|nvidia-|triton\b)")

BOOK_HEADER = """\
# The environment that builds the book, runs the chapters and serves Binder.
# Written by `make lock` from the ranges in pyproject.toml: change them there.
"""
TEST_HEADER = """\
# What the tests need beyond the book's environment, the peers that the model is
# compared with among it. Written by `make lock`, see pyproject.toml.
-r ../requirements.txt
"""


def resolve(*extras: str, constraints: Path | None = None) -> list[str]:
    """Return one pinned line a package for the course with the given extras."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml"]
    command += ["--universal", "--python-version=3.10", "--upgrade", "--quiet"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url"]
    command += ["--no-emit-find-links"]
    command += [f"--extra={extra}" for extra in extras]
    if constraints is not None:
        command.append(f"--constraint={constraints}")
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("The ranges in pyproject.toml could not be resolved: see above.")
    lines = done.stdout.splitlines()
    return [line for line in lines if line and not BROUGHT_BY_TORCH.match(line)]


def main() -> None:
    """Write both files."""
    book = resolve("book")
    requirements = ROOT / "requirements.txt"
    requirements.write_text(
        BOOK_HEADER + "\n".join(book) + "\n\n# The course's own package.\n-e .\n",
        encoding="utf-8",
    )
    pins = requirements.with_suffix(".pins")
    pins.write_text("\n".join(book) + "\n", encoding="utf-8")
    try:
        tests = resolve("book", "test", constraints=pins)
    finally:
        pins.unlink()
    added = [line for line in tests if line not in book]
    (ROOT / "tests" / "requirements.txt").write_text(
        TEST_HEADER + "\n".join(added) + "\n", encoding="utf-8"
    )
    print(f"requirements.txt: {len(book)} pins, tests/requirements.txt: {len(added)}")


if __name__ == "__main__":
    main()
