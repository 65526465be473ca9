"""Unpacks the body of a tree: checks every node, and calls nothing that a node names."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Any

from muster.flow import registry
from muster.flow.registry import ARRAY, TENSOR, WireError, malformed
from muster.flow.wire_format import (
    BIG_INT,
    BYTES,
    DATA,
    DICT,
    KEY_TAGS,
    LIST,
    MAX_DEPTH,
    ORDERED,
    SELF,
    TEXT,
    TUPLE,
    short,
)


class Unpacker:
    """Converts the body of one tree into its value; hands out each buffer once, in order."""

    __slots__ = ("buffers", "taken")

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        self.buffers = buffers
        self.taken = 0

    def take(self, index: object, nbytes: int) -> memoryview:
        """Return buffer `index`, which must be the next one and have `nbytes` bytes."""
        if type(index) is not int or index != self.taken or index >= len(self.buffers):
            raise malformed("an array names a buffer that is not the next one")
        self.taken = index + 1
        buffer = self.buffers[index]
        if buffer.nbytes != nbytes:
            raise malformed("an array and its buffer differ in size")
        return buffer

    def unfold(self, node: Any, depth: int) -> object:
        """Return the value of a node inside `depth` containers."""
        if type(node) is list and node and type(node[0]) is int:
            return (_unfolds.get(node[0]) or _learn_tag(node[0]))(self, node, depth)
        if type(node) in SELF:
            return node
        raise malformed("a node has no tag")

    def unfold_key(self, node: Any, depth: int) -> object:
        """Return the value of a key: only of a type whose hash depends on its value alone."""
        if type(node) is list and node:
            if node[0] not in KEY_TAGS:
                raise malformed("a key of a dict is of a type that no key has")
            if node[0] == TUPLE:
                _descend(depth)
                return tuple([self.unfold_key(item, depth + 1) for item in islice(node, 1, None)])
        return self.unfold(node, depth)


def _descend(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise malformed(f"it is more than {MAX_DEPTH} containers deep")


def _unfold_list(unpacker: Unpacker, node: list[Any], depth: int) -> list[Any]:
    _descend(depth)
    del node[0]
    if not SELF.issuperset(map(type, node)):
        for index, item in enumerate(node):
            if type(item) not in SELF:
                node[index] = unpacker.unfold(item, depth + 1)
    return node


def _unfold_tuple(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    return tuple(_unfold_list(unpacker, node, depth))


def _pairs(unpacker: Unpacker, node: list[Any], depth: int, start: int) -> Any:
    """Return an iterator of the keys and values from `start` on; all items before are plain."""
    if depth >= MAX_DEPTH:
        _descend(depth)
    if len(node) - start & 1:
        raise malformed("a dict has a key without a value")
    # Buffers are numbered in this order: a key, its value, the next key.
    for index, item in enumerate(node):
        if type(item) not in SELF:
            unfold = unpacker.unfold if index - start & 1 else unpacker.unfold_key
            node[index] = unfold(item, depth + 1)
    rest = islice(node, start, None)
    return zip(rest, rest)  # noqa: B905  the number of items is even


def _unfold_dict(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    value = dict(_pairs(unpacker, node, depth, 1))
    if 2 * len(value) != len(node) - 1:
        raise malformed("a dict has a key twice")
    return value


def _unfold_ordered(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _descend(depth)
    metadata = unpacker.unfold(node[1], depth + 1)
    node[1] = None
    value: Any = OrderedDict(_pairs(unpacker, node, depth, 2))
    if 2 * len(value) != len(node) - 2:
        raise malformed("a dict has a key twice")
    if metadata is not None:
        value._metadata = metadata
    return value


def _unfold_big_int(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _, content = node
    if type(content) is not bytes:
        raise malformed("a big int is not an int")
    return int.from_bytes(content, "little", signed=True)


def _unfold_text(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _, content = node
    if type(content) is not bytes:
        raise malformed("a string is not a string")
    return content.decode("utf-8", "surrogatepass")


def _unfold_bytes(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _, index, size = node
    if type(size) is not int:
        raise malformed("the length of bytes is not a length")
    return bytes(unpacker.take(index, size))


def _unfold_data(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _descend(depth)
    name, signature = node[1], node[2]
    if type(name) is not str or type(signature) is not str:
        raise malformed("a dataclass has no name")
    entry = registry.by_name.get(name)
    if entry is None:
        raise WireError(
            f"A message holds a {short(name)}, which is not registered on this node.",
            "Only dataclasses that the receiving program registered are made from a message.",
            "call register_dataclass where every node runs it, such as next to the class",
        )
    if signature != entry.signature or len(node) - 3 != len(entry.fields):
        raise WireError(
            f"A message holds a {name} with the fields {short(signature)}, not {entry.fields}.",
            "The sending node has another version of the class.",
            "run the same code on every node",
        )
    value: object = object.__new__(entry.cls)
    for field, item in zip(entry.fields, islice(node, 3, None), strict=True):
        object.__setattr__(value, field, unpacker.unfold(item, depth + 1))
    return value


_unfolds: dict[int, registry.Unfold] = {
    LIST: _unfold_list,
    TUPLE: _unfold_tuple,
    DICT: _unfold_dict,
    ORDERED: _unfold_ordered,
    BIG_INT: _unfold_big_int,
    TEXT: _unfold_text,
    BYTES: _unfold_bytes,
    DATA: _unfold_data,
}


def _learn_tag(tag: int) -> registry.Unfold:
    """Return the unpacking function of a node that needs NumPy or torch; imports them."""
    if tag == TENSOR:
        _unfolds[tag] = registry.tensor_unfold()
    elif ARRAY <= tag < TENSOR:
        _unfolds[tag] = registry.numpy_unfolds()[tag]
    else:
        raise malformed(f"it has a node with the unknown tag {tag}")
    return _unfolds[tag]
