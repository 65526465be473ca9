"""State trees of plain values and arrays, split into a JSON part and the arrays.

    split(tree, "policy") -> (plain, arrays)     plain is JSON, with {"$array": name} for each array
    join(plain, arrays)   -> tree                the exact tree: types, dtypes, shapes, big ints

A value without a JSON form becomes an object with one key that begins with `$`:
`{"$array": "q/weight"}`, `{"$float": "nan"}`, `{"$int": "0x1f..."}` (beyond 64 bits). A user's key
that begins with `$` gets a second `$`. Any other type is rejected, with its path.
"""

import math
import re
from typing import Any, NoReturn

import numpy as np

from muster.run.errors import CheckpointError

Tree = dict[str, Any]
"""A dict of str keys; the values are None, bool, int, float, str, lists, dicts, NumPy arrays."""

ARRAY_TYPES = {
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "U64": np.dtype(np.uint64),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""The array types that can be stored, by their names in a safetensors file."""

MAX_DEPTH = 64
_WORD = 2**63
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_HEX = re.compile(r"-?0x[0-9a-f]+")


def split(tree: Tree, name: str) -> tuple[Tree, dict[str, np.ndarray[Any, Any]]]:
    """Split a state tree.

    Args:
        tree: The state of one part.
        name: The name of the part in messages.

    Returns:
        The tree in JSON form, and the arrays by the names that the tree refers to.

    Raises:
        CheckpointError: A value has a type that could not be restored exactly.
    """
    if type(tree) is not dict:
        _refuse(name, tree, "the state of a part is a dict")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    plain = _split(tree, name, (), arrays)
    return plain, arrays


def split_plain(tree: Tree, name: str) -> Tree:
    """Split a tree that may not contain arrays, such as the counters."""
    plain, arrays = split(tree, name)
    for path in arrays:
        _refuse(f"{name}/{path}", arrays[path], "arrays belong in a part's state, not here")
    return plain


def _split(
    value: Any, root: str, path: tuple[str, ...], arrays: dict[str, np.ndarray[Any, Any]]
) -> Any:
    # Exact types only: subclasses, np.float64 and OrderedDict too, would come back as their base.
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_WORD <= value < _WORD else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    here = "/".join((root, *path))
    if len(path) >= MAX_DEPTH:
        _refuse(here, value, f"it is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if kind is list:
        return [_split(each, root, (*path, str(i)), arrays) for i, each in enumerate(value)]
    if kind is dict:
        plain = {}
        for key, each in value.items():
            if type(key) is not str:
                _refuse(here, key, "keys are strings: JSON has no others")
            plain["$" + key if key.startswith("$") else key] = _split(
                each, root, (*path, key), arrays
            )
        return plain
    if kind is np.ndarray:
        return {"$array": _take_array(value, here, path, arrays)}
    _refuse(here, value, _hint(value))


def _take_array(
    array: np.ndarray[Any, Any],
    here: str,
    path: tuple[str, ...],
    arrays: dict[str, np.ndarray[Any, Any]],
) -> str:
    if array.dtype not in ARRAY_TYPES.values():  # this excludes the other byte order too
        _refuse(here, array, "arrays are of bool, int, uint or float16 to float64, in native order")
    # The names are for people and other tools. Keys may contain "/" or invalid UTF-8, so two paths
    # can result in the same name.
    plain_name = "/".join(path).encode("utf-8", "backslashreplace").decode("utf-8")
    name, count = plain_name, 1
    while name in arrays or name in ("", "__metadata__"):
        count += 1
        name = f"{plain_name}#{count}"
    arrays[name] = array
    return name


def _hint(value: object) -> str:
    if isinstance(value, tuple):
        return "a tuple would come back as a list: save list(...)"
    if isinstance(value, np.generic):
        return "a NumPy scalar is neither number nor array: save value.item() or np.asarray(value)"
    if type(value).__module__.partition(".")[0] == "torch":
        return "a torch tensor is saved as an array: value.detach().cpu().numpy()"
    if isinstance(value, dict | list | np.ndarray):
        return "a subclass would come back as its base: convert it first"
    return "only None, bool, int, float, str, list, dict and NumPy arrays can be saved"


def _refuse(path: str, value: object, why: str) -> NoReturn:
    kind = type(value)
    shown = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if kind is np.ndarray:
        shown += f" of {value.dtype}"  # type: ignore[attr-defined]
    raise CheckpointError(
        f"{path!r} cannot be saved: it is a {shown}",
        why,
        f"change what state_dict() puts at {path!r}",
    )


def join(plain: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Tree:
    """Reassemble a state tree; each array must be referred to exactly once.

    Raises:
        ValueError: `split` did not make it; the message says where.
    """
    left = dict(arrays)
    tree = _join(plain, "", 0, left)
    if left:
        raise ValueError(f"the array {next(iter(left))!r} has no place in it")
    if type(tree) is not dict:
        raise ValueError("it is not an object")
    return tree


def _join(value: Any, path: str, depth: int, left: dict[str, np.ndarray[Any, Any]]) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"{path!r} is nested deeper than {MAX_DEPTH} levels")
    if type(value) is list:
        return [_join(each, f"{path}/{i}", depth + 1, left) for i, each in enumerate(value)]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        (key,) = value
        if key.startswith("$") and not key.startswith("$$"):
            return _special(key, value[key], path, left)
    tree = {}
    for written, each in value.items():
        if written.startswith("$") and not written.startswith("$$"):
            raise ValueError(f"{path!r} has the unknown key {written!r}")
        key = written.removeprefix("$")
        tree[key] = _join(each, f"{path}/{key}", depth + 1, left)
    return tree


def _special(key: str, word: object, path: str, left: dict[str, np.ndarray[Any, Any]]) -> Any:
    if type(word) is str:
        if key == "$array" and word in left:
            return left.pop(word)
        if key == "$float" and word in _FLOATS:
            return _FLOATS[word]
        if key == "$int" and _HEX.fullmatch(word):
            return int(word, 16)
    raise ValueError(f"{path!r} holds {key} {word!r}, which is not known here")
