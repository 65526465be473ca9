"""D10: checkpoints that were made to do harm. Their sums are right: an enemy can compute them.

    python -m benchmarks.faults.checkpoint_malice DIRECTORY     loads one and says what it took

Each is loaded in a process of its own. It has to be refused, no canary may appear, and the memory
has to stay below twice the size of its files.
"""

import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults.checkpoint_damage import resealed
from benchmarks.faults.scene import META, Tally, equal, save_number

from muster.run import CheckpointError, CheckpointStore
from muster.run.sealed import seal

ROOT = Path(__file__).parents[2]
TIMEOUT = 120.0
SLACK = 24 << 20
"""Bytes that loading may take beyond twice the files: parsed JSON within its limits, and Python."""

MALICIOUS = Path("checkpoints/step-20")


class Canary:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def tensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a safetensors file with any header, which may claim any length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    """Return what a header says of one array."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def forge(
    place: Path, policy: bytes, tree: object = None, listed: dict[str, bytes] | None = None
) -> None:
    """Write a checkpoint with a right manifest around any content.

    Args:
        place: The run directory.
        policy: The content of `policy.safetensors`.
        tree: The state of the part, as the manifest has it.
        listed: Further files, which are in the manifest, too.
    """
    path = place / MALICIOUS
    path.mkdir()
    files = {"policy.safetensors": policy, **(listed or {})}
    for name, data in files.items():
        (path / name).write_bytes(data)
    manifest(path, {"policy": {"w": {"$array": "w"}} if tree is None else tree}, files)


def manifest(path: Path, state: object, files: dict[str, bytes]) -> None:
    """Write a sealed manifest."""
    body = {
        "format": "muster checkpoint",
        "format_version": 1,
        "muster_version": "0.1.0",
        "step": 20,
        "counters": {},
        "meta": {},
        "state": state,
        "files": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        },
    }
    (path / "manifest.json").write_bytes(seal(body))


GOOD = tensors({"w": entry([2], 0, 8)}, b"\0" * 8)
SUFFIXES = ("pkl", "pickle", "pt", "pth", "bin", "ckpt", "npy", "npz", "json", "yaml")
NAMES = ("../evil.safetensors", "/tmp/evil.safetensors", "a/b.safetensors", "..", "x\0y")
Case = Callable[[Path], None]


def cases(canary: Path) -> dict[str, Case]:
    """Return what makes each malicious checkpoint, by its name."""
    payload = pickle.dumps(Canary(canary))
    found: dict[str, Case] = {}
    for suffix in SUFFIXES:
        file = f"policy.{suffix}"
        found[f"pickle as a listed .{suffix}"] = partial(forge, policy=GOOD, listed={file: payload})
        found[f"pickle as an extra .{suffix}"] = partial(_with_extra, name=file, data=payload)
    for name, policy in contents(payload, canary).items():
        found[name] = partial(forge, policy=policy)
    for name, make in big_contents().items():
        found[name] = partial(_with_content, make=make)
    for name in NAMES:
        found[f"a part without arrays called {name!r}"] = partial(_with_names, part=name)
        found[f"a file called {name!r}"] = partial(_with_names, part="policy", file=name)
        found[f"a part called {name!r}"] = partial(
            _with_names, part=name, file=f"{name}.safetensors"
        )
    for name, tree in trees().items():
        found[name] = partial(forge, policy=GOOD, tree=tree)
    for name, text in manifests(payload).items():
        found[name] = partial(_with_manifest, make=text)
    found["a link to a file"] = _linked_file
    found["a link to a directory"] = _linked_directory
    found["a named pipe"] = _named_pipe
    return found


def contents(payload: bytes, canary: Path) -> dict[str, bytes]:
    """Return what a `policy.safetensors` may hold instead of a policy."""
    array, huge, bomb = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(array, np.array([Canary(canary)], dtype=object), allow_pickle=True)
    shape = {"descr": "<f8", "fortran_order": False, "shape": (2**40,)}
    np.lib.format.write_array_header_1_0(huge, shape)
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", b"\0" * (8 << 20))
    one = b'"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    eight, twelve = b"\0" * 8, b"\0" * 12
    return {
        "pickle as .safetensors": payload,
        "object array as .safetensors": array.getvalue(),
        "npy of 8 TB in 128 bytes as .safetensors": huge.getvalue(),
        "zip bomb as .safetensors": bomb.getvalue(),
        "an empty file": b"",
        "header that claims 100 MB": tensors({"w": entry([2], 0, 8)}, eight, 10**8),
        "header that claims 2**64 - 1": tensors({}, b"", 2**64 - 1),
        "header nested deeply": tensors(b'{"w":' + b"[" * 10**5 + b"]" * 10**5 + b"}"),
        "overlapping arrays": tensors({"w": entry([2], 0, 8), "v": entry([2], 4, 12)}, twelve),
        "the same bytes twice": tensors({"w": entry([2], 0, 8), "v": entry([2], 0, 8)}, eight),
        "a hole between arrays": tensors({"w": entry([1], 0, 4), "v": entry([1], 8, 12)}, twelve),
        "bytes after the arrays": tensors({"w": entry([1], 0, 4)}, twelve),
        "an array beyond the end": tensors({"w": entry([100], 0, 400)}, eight),
        "an array that ends before it begins": tensors({"w": entry([2], 8, 0)}, eight),
        "a shape of another size": tensors({"w": entry([3], 0, 8)}, eight),
        "a shape that overflows": tensors({"w": entry([2**62, 8], 0, 8)}, eight),
        "a shape below zero": tensors({"w": entry([-2], 0, 8)}, eight),
        "300 dimensions": tensors({"w": entry([0] * 300, 0, 0)}),
        "a type that is not used": tensors({"w": entry([4], 0, 8, "BF16")}, eight),
        "a type that is none": tensors({"w": entry([1], 0, 8, "OBJECT")}, eight),
        "a bool of 7": tensors({"w": entry([1], 0, 1, "BOOL")}, b"\x07"),
        "a name twice": tensors(b"{" + one + b"," + one.replace(b"F32", b"I32") + b"}", b"\0" * 4),
        "an array that nobody mentions": tensors(
            {"w": entry([1], 0, 4), "v": entry([1], 4, 8)}, eight
        ),
        "another array than is mentioned": tensors({"v": entry([2], 0, 8)}, eight),
        "NaN in the policy": tensors({"w": entry([1], 0, 4)}, struct.pack("<f", float("nan"))),
    }


def big_contents() -> dict[str, Callable[[], bytes]]:
    """Return more of them, to be made one at a time."""
    empty = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return {
        "big header: 100 MB": lambda: tensors(b"{" + b" " * (10**8 - 2) + b"}"),
        "big header: 10**6 keys": lambda: tensors(
            b"{" + b",".join(empty % number for number in range(10**6)) + b"}"
        ),
    }


def trees() -> dict[str, object]:
    """Return states that `tree.split` would not make."""
    nested: dict[str, Any] = {"w": {"$array": "w"}}
    for _ in range(500):
        nested = {"a": nested}
    array = {"$array": "w"}
    return {
        "a tree nested deeply": nested,
        "an unknown word": {"w": {"$object": "os.system"}},
        "two words in one": {"w": {"$array": "w", "$float": "nan"}},
        "an array mentioned twice": {"w": array, "v": array},
        "an int that is none": {"w": array, "v": {"$int": "__import__('os')"}},
        "an int in another form": {"w": array, "v": {"$int": "0x1_f"}},
        "a state that is no object": [],
    }


def manifests(payload: bytes) -> dict[str, Callable[[], bytes]]:
    """Return what makes a `manifest.json` that is none."""
    keys = partial(map, lambda number: b'"%d":0' % number, range(10**6))
    return {
        "pickle as the manifest": lambda: payload,
        "big manifest: 100 MB": lambda: b'{"format": "' + b"x" * 10**8 + b'"}',
        "big manifest: 10**6 keys": lambda: b"{" + b",".join(keys()) + b"}",
        "a manifest nested deeply": lambda: b"[" * 10**5 + b"]" * 10**5,
        "a manifest that is a list": lambda: b"[]",
        "a manifest with a number of 10**6 digits": lambda: b'{"a": ' + b"1" * 10**6 + b"}",
        "a manifest that is no text": lambda: b"\xff\xfe\x00",
    }


def _with_extra(place: Path, name: str, data: bytes) -> None:
    forge(place, GOOD)
    (place / MALICIOUS / name).write_bytes(data)


def _with_names(place: Path, part: str, file: str | None = None) -> None:
    (place / MALICIOUS).mkdir()
    manifest(place / MALICIOUS, {part: {}}, {} if file is None else {file: GOOD})


def _with_content(place: Path, make: Callable[[], bytes]) -> None:
    forge(place, make())


def _with_manifest(place: Path, make: Callable[[], bytes]) -> None:
    (place / MALICIOUS).mkdir()
    (place / MALICIOUS / "manifest.json").write_bytes(make())


def _linked_file(place: Path) -> None:
    forge(place, GOOD)
    file = place / MALICIOUS / "policy.safetensors"
    file.rename(place / "outside")
    file.symlink_to(place / "outside")


def _linked_directory(place: Path) -> None:
    forge(place, GOOD)
    (place / MALICIOUS).rename(place / "step-20")
    (place / MALICIOUS).symlink_to(place / "step-20")


def _named_pipe(place: Path) -> None:
    forge(place, GOOD)
    (place / MALICIOUS / "policy.safetensors").unlink()
    os.mkfifo(place / MALICIOUS / "policy.safetensors")


def load_in_child(path: Path) -> dict[str, Any]:
    """Load a checkpoint in another process; return what it says of it."""
    command = [sys.executable, "-m", __spec__.name, str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=TIMEOUT, check=False
    )
    if done.returncode != 0:
        return {"outcome": "died", "error": done.stderr[-2000:], "grown": 0}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def load_here(path: Path) -> dict[str, Any]:
    """Load a checkpoint in this process, without a look at its memory."""
    try:
        CheckpointStore(path.parent).load(path)
    except CheckpointError as error:
        return {
            "outcome": "refused",
            "error": str(error)[:500],
            "offer": str(error.offer),
            "grown": 0,
        }
    return {"outcome": "accepted", "grown": 0}


def try_all(
    root: Path,
    tally: Tally,
    only: Callable[[str], bool] = lambda name: True,
    load: Callable[[Path], dict[str, Any]] = load_in_child,
) -> None:
    """Make each malicious checkpoint, load it, and look for the canary."""
    canary, place = root / "canary", root / "malice"
    pickle.loads(pickle.dumps(Canary(canary)))
    tally.add("no fault: the canary sings", canary.exists())
    canary.rmdir()
    save_number(CheckpointStore(place / "checkpoints"), 1)
    forge(place, GOOD)
    tally.add("no fault: a harmless forgery", load(place / MALICIOUS)["outcome"] == "accepted")
    executions, peak = 0, 0
    for name, make in cases(canary).items():
        if not only(name):
            continue
        shutil.rmtree(place)
        save_number(CheckpointStore(place / "checkpoints"), 1)
        make(place)
        size = sum(file.lstat().st_size for file in (place / MALICIOUS).iterdir())
        found = load(place / MALICIOUS)
        ran = canary.exists()
        executions += ran
        if ran:
            canary.rmdir()
        peak = max(peak, found["grown"])
        small = found["grown"] <= 2 * size + SLACK
        offered = found.get("offer") == str(place / "checkpoints/step-10")
        ok = found["outcome"] == "refused" and small and not ran and offered
        outcome = found["outcome"] if small else "too much memory"
        tally.add(outcome, ok, case=name, size=size, found=found)
    tally.figures["executions"] = executions
    tally.figures["peak_growth_mb"] = round(peak / 2**20, 1)


def fuzz_headers(root: Path, tally: Tally, times: int, seed: int = 0) -> None:
    """Change headers at random and put the sums right: refused or sound, never anything else."""
    rng = np.random.default_rng(seed)
    store = CheckpointStore(root / "fuzz" / "checkpoints")
    path = save_number(store, 2)
    file, text = path / "optimizer.safetensors", path / "manifest.json"
    good, manifest_text = file.read_bytes(), text.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    for _ in range(times):
        bad = bytearray(good)
        for _ in range(int(rng.integers(1, 4))):
            bad[int(rng.integers(header))] = int(rng.choice(list(b'019[]{},:"-.eFIU\0\xff')))
        file.write_bytes(bad)
        digest = hashlib.sha256(bad).hexdigest()
        text.write_bytes(
            resealed(text, lambda body, d=digest: body["files"][file.name].update(sha256=d))  # type: ignore[misc]
        )
        try:
            arrays = store.load(path).parts["optimizer"]
            # Another array of the same bytes: what the enemy could have saved as well.
            sound = isinstance(arrays["m"], np.ndarray) and arrays["m"].nbytes == 10_000
            tally.add("sound", sound)
        except CheckpointError:
            tally.add("refused", True)
        except Exception as error:
            tally.add("another exception", False, error=repr(error))
        text.write_bytes(manifest_text)
    file.write_bytes(good)


def memory_of_a_good_one(root: Path, tally: Tally, megabytes: int) -> None:
    """Load a big checkpoint that is good."""
    store = CheckpointStore(root / "big" / "checkpoints")
    replay = np.random.default_rng(0).integers(0, 256, megabytes << 20, dtype=np.uint8)
    path = store.save(10, {"replay": {"obs": replay}}, {}, META)
    found = load_in_child(path)
    ratio = found["grown"] / (megabytes << 20)
    tally.figures["big_file_mb"] = megabytes
    tally.figures["memory_over_size"] = round(ratio, 3)
    tally.add(found["outcome"], found["outcome"] == "accepted" and ratio < 2.2, found=found)
    assert equal(store.load(path).parts["replay"]["obs"], replay)
    shutil.rmtree(root / "big")


def memory_of_a_full_manifest(root: Path, tally: Tally) -> None:
    """Load a checkpoint whose manifest has nearly as many values as it may have."""
    store = CheckpointStore(root / "full" / "checkpoints")
    tree: dict[str, Any] = {f"{i}": {} for i in range(240_000)}
    found = load_in_child(store.save(20, {"policy": tree}, {}, META))
    tally.figures["fullest_manifest_growth_mb"] = round(found["grown"] / 2**20, 1)
    tally.add(found["outcome"], found["outcome"] == "accepted", found=found)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise SystemExit(f"/proc/self/status has no {name}")


def main() -> None:
    """Load one checkpoint and print what came of it."""
    path = Path(sys.argv[1])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    result = load_here(path)
    result["grown"] = max(0, _status("VmHWM") - before)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
