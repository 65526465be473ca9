"""JSON text whose last entry is the sha256 of every byte before it.

`json.loads` reads it like any other JSON. `check_seal` compares bytes, not values, so that any
changed bit is detected: in a number, in white space, or in the sum itself.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_TAIL = '"sha256_of_the_above": "'
_END = '"\n}\n'
_TAIL_SIZE = len(_TAIL) + 64 + len(_END)
SEAL = "sha256_of_the_above"


def seal(body: Mapping[str, Any]) -> bytes:
    """Return an object as text, one line for each key, followed by its sum."""
    lines = [f"{json.dumps(key)}: {json.dumps(body[key], allow_nan=False)},\n" for key in body]
    text = ("{\n" + "".join(lines)).encode("ascii")
    return text + _tail(text)


def check_seal(data: bytes) -> None:
    """Raise ValueError unless the text ends with the sum of the rest."""
    if data[-_TAIL_SIZE:] != _tail(data[:-_TAIL_SIZE]):
        raise ValueError("does not match its own sha256")


def parse(data: bytes, max_size: int, max_values: int) -> dict[str, Any]:
    """Parse a JSON object that may be damaged or malicious; does not check the seal.

    Raises:
        ValueError: It is too large, not JSON, not an object, or has a duplicate key.
    """
    check_size(data, max_size, max_values)
    try:
        body = json.loads(data, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not readable as JSON: {error}") from error
    if type(body) is not dict:
        raise ValueError("is not a JSON object")
    return body


def check_size(data: bytes, max_size: int, max_values: int) -> None:
    """Raise ValueError if a text is too long, or would become too many objects."""
    if len(data) > max_size:
        raise ValueError(f"has {len(data)} bytes, more than the limit of {max_size}")
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > max_values:
        raise ValueError(f"has some {values} values, more than the limit of {max_values}")


def _tail(text: bytes) -> bytes:
    return f"{_TAIL}{hashlib.sha256(text).hexdigest()}{_END}".encode("ascii")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key appears twice")
    return keys


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
