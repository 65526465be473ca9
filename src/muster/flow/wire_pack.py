"""Packs a value into the body of a tree: folds each allowed type, and explains each refusal."""

import sys
from collections import OrderedDict
from typing import Any

from muster.flow import registry
from muster.flow.registry import CannotTravelError, Refusal, WireError
from muster.flow.wire_format import (
    BIG_INT,
    BYTES,
    DATA,
    DICT,
    INLINE_BYTES,
    KEY_TAGS,
    LIST,
    MAX_BUFFER_BYTES,
    MAX_BUFFERS,
    MAX_DEPTH,
    MAX_NODES,
    ORDERED,
    SELF,
    TEXT,
    TUPLE,
    checked,
    short,
)

SURELY = frozenset([type(None), bool, float])
LIKELY = SURELY | {int, str}
"""Types that stand for themselves when written, except big ints and strs with lone surrogates."""


class Packer:
    """Turns one value into the body of a tree, and collects its buffers."""

    __slots__ = ("buffers", "nodes", "plain", "sizes")

    def __init__(self, plain: frozenset[type]) -> None:
        self.plain = plain
        self.buffers: list[memoryview] = []
        self.sizes: list[int] = []
        self.nodes = 0

    def attach(self, view: memoryview) -> int:
        """Add a buffer and return its number."""
        self.buffers.append(view)
        self.sizes.append(view.nbytes)
        return len(self.sizes) - 1

    def fold(self, value: object, depth: int) -> object:
        """Return the node of a value inside `depth` containers."""
        kind = type(value)
        if kind in self.plain:
            return value
        return (_folds.get(kind) or _learn(kind))(self, value, depth)

    def enter(self, count: int, depth: int) -> None:
        """Count the elements of a container before they are packed."""
        self.nodes += count
        if depth >= MAX_DEPTH:
            raise Refusal(
                f"something inside more than {MAX_DEPTH} containers",
                "A value nested this deeply is nearly always a mistake.",
                "send a flatter value",
            )
        if self.nodes > MAX_NODES:
            raise _too_much(f"more than {MAX_NODES} elements")


def _fold_items(packer: Packer, value: Any, depth: int) -> object:
    packer.enter(len(value), depth)
    node = [LIST if type(value) is list else TUPLE, *value]
    plain = packer.plain
    if not plain.issuperset(map(type, value)):
        index = 0
        try:
            for index in range(1, len(node)):
                item = node[index]
                if type(item) not in plain:
                    node[index] = packer.fold(item, depth + 1)
        except Refusal as refusal:
            refusal.passed(f"[{index - 1}]", value)
            raise
    return node


def _fold_key(packer: Packer, key: object, depth: int) -> object:
    kind = type(key)
    if kind is tuple:
        packer.enter(len(key), depth)  # type: ignore[arg-type]
        return [TUPLE, *[_fold_key(packer, item, depth + 1) for item in key]]  # type: ignore[attr-defined]
    node = packer.fold(key, depth)
    if type(node) is list and node[0] not in KEY_TAGS:
        raise Refusal(
            f"a key of type {_name(kind)}",
            "A key must be a str, int, float, bool, None, bytes, NumPy scalar, or tuple of them.",
            "use a key of one of these types",
        )
    return node


def _fold_pairs(packer: Packer, node: list[Any], value: dict[Any, Any], depth: int) -> object:
    packer.enter(2 * len(value), depth)
    plain = packer.plain
    add = node.append
    key = None
    try:
        for key, item in value.items():
            add(key if type(key) in plain else _fold_key(packer, key, depth + 1))
            add(item if type(item) in plain else packer.fold(item, depth + 1))
    except Refusal as refusal:
        refusal.passed(f"[{short(key)}]", value)
        raise
    return node


def _fold_dict(packer: Packer, value: Any, depth: int) -> object:
    return _fold_pairs(packer, [DICT], value, depth)


def _fold_ordered(packer: Packer, value: Any, depth: int) -> object:
    attributes = vars(value)
    if attributes.keys() - {"_metadata"}:
        raise Refusal(
            f"an OrderedDict with the attribute {min(attributes.keys() - {'_metadata'})!r}",
            "Of its attributes only _metadata, which torch's state_dict() has, can travel.",
            "send a dict",
        )
    try:
        metadata = packer.fold(attributes.get("_metadata"), depth + 1)
    except Refusal as refusal:
        refusal.passed("._metadata", value)
        raise
    return _fold_pairs(packer, [ORDERED, metadata], value, depth)


