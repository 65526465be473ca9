"""Reads a checkpoint directory that may be damaged or malicious.

    opened (the directory is locked while it is read)
      -> manifest: size, JSON, version, its own sum
      -> files: exactly those of the manifest, regular files, size, sha256
      -> arrays, parsed from the same bytes whose sum was checked

`verify` stops before the arrays and holds no file in memory. This module writes nothing.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from muster.run import manifest as manifests
from muster.run import tensors
from muster.run.errors import CheckpointError, NonFiniteStateError
from muster.run.files import damaged, open_regular
from muster.run.lock import shared
from muster.run.manifest import FILE_NAME, Manifest
from muster.run.tree import Tree, join

NAME = re.compile(r"step-(0|[1-9][0-9]{0,18})")
"""The name of a complete checkpoint."""

POLICY = "policy"
"""The part whose numbers all have to be finite."""

_CHUNK = 8 << 20
_ATTEMPTS = 100

Print = tuple[tuple[str, int, int, int, int], ...]


@dataclass(frozen=True)
class Checkpoint:
    """A saved state: every part, and its metadata.

    Attributes:
        path: The directory it was read from.
        step: The env_step it was saved at.
        parts: Part name to state tree, as passed to `CheckpointStore.save`.
        counters: env_step, train_iter, ...
        meta: algo, env_id, config, ...
    """

    path: Path
    step: int
    parts: dict[str, Tree]
    counters: dict[str, Any]
    meta: dict[str, Any]


def verify(path: Path) -> Manifest:
    """Check a whole checkpoint; of the array files only size and sha256, not the content.

    Raises:
        CheckpointError: A check failed; the message names the file.
    """
    with opened(path) as directory:
        manifest = _manifest(directory, path)
        for name, entry in manifest.files.items():
            digest = hashlib.sha256()
            with _sized(directory, path / name, entry.size) as fd:
                while chunk := os.read(fd, _CHUNK):
                    digest.update(chunk)
            if digest.hexdigest() != entry.sha256:
                raise damaged(path / name, "does not match its sha256 in the manifest")
    return manifest


def load(path: Path) -> Checkpoint:
    """Load a checkpoint. Peak memory is twice the size of its files.

    Raises:
        CheckpointError: A check failed; the message names the file.
        NonFiniteStateError: The policy holds a NaN or an infinity.
    """
    with opened(path) as directory:
        manifest = _manifest(directory, path)
        parts = {}
        for part, plain in manifest.state.items():
            name = f"{part}.safetensors"
            arrays = _arrays(directory, path / name, manifest) if name in manifest.files else {}
            if part == POLICY:
                check_finite(arrays, str(path / name))
            parts[part] = _joined(plain, arrays, path, f"the state of {part!r}")
    return Checkpoint(
        path=path,
        step=manifest.step,
        parts=parts,
        counters=_joined(manifest.counters, {}, path, "the counters"),
        meta=_joined(manifest.meta, {}, path, "the meta data"),
    )


def check_finite(arrays: dict[str, np.ndarray[Any, Any]], shown: str) -> None:
    """Raise NonFiniteStateError if any of these arrays contains NaN or infinity."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = int(array.size - np.count_nonzero(np.isfinite(array)))
            raise NonFiniteStateError(
                f"{shown}: {name!r} holds {bad} of {array.size} numbers that are NaN or infinite",
                "training diverged, and such a policy must not replace a good one",
                "the last good checkpoint, with a lower lr or a smaller max_grad_norm",
            )


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a checkpoint's directory; it is not pruned or replaced while it is read."""
    if not NAME.fullmatch(path.name):
        raise CheckpointError(
            f"{path} is not a checkpoint",
            "a complete checkpoint is a directory called step-<number>; others are unfinished",
            "the path of a directory checkpoints/step-<number>",
        )
    for _ in range(_ATTEMPTS):
        directory = _open_directory(path)
        try:
            with shared(directory):
                # Between opening and locking, a new checkpoint may have replaced this one.
                if _is_still(path, directory):
                    yield directory
                    return
        finally:
            os.close(directory)
    raise damaged(path, "is replaced faster than it can be read")


def _open_directory(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise damaged(path, "is a symbolic link") from error
        raise damaged(path, f"cannot be opened: {error.strerror}") from error


def _is_still(path: Path, directory: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        raise damaged(path, "was removed while it was being read") from None
    return os.path.samestat(there, os.fstat(directory))


def _manifest(directory: int, path: Path) -> Manifest:
    file = path / FILE_NAME
    with _sized(directory, file, None) as fd:
        data = _read(fd, manifests.MAX_SIZE + 1)
    try:
        manifest = manifests.from_bytes(data)
    except manifests.OtherFormatError as error:
        raise CheckpointError(
            f"{file} {error}",
            "it was written by another version of muster, and there is no conversion for it",
            "the muster version that wrote it",
        ) from error
    except ValueError as error:
        raise damaged(file, str(error)) from error
    if path.name != f"step-{manifest.step}":
        raise damaged(file, f"is that of step {manifest.step}, in a directory of another name")
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name != FILE_NAME and entry.name not in manifest.files:
                raise damaged(path / entry.name, "is not in the manifest")
    return manifest


def _arrays(directory: int, file: Path, manifest: Manifest) -> dict[str, np.ndarray[Any, Any]]:
    entry = manifest.files[file.name]
    with _sized(directory, file, entry.size) as fd:
        data = _read(fd, entry.size)
    # The sum first, so that no part of a damaged file is parsed.
    if len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise damaged(file, "does not match its sha256 in the manifest")
    try:
        return tensors.decode(data)
    except ValueError as error:
        raise damaged(file, str(error)) from error


def _joined(plain: Any, arrays: dict[str, Any], path: Path, what: str) -> Tree:
    try:
        return join(plain, arrays)
    except ValueError as error:
        raise damaged(path / FILE_NAME, f"does not fit together: {what}: {error}") from error


@contextmanager
def _sized(directory: int, file: Path, size: int | None) -> Iterator[int]:
    """Open a file; its size is checked before anything is read or memory is allocated."""
    fd = open_regular(file.name, directory, file)
    try:
        found = os.fstat(fd).st_size
        if size is not None and found != size:
            raise damaged(file, f"has {found} bytes; the manifest says {size}")
        yield fd
    except OSError as error:
        raise damaged(file, f"cannot be read: {error.strerror}") from error
    finally:
        os.close(fd)


def _read(fd: int, limit: int) -> bytes:
    # Buffered: one system call returns at most 2 GB, and this continues into the same memory.
    with open(fd, "rb", closefd=False) as file:
        return file.read(min(limit, os.fstat(fd).st_size))


def fingerprint(path: Path) -> Print:
    """Return the file system's metadata of a checkpoint's files; it changes with any of them."""
    found = []
    for entry in sorted(path.iterdir()):
        info = os.stat(entry, follow_symlinks=False)
        found.append((entry.name, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
    return tuple(found)
