"""`manifest.json`: the files of a checkpoint, and all of its state except the arrays.

{ "format": "muster checkpoint", "format_version": 1, "muster_version": ..., "step": ...,
  "counters": {...}, "meta": {algo, env_id, config, ...}, "state": {part: tree without arrays},
  "files": {"policy.safetensors": {"size": ..., "sha256": ...}}, "sha256_of_the_above": ... }
"""

import re
from dataclasses import dataclass
from typing import Any

from muster.run.sealed import SEAL, check_seal, check_size, parse, seal

FILE_NAME = "manifest.json"
FORMAT = "muster checkpoint"
FORMAT_VERSION = 1
MAX_SIZE = 16 << 20
MAX_VALUES = 500_000
"""A text of `MAX_SIZE` could still expand to gigabytes of small objects; this bounds them."""

MAX_PARTS = 256
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_KINDS = {
    "format": str,
    "format_version": int,
    "muster_version": str,
    "step": int,
    "counters": dict,
    "meta": dict,
    "state": dict,
    "files": dict,
    SEAL: str,
}


@dataclass(frozen=True)
class FileEntry:
    """The manifest's entry for a file: `size` in bytes, and `sha256` in hex."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest; trees are in the form that `tree.split` returns."""

    step: int
    muster_version: str
    counters: dict[str, Any]
    meta: dict[str, Any]
    state: dict[str, Any]
    files: dict[str, FileEntry]


class OtherFormatError(ValueError):
    """The manifest has another format version."""


def part_file(part: object) -> str | None:
    """Return the name of the file with a part's arrays; None if the part's name is invalid."""
    if isinstance(part, str) and _PART.fullmatch(part):
        return f"{part}.safetensors"
    return None


def to_bytes(manifest: Manifest) -> bytes:
    """Return the text of a manifest.

    Raises:
        ValueError: It is too large to be read again.
    """
    files = {
        name: {"size": entry.size, "sha256": entry.sha256} for name, entry in manifest.files.items()
    }
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "muster_version": manifest.muster_version,
        "step": manifest.step,
        "counters": manifest.counters,
        "meta": manifest.meta,
        "state": manifest.state,
        "files": files,
    }
    data = seal(body)
    check_size(data, MAX_SIZE, MAX_VALUES)
    return data


def from_bytes(data: bytes) -> Manifest:
    """Read a manifest that may be damaged or malicious.

    Raises:
        OtherFormatError: Its version differs from the one that this program writes.
        ValueError: It is not a manifest, or was changed.
    """
    body = parse(data, MAX_SIZE, MAX_VALUES)
    if body.get("format") != FORMAT:
        raise ValueError("is not the manifest of a muster checkpoint")
    # Before the seal: another version may use another seal.
    version = body.get("format_version")
    if type(version) is not int:
        raise ValueError("has no format version")
    if version != FORMAT_VERSION:
        raise OtherFormatError(
            f"has format version {version}, written by muster {body.get('muster_version')!s:.40}; "
            f"this muster reads format version {FORMAT_VERSION}"
        )
    check_seal(data)
    if body.keys() != _KINDS.keys():
        raise ValueError("has keys that a manifest does not have")
    for key, kind in _KINDS.items():
        if type(body[key]) is not kind:
            raise ValueError(f"has a {key!r} that is not of type {kind.__name__}")
    if body["step"] < 0:
        raise ValueError("has a step below 0")
    return Manifest(
        step=body["step"],
        muster_version=body["muster_version"],
        counters=body["counters"],
        meta=body["meta"],
        state=body["state"],
        files=_files(body["files"], body["state"]),
    )


def _files(listed: dict[str, Any], state: dict[str, Any]) -> dict[str, FileEntry]:
    if len(state) > MAX_PARTS:
        raise ValueError(f"has more than {MAX_PARTS} parts")
    names = {part_file(part) for part in state}
    if None in names:
        raise ValueError("has a part with an invalid name")
    entries = {}
    for name, entry in listed.items():
        # File names derive from the parts only: no directory, no `..`, no other suffix.
        if name not in names:
            raise ValueError(f"lists the file {name!r:.100}, which belongs to none of its parts")
        if type(entry) is not dict or entry.keys() != {"size", "sha256"}:
            raise ValueError(f"says of {name!r} something else than size and sha256")
        size, sha256 = entry["size"], entry["sha256"]
        if type(size) is not int or type(sha256) is not str or size < 0:
            raise ValueError(f"has no valid size and sha256 of {name!r}")
        entries[name] = FileEntry(size, sha256)
    return entries