def _fold_int(packer: Packer, value: Any, depth: int) -> object:
    if -(1 << 63) <= value < 1 << 64:
        return value
    return [BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]


def _fold_str(packer: Packer, value: Any, depth: int) -> object:
    try:
        value.encode()
    except UnicodeEncodeError:
        return [TEXT, value.encode("utf-8", "surrogatepass")]
    return value


def _fold_bytes(packer: Packer, value: Any, depth: int) -> object:
    if len(value) <= INLINE_BYTES:
        return value
    return [BYTES, packer.attach(memoryview(value)), len(value)]


def _fold_data(packer: Packer, value: Any, depth: int) -> object:
    entry = registry.by_type.get(type(value))
    if entry is None:
        raise _unknown(type(value))
    packer.enter(len(entry.fields), depth)
    node: list[Any] = [DATA, entry.name, entry.signature]
    field = ""
    try:
        for field in entry.fields:
            if not hasattr(value, field):
                raise Refusal(
                    "a field that has no value",
                    "Every field of a dataclass travels, also those with init=False.",
                    "set it in __post_init__, or give it a default",
                )
            node.append(packer.fold(getattr(value, field), depth + 1))
    except Refusal as refusal:
        refusal.passed(f".{field}", value)
        raise
    return node


_folds: dict[type, registry.Fold] = {
    list: _fold_items,
    tuple: _fold_items,
    dict: _fold_dict,
    OrderedDict: _fold_ordered,
    int: _fold_int,
    str: _fold_str,
    bytes: _fold_bytes,
}


def _learn(kind: type) -> registry.Fold:
    """Return the packing function of a type not seen before. Its package is imported already."""
    if kind in registry.by_type:
        return _fold_data
    package = kind.__module__.partition(".")[0]
    if package in ("numpy", "torch") and package in sys.modules:
        table = registry.numpy_folds() if package == "numpy" else registry.tensor_folds()
        if kind in table:
            _folds[kind] = table[kind]
            return table[kind]
    raise _unknown(kind)


def _unknown(kind: type) -> Refusal:
    fix = "send its contents, as plain values and arrays"
    if hasattr(kind, "__dataclass_fields__"):
        fix = f"from muster.flow import register_dataclass; register_dataclass({kind.__name__})"
    else:
        for base in (*SELF, bytearray, list, tuple, dict):
            if issubclass(kind, base) and kind is not bool:
                fix = f"send {'bytes' if base is bytearray else base.__name__}(...) of it"
    return Refusal(
        f"a value of type {_name(kind)}",
        "Only plain values, arrays, tensors and registered dataclasses travel, no subclasses.",
        fix,
    )


def _too_much(what: str) -> Refusal:
    return Refusal(
        what,
        "The receiving node rejects a message of this size.",
        "send arrays in place of lists of numbers, or several smaller messages",
    )


def limit(packer: Packer, tree: bytes) -> None:
    """Refuse to send a message that its receiver would reject."""
    if len(packer.sizes) > MAX_BUFFERS:
        raise _too_much(f"{len(packer.sizes)} arrays, more than {MAX_BUFFERS}")
    if sum(packer.sizes) > MAX_BUFFER_BYTES:
        raise _too_much(f"{sum(packer.sizes)} bytes of arrays, more than {MAX_BUFFER_BYTES}")
    try:
        checked(tree)
    except WireError as error:
        raise _too_much(f"a tree of {len(tree)} bytes ({error.args[0]})") from None


def cannot_travel(refusal: Refusal, name: str) -> CannotTravelError:
    """Return the error that names where in a value the refused part is."""
    what, why, fix = refusal.args
    steps = refusal.steps[::-1]
    if len(set(refusal.holders)) < len(refusal.holders):
        what, why = "something that contains itself", "A message is finite, and a cycle has no end."
        fix = "send names or numbers in place of references"
    if len(steps) > 8:
        steps = [*steps[:4], "...", *steps[-2:]]
    return CannotTravelError(f"{name}{''.join(steps)} cannot travel: it is {what}.", why, fix)


def _name(kind: type) -> str:
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return prefix + kind.__qualname__
