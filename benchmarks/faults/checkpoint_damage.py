"""D6 to D9 and D12: checkpoints that are damaged, mixed up, incomplete or of another version.

Every trial damages the newest of two good checkpoints, loads it, and asks for three things: it is
refused, the message names the file, and the good one before it is offered. Then it is mended, and
has to load again: that is the arm without a fault.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults.scene import Tally, save_number, which

from muster.run import CheckpointError, CheckpointStore
from muster.run.sealed import SEAL, seal

PAGE = 4096


def two_checkpoints(root: Path) -> tuple[CheckpointStore, Path]:
    """Make a store with two good checkpoints; return it and the newer one."""
    place = root / "damaged"
    shutil.rmtree(place, ignore_errors=True)
    store = CheckpointStore(place)
    save_number(store, 1)
    return store, save_number(store, 2)


def files_of(store: CheckpointStore, path: Path) -> list[Path]:
    """Every file on the way to a checkpoint: its own, and the pointer to it."""
    return [*sorted(path.iterdir()), store.path / "last.json"]


@contextmanager
def changed(file: Path, data: bytes) -> Iterator[None]:
    """Let a file have another content for a while."""
    good = file.read_bytes()
    file.write_bytes(data)
    try:
        yield
    finally:
        file.write_bytes(good)


def expect_refusal(
    store: CheckpointStore, tally: Tally, named: str, offer: Path | None, **details: Any
) -> None:
    """Load the last checkpoint, which is not good."""
    try:
        store.load()
    except CheckpointError as error:
        ok = named in error.args[0] and error.offer == offer
        ok = ok and (offer is None or str(offer) in str(error))
        tally.add("refused" if ok else "refused, badly said", ok, error=str(error), **details)
    except Exception as error:
        tally.add("another exception", False, error=repr(error), **details)
    else:
        tally.add("silently accepted", False, **details)


def unharmed(store: CheckpointStore, tally: Tally) -> None:
    """The arm without a fault: after all that, the mended checkpoint loads."""
    found = which(store)
    tally.add("no fault", found == 2, found=found)


def truncate(root: Path, tally: Tally) -> None:
    """Cut every file at every page, at its beginning and before its last byte."""
    store, path = two_checkpoints(root)
    for file in files_of(store, path):
        good = file.read_bytes()
        offer = path if file.name == "last.json" else store.path / "step-10"
        for size in sorted({0, 1, 7, 8, *range(0, len(good), PAGE), len(good) - 1}):
            with changed(file, good[:size]):
                expect_refusal(store, tally, file.name, offer, file=file.name, size=size)
        with changed(file, good + b"\0"):
            expect_refusal(store, tally, file.name, offer, file=file.name, size=len(good) + 1)
    unharmed(store, tally)


def change_headers(root: Path, tally: Tally, every: int = 1) -> None:
    """Change each byte of every header, of the manifest and of the pointer."""
    store, path = two_checkpoints(root)
    rng = np.random.default_rng(0)
    for file in files_of(store, path):
        good = file.read_bytes()
        offer = path if file.name == "last.json" else store.path / "step-10"
        header = len(good)
        if file.suffix == ".safetensors":
            header = 8 + int.from_bytes(good[:8], "little")
        for position in range(0, header, every):
            bad = bytearray(good)
            bad[position] ^= int(rng.integers(1, 256))
            with changed(file, bytes(bad)):
                expect_refusal(store, tally, file.name, offer, file=file.name, at=position)
    unharmed(store, tally)


def flip_bits(root: Path, tally: Tally, flips: int, seed: int = 0) -> None:
    """Flip one bit anywhere: half of them in any byte, half of them in any file."""
    store, path = two_checkpoints(root)
    rng = np.random.default_rng(seed)
    files = files_of(store, path)
    sizes = np.array([file.stat().st_size for file in files])
    for flip in range(flips):
        chance = sizes / sizes.sum() if flip % 2 else None
        file = files[int(rng.choice(len(files), p=chance))]
        offer = path if file.name == "last.json" else store.path / "step-10"
        bad = bytearray(file.read_bytes())
        position, bit = int(rng.integers(len(bad))), int(rng.integers(8))
        bad[position] ^= 1 << bit
        with changed(file, bytes(bad)):
            expect_refusal(store, tally, file.name, offer, file=file.name, at=position, bit=bit)
    unharmed(store, tally)


def swap_files(root: Path, tally: Tally) -> None:
    """Exchange each file of one checkpoint with that of another, and whole directories."""
    store, path = two_checkpoints(root)
    other = store.path / "step-10"
    for file in sorted(path.iterdir()):
        twin = other / file.name
        with changed(file, twin.read_bytes()):
            expect_refusal(store, tally, "step-20", other, file=file.name)
    aside = store.path / "aside"
    path.rename(aside)
    shutil.copytree(other, path)
    expect_refusal(store, tally, "manifest.json", other, file="the directory")
    shutil.rmtree(path)
    aside.rename(path)
    unharmed(store, tally)


def lose_and_add_files(root: Path, tally: Tally) -> None:
    """Take each file away, and put others there."""
    store, path = two_checkpoints(root)
    other = store.path / "step-10"
    for file in sorted(path.iterdir()):
        good = file.read_bytes()
        file.unlink()
        expect_refusal(store, tally, file.name, other, missing=file.name)
        file.mkdir()
        expect_refusal(store, tally, file.name, other, directory=file.name)
        file.rmdir()
        file.write_bytes(good)
    weights = (path / "policy.safetensors").read_bytes()
    for name in ("extra.safetensors", "policy.pt", ".hidden", "policy.safetensors~", "a b"):
        (path / name).write_bytes(weights)
        expect_refusal(store, tally, name, other, extra=name)
        (path / name).unlink()
    (path / "folder").mkdir()
    expect_refusal(store, tally, "folder", other, extra="folder/")
    (path / "folder").rmdir()
    # All of it, with and without what points at it.
    shutil.move(path, store.path / "aside")
    expect_refusal(store, tally, "last.json", other, missing="the directory")
    shutil.move(store.path / "aside", path)
    last = store.path / "last.json"
    good = last.read_bytes()
    last.unlink()
    tally.add("the newest, without a pointer", which(store) == 2)
    for step in (path, other):
        (step / "manifest.json").rename(store.path / f"{step.name}.json")
    expect_refusal(store, tally, "manifest.json", None, missing="every manifest and the pointer")
    for step in (path, other):
        (store.path / f"{step.name}.json").rename(step / "manifest.json")
    last.write_bytes(good)
    unharmed(store, tally)


def resealed(manifest: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the manifest with a change and a right seal, as another program would write it."""
    body = json.loads(manifest.read_bytes())
    del body[SEAL]
    change(body)
    return seal(body)


def other_versions(root: Path, tally: Tally) -> None:
    """Load manifests of versions that are not this one's; both versions have to be named."""
    store, path = two_checkpoints(root)
    manifest = path / "manifest.json"
    other = store.path / "step-10"
    for version in (0, 2, 99, -1, 10**30):
        data = resealed(manifest, lambda body, v=version: body.update(format_version=v))  # type: ignore[misc]
        with changed(manifest, data):
            expect_refusal(store, tally, f"version {version}", other, version=version)
            expect_refusal(store, tally, "reads format version 1", other, version=version)
    for odd in ("1", None, 1.0, True, [1]):
        data = resealed(manifest, lambda body, v=odd: body.update(format_version=v))  # type: ignore[misc]
        with changed(manifest, data):
            expect_refusal(store, tally, "format version", other, version=repr(odd))
    with changed(manifest, resealed(manifest, lambda body: body.pop("format"))):
        expect_refusal(store, tally, "manifest.json", other, version="no format")
    unharmed(store, tally)
