"""Arrays in a safetensors file, without torch and without a second copy in memory.

The format is eight bytes of header length, a JSON header with the type, shape and offsets of each
array, and their bytes. Writing streams one array after the other. Reading relies on the safetensors
library to check offsets and sizes, after checks that the library does not make: a small header, no
duplicate name, only the types that muster writes.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from muster.run.errors import CheckpointError
from muster.run.files import Buffer
from muster.run.tree import ARRAY_TYPES

MAX_HEADER = 1 << 20
"""Maximum header size in bytes, for writing and reading: some ten thousand arrays."""

_NAME_OF = {dtype: name for name, dtype in ARRAY_TYPES.items()}


def encode(arrays: dict[str, np.ndarray[Any, Any]], shown: str) -> Iterator[Buffer]:
    """Return the content of a safetensors file, in pieces.

    Args:
        arrays: Native arrays of the types in `ARRAY_TYPES`.
        shown: The owner of the arrays, for the error message.

    Raises:
        CheckpointError: The arrays need too large a header. Raised before the first piece.
    """
    header: dict[str, object] = {}
    # Largest items first: every array then starts at a multiple of its item size.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    end = 0
    for name in names:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAME_OF[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise CheckpointError(
            f"{shown} has {len(arrays)} arrays, whose names and shapes take {len(text)} bytes",
            f"{MAX_HEADER} bytes are the limit, so that a damaged file cannot fill the memory",
            "stack arrays of one shape into one array in state_dict()",
        )
    return _pieces(struct.pack("<Q", len(text)) + text, [arrays[name] for name in names])


def _pieces(head: bytes, arrays: list[np.ndarray[Any, Any]]) -> Iterator[Buffer]:
    yield head
    for array in arrays:
        if array.size:
            # Not ascontiguousarray, which adds a dimension to 0-d arrays; ravel copies only arrays
            # that are not contiguous.
            yield array.ravel(order="C").view(np.uint8).data


def decode(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Read the content of a safetensors file into separate, writable arrays.

    Raises:
        ValueError: It is not a safetensors file of muster's kind; the message says why.
    """
    _check_header(data)
    try:
        found = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(f"is not a valid safetensors file: {error}") from error
    arrays = {}
    for name, entry in found:
        dtype = ARRAY_TYPES.get(entry["dtype"])
        if dtype is None:
            raise ValueError(f"holds {name!r} of type {entry['dtype']}, which muster does not use")
        flat = np.frombuffer(entry["data"], dtype)
        if dtype == np.bool_ and flat.size and flat.view(np.uint8).max() > 1:
            raise ValueError(f"holds {name!r} of type BOOL with bytes that are neither 0 nor 1")
        try:
            arrays[name] = flat.reshape(entry["shape"])
        except ValueError as error:
            raise ValueError(f"holds {name!r} of an impossible shape: {error}") from error
    return arrays


def _check_header(data: bytes) -> None:
    if len(data) < 8:
        raise ValueError("is too short for a safetensors file")
    (length,) = struct.unpack_from("<Q", data)
    if length > MAX_HEADER:
        raise ValueError(f"claims a header of {length} bytes, more than the limit of {MAX_HEADER}")
    if 8 + length > len(data):
        raise ValueError(f"claims a header of {length} bytes in a file of {len(data)}")
    try:
        json.loads(data[8 : 8 + length], object_pairs_hook=_no_name_twice)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has a header that cannot be read: {error}") from error


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name appears twice")
    return names
