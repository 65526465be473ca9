"""A data set in an `.npz` file: x_train, y_train, x_test, y_test; read without pickle."""

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from muster.container import free_memory
from muster.fitting.data import Dataset
from muster.fitting.errors import DataError

Array = NDArray[Any]

_NAMES = ("x_train", "y_train", "x_test", "y_test")
_MOST_HEADER = 10_000


def load_npz(path: Path) -> Dataset:
    """Read four arrays; their sizes are checked before memory is allocated.

    Raises:
        DataError: An array is missing or damaged, or holds neither samples nor labels.
    """
    try:
        with zipfile.ZipFile(path) as file:
            found = {name: _array(file, name, path) for name in _NAMES}
    except (zipfile.BadZipFile, EOFError, zlib.error, ValueError, NotImplementedError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} is damaged: {error}",
            "the file is incomplete, was changed in transit, or is not an .npz file",
            "numpy.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)",
        ) from error
    labels = [_labels(found[name], name, path) for name in ("y_train", "y_test")]
    samples = [_samples(found[name], name, path) for name in ("x_train", "x_test")]
    classes = tuple(map(str, range(int(max(each.max(initial=0) for each in labels)) + 1)))
    return Dataset(path.stem, samples[0], labels[0], samples[1], labels[1], classes)


def _array(file: zipfile.ZipFile, name: str, path: Path) -> Array:
    try:
        entry = file.getinfo(f"{name}.npy")
    except KeyError:
        raise DataError(
            f"{path} has no array {name}",
            f"it has {', '.join(file.namelist())[:80] or 'none'}",
            "numpy.savez(path, x_train=..., y_train=..., x_test=..., y_test=...)",
        ) from None
    with file.open(entry) as opened:
        shape, is_fortran, dtype = _header(opened)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or dtype.kind not in "uif" or size != entry.file_size - opened.tell():
            raise ValueError(f"{name} says that it is {dtype} of shape {shape}, which it is not")
        limit = free_memory()
        if limit is not None and size > limit:
            raise DataError(
                f"{name} of {path} takes {size:,} bytes",
                f"this process can allocate {limit:,} bytes of memory",
                "a machine with more memory, or fewer samples",
            )
        data = opened.read(size)
    if len(data) != size:
        raise ValueError(f"{name} is cut off")
    flat = np.frombuffer(data, dtype)
    return flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)


def _header(opened: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(opened)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"it is of version {version} of NumPy's format")
    return read(opened, max_header_size=_MOST_HEADER)


def _labels(array: Array, name: str, path: Path) -> Array:
    if array.ndim != 1 or array.dtype.kind not in "ui":
        raise DataError(
            f"{name} of {path} is {array.dtype} of shape {array.shape}",
            "labels are whole numbers, one for each sample, counted from 0",
            f"{name}.astype(numpy.int64).reshape(-1)",
        )
    return array.astype(np.int64)


def _samples(array: Array, name: str, path: Path) -> Array:
    """Return images as [N, H, W, C], and vectors as float32."""
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        if array.ndim == 3:
            return np.ascontiguousarray(array[..., None])
        first = array.shape[1] < array.shape[3]  # channels are the shorter of the two ends
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1) if first else array)
    if array.dtype.kind == "f" and array.ndim == 2 and np.isfinite(array).all():
        return array.astype(np.float32)
    raise DataError(
        f"{name} of {path} is {array.dtype} of shape {array.shape}",
        "samples are uint8 images [N, H, W], [N, H, W, C] or [N, C, H, W], or finite floats "
        "[N, numbers]",
        f"{name}.astype(numpy.uint8), if they are images",
    )
