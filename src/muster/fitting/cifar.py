"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in the forms that their authors publish.

binary   data_batch_1.bin ... test_batch.bin; train.bin, test.bin     records of label(s) and pixels
python   data_batch_1 ... test_batch; train, test                     pickles, read by `pickled`

Both are accepted in a folder or in the published tar.gz. A record's pixels are 32 x 32 of red, then
green, then blue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.fitting.archive import read_files
from muster.fitting.data import Dataset
from muster.fitting.errors import DataError
from muster.fitting.pickled import read_pickled

Array = NDArray[Any]

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Form:
    """The file layout of one of the published forms."""

    name: str
    train: tuple[str, ...]
    test: str
    classes: int
    labels: int
    """Bytes of labels before the pixels of a record, the last of which counts; 0: a pickle."""
    names: str
    """The file of the classes' names, one per line, or their key in a pickle."""
    key: bytes = b""
    """The key of the labels in a pickle."""


_FORMS = (
    _Form(
        "cifar10",
        tuple(f"data_batch_{n}.bin" for n in range(1, 6)),
        "test_batch.bin",
        10,
        1,
        "batches.meta.txt",
    ),
    _Form("cifar100", ("train.bin",), "test.bin", 100, 2, "fine_label_names.txt"),
    _Form(
        "cifar10",
        tuple(f"data_batch_{n}" for n in range(1, 6)),
        "test_batch",
        10,
        0,
        "label_names",
        b"labels",
    ),
    _Form("cifar100", ("train",), "test", 100, 0, "fine_label_names", b"fine_labels"),
)


def is_cifar(path: Path) -> bool:
    """Whether a folder looks like CIFAR, complete or not."""
    names = {each.name for each in path.iterdir() if each.is_file()}
    return any(names & {*form.train, form.test} for form in _FORMS)


def load_cifar(path: Path) -> Dataset:
    """Read CIFAR from a folder or archive.

    Raises:
        DataError: A file is missing or damaged.
    """
    files = read_files(path)
    form = max(_FORMS, key=lambda each: len({*each.train, each.test} & files.keys()))
    absent = [name for name in (*form.train, form.test) if name not in files]
    if len(absent) == len(form.train) + 1:
        raise DataError(
            f"{path} is not CIFAR",
            "it has neither data_batch_1.bin nor train.bin, nor their Python forms",
            "the archive as it was published, such as cifar-10-binary.tar.gz",
        )
    if absent:
        raise _damaged(path, f"{', '.join(absent)} does not exist")
    parts = {name: _records(path, name, files[name], form) for name in (*form.train, form.test)}
    tested = len(parts[form.test][1])
    trained = [len(parts[name][1]) for name in form.train]
    if trained != [5 * tested // len(trained)] * len(trained):
        raise _damaged(path, f"its files have {trained} training and {tested} test images")
    x_train, y_train = _joined([parts[name] for name in form.train])
    x_test, y_test = parts[form.test]
    return Dataset(form.name, x_train, y_train, x_test, y_test, _names(files, form))


def _records(path: Path, name: str, data: bytes, form: _Form) -> tuple[Array, Array]:
    """Return images and labels of one file."""
    if not form.labels:
        return _pickled_records(path, name, data, form)
    size = form.labels + _PIXELS
    if not data or len(data) % size:
        raise _damaged(path, f"{name} has {len(data)} bytes, no multiple of {size}")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return _images(records[:, form.labels :]), records[:, form.labels - 1].astype(np.int64)


def _pickled_records(path: Path, name: str, data: bytes, form: _Form) -> tuple[Array, Array]:
    try:
        content = read_pickled(data)
    except ValueError as error:
        raise _unread(path, name, str(error)) from error
    pixels, labels = _of(content, b"data"), _of(content, form.key)
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.ndim != 2
        or pixels.shape[1] != _PIXELS
        or not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(isinstance(label, int) for label in labels)
    ):
        raise _unread(path, name, "it does not hold pixels and a label for each image")
    return _images(pixels), np.array(labels, np.int64)


def _of(content: Any, key: bytes) -> Any:
    """Return a value of a dict whose keys are bytes or strings."""
    if not isinstance(content, dict):
        return None
    return content.get(key, content.get(key.decode()))


def _images(pixels: Array) -> Array:
    """Convert [N, 3072], channel by channel, to [N, 32, 32, 3]."""
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _joined(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    images, labels = zip(*parts, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def _names(files: dict[str, bytes], form: _Form) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers if the archive has no names."""
    found: list[Any] = []
    if form.labels:
        found = files.get(form.names, b"").decode("utf-8", "replace").split()
    else:
        meta = files.get("batches.meta" if form.classes == 10 else "meta", b"")
        try:
            found = list(_of(read_pickled(meta), form.names.encode()) or [])
        except (ValueError, TypeError):
            found = []
    texts = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in found]
    whole = len(texts) == form.classes and all(isinstance(each, str) for each in texts)
    return tuple(texts) if whole else tuple(map(str, range(form.classes)))


def _damaged(path: Path, what: str) -> DataError:
    return DataError(
        f"{path} is damaged: {what}",
        "a file is incomplete or missing, or was changed in transit",
        "download it again, and compare its size and checksum with those that its authors publish",
    )


def _unread(path: Path, name: str, why: str) -> DataError:
    return DataError(
        f"{name} of {path} is not read",
        f"it is a pickle, of which muster reads images and labels only: {why}",
        "the binary version of CIFAR, which its authors publish beside this one",
    )
