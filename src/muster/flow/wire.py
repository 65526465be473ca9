"""The codec between Python values and bytes: a small tree, and the raw memory of arrays.

    value -> pack -> tree, buffers ... -> buffer_sizes(tree) -> unpack(tree, buffers) -> value

A tree is msgpack of [PROTOCOL, sizes of the buffers, body]. In a body None, bool, float, str,
bytes and 64-bit ints stand for themselves; all else is an array that begins with a tag:

    LIST, TUPLE  items...          DICT  key, value, ...      ORDERED  metadata, key, value, ...
    BIG_INT      bytes             TEXT  bytes                BYTES    buffer, size
    ARRAY, TENSOR  dtype, buffer, dimensions...               SCALAR   dtype, bytes
    DATA         name, names of fields, value...              NUMPY_STR, NUMPY_BYTES  bytes

What arrives is of the type that was sent, or `pack` refuses it: subclasses (IntEnum, NamedTuple,
defaultdict, masked arrays, Parameter), bytearray, sets, objects. Nothing is pickled, and nothing
that a message names is imported or called. What is referred to twice arrives as two.
"""

import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from muster.flow import registry
from muster.flow.registry import (
    ARRAY,
    NUMPY_BYTES,
    NUMPY_STR,
    SCALAR,
    TENSOR,
    CannotTravelError,
    Refusal,
    WireError,
    malformed,
    register_dataclass,
)

__all__ = [
    "PROTOCOL",
    "CannotTravelError",
    "Packed",
    "WireError",
    "buffer_sizes",
    "can_travel",
    "pack",
    "register_dataclass",
    "unpack",
]

PROTOCOL = 1
"""Version of the format; raise it with any change of the bytes that `pack` makes."""

MAX_DEPTH = 64
"""Containers inside one another."""
MAX_TREE_BYTES = 64 << 20
MAX_NODES = 1 << 20
"""Elements of all containers of a tree together, tags and dimensions included."""
MAX_BUFFERS = 1 << 16
MAX_BUFFER_BYTES = 16 << 30
"""All buffers of a message together."""

INLINE_BYTES = 1024
"""bytes up to this length stand in the tree; longer ones are a buffer and are not copied."""
SMALL_TREE = 16 << 10
"""A tree up to this length cannot hold enough nodes to do harm."""

LIST, TUPLE, DICT, ORDERED, BIG_INT, TEXT, BYTES, DATA = 0, 1, 2, 3, 4, 5, 6, 12

KEY_TAGS = frozenset([TUPLE, BIG_INT, TEXT, BYTES, SCALAR, NUMPY_STR, NUMPY_BYTES])
SELF = frozenset([type(None), bool, int, float, str, bytes])
"""What stands for itself in a body, as it is read."""
SURELY = frozenset([type(None), bool, float])
LIKELY = SURELY | {int, str}
"""What stands for itself as it is written, but for big ints and a str with half a character."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_head = msgspec.msgpack.Decoder(tuple[int, list[int], msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as bytes. The buffers are the memory of its arrays: send or copy them, then write."""

    tree: bytes
    buffers: tuple[memoryview, ...]
    """Flat, C-contiguous, one byte per item; some may be empty."""

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers together."""
        return sum([buffer.nbytes for buffer in self.buffers])


def pack(value: object, name: str = "value") -> Packed:
    """Return `value` as a tree and buffers.

    Args:
        value: None, bool, int, float, str, bytes, list, tuple, dict, OrderedDict, registered
            dataclasses, NumPy arrays and scalars, torch tensors on the CPU (which arrive detached).
        name: What a message calls the value, such as `ctx`.

    Raises:
        CannotTravelError: Something in `value` is of another type, or too much; names its place.
    """
    try:
        try:
            packer = Packer(LIKELY)
            tree = _encode((PROTOCOL, packer.sizes, packer.fold(value, 0)))
        except (OverflowError, UnicodeEncodeError):
            packer = Packer(SURELY)
            tree = _encode((PROTOCOL, packer.sizes, packer.fold(value, 0)))
        _limit(packer, tree)
    except Refusal as refusal:
        raise _cannot_travel(refusal, name) from None
    return Packed(tree, tuple(packer.buffers))


def can_travel(value: object) -> bool:
    """Return whether `pack` takes this value; its exception says what it would not take."""
    try:
        pack(value)
    except CannotTravelError:
        return False
    return True


def buffer_sizes(tree: bytes) -> tuple[int, ...]:
    """Return the bytes of each buffer that belongs to a tree, before memory is taken for any.

    Raises:
        WireError: The tree is malformed, or it or its buffers would be beyond a limit.
    """
    tree = _checked(tree)
    try:
        protocol, sizes, _ = _decode_head(tree)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise malformed(f"its tree is no tree ({error})") from None
    _check_head(protocol, sizes)
    return tuple(sizes)


def unpack(tree: bytes, buffers: Sequence[memoryview]) -> object:
    """Return the value; its memory is its own, and `buffers` may be used again.

    Raises:
        WireError: The tree is malformed or beyond a limit, or the buffers are not those it wants.
    """
    tree = _checked(tree)
    try:
        head = _decode(tree)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise malformed(f"its tree is no tree ({error})") from None
    try:
        protocol, sizes, body = head
        if type(head) is not list or type(sizes) is not list or type(protocol) is not int:
            raise malformed("it does not begin with the sizes of its buffers")
        _check_head(protocol, sizes)
        if len(sizes) != len(buffers):
            raise malformed(f"it wants {len(sizes)} buffers, and there are {len(buffers)}")
        unpacker = Unpacker(buffers)
        value = unpacker.unfold(body, 0)
        if unpacker.taken != len(buffers):
            raise malformed("it has more buffers than arrays")
    except WireError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise malformed(f"{type(error).__name__}: {error}") from error
    return value


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
        """Count the elements of a container before they are looked at."""
        self.nodes += count
        if depth >= MAX_DEPTH:
            raise Refusal(
                f"something inside more than {MAX_DEPTH} containers",
                "So deep a value is nearly always a mistake.",
                "send a flatter value",
            )
        if self.nodes > MAX_NODES:
            raise _too_much(f"more than {MAX_NODES} elements")


class Unpacker:
    """Turns the body of one tree into its value; gives each buffer out once, in order."""

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
        """Return the value of a node that is a key: of a type whose hash is its value's."""
        if type(node) is list and node:
            if node[0] not in KEY_TAGS:
                raise malformed("a key of a dict is of a type that no key has")
            if node[0] == TUPLE:
                _descend(depth)
                return tuple([self.unfold_key(item, depth + 1) for item in islice(node, 1, None)])
        return self.unfold(node, depth)


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
            "A key has to be a str, int, float, bool, None, bytes, NumPy scalar, or tuple of them.",
            "use such a key",
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
        refusal.passed(f"[{_short(key)}]", value)
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
    """Return how a type is packed that was not seen before. Who holds an array has imported it."""
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
    fix = "send what it consists of, as plain values and arrays"
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
        "A message this big is refused by the node that receives it.",
        "send arrays in place of lists of numbers, or several smaller messages",
    )


def _limit(packer: Packer, tree: bytes) -> None:
    """Refuse to send what would be refused when it is received."""
    if len(packer.sizes) > MAX_BUFFERS:
        raise _too_much(f"{len(packer.sizes)} arrays, more than {MAX_BUFFERS}")
    if sum(packer.sizes) > MAX_BUFFER_BYTES:
        raise _too_much(f"{sum(packer.sizes)} bytes of arrays, more than {MAX_BUFFER_BYTES}")
    try:
        _checked(tree)
    except WireError as error:
        raise _too_much(f"a tree of {len(tree)} bytes ({error.args[0]})") from None


def _cannot_travel(refusal: Refusal, name: str) -> CannotTravelError:
    what, why, fix = refusal.args
    steps = refusal.steps[::-1]
    if len(set(refusal.holders)) < len(refusal.holders):
        what, why = "something that contains itself", "A message has an end, and a cycle has none."
        fix = "send names or numbers in place of references"
    if len(steps) > 8:
        steps = [*steps[:4], "...", *steps[-2:]]
    return CannotTravelError(f"{name}{''.join(steps)} cannot travel: it is {what}.", why, fix)


def _name(kind: type) -> str:
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return prefix + kind.__qualname__


def _short(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 60 else text[:57] + "..."


def _checked(tree: bytes) -> bytes:
    """Return the tree as bytes that are safe to decode: what it claims is no more than it has."""
    if type(tree) is not bytes:
        tree = bytes(tree)
    if len(tree) > MAX_TREE_BYTES:
        raise malformed(f"its tree has {len(tree)} bytes, more than {MAX_TREE_BYTES}")
    # 0xdc begins an array of up to 2**16 elements, 0xdd one of up to 2**32.
    if len(tree) > SMALL_TREE or b"\xdd" in tree or tree.count(b"\xdc") > 4:
        _count_nodes(tree)
    return tree


def _heads() -> tuple[int, ...]:
    """Return, for each first byte of a msgpack item, its bytes; minus the bytes of its length."""
    sizes = [0] * 256
    for head in (*range(0x80), *range(0x90, 0xA0), 0xC0, 0xC2, 0xC3, *range(0xE0, 0x100)):
        sizes[head] = 1
    for head in range(0xA0, 0xC0):
        sizes[head] = 1 + (head & 31)
    numbers = {1: b"\xcc\xd0", 2: b"\xcd\xd1", 4: b"\xca\xce\xd2", 8: b"\xcb\xcf\xd3"}
    for width, heads in numbers.items():
        for head in heads:
            sizes[head] = 1 + width
    with_length = {1: b"\xc4\xd9", 2: b"\xc5\xda\xdc", 4: b"\xc6\xdb\xdd"}
    for width, heads in with_length.items():
        for head in heads:
            sizes[head] = -width
    return tuple(sizes)


_HEADS = _heads()


def _count_nodes(tree: bytes) -> None:
    """Refuse a tree with more nodes than allowed, or that claims more than it has bytes for."""
    end = len(tree)
    most = min(end, MAX_NODES)
    position = 0
    count = 0
    claimed = 1
    while position < end and count < claimed:
        head = tree[position]
        size = _HEADS[head]
        count += 1
        if size > 0:
            position += size
            if head & 0xF0 == 0x90:
                claimed += head & 15
        elif size < 0:
            length = int.from_bytes(tree[position + 1 : position + 1 - size], "big")
            position += 1 - size
            if head >= 0xDC:
                claimed += length
            else:
                position += length
        else:
            raise malformed("its tree holds something that no message has")
        if claimed > most:
            raise malformed(f"its tree claims more than {most} nodes")


def _check_head(protocol: object, sizes: list[int]) -> None:
    if protocol != PROTOCOL:
        raise malformed(f"it is of protocol {protocol!r:.20}, and here it is {PROTOCOL}")
    if sizes:
        if len(sizes) > MAX_BUFFERS or set(map(type, sizes)) != {int} or min(sizes) < 0:
            raise malformed("the number or the size of its buffers is out of bounds")
        total = sum(sizes)
        if total > MAX_BUFFER_BYTES:
            raise malformed(f"it wants {total} bytes of buffers, more than {MAX_BUFFER_BYTES}")


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
    """Return an iterator of the keys and values from `start` on; what is before is plain."""
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
    return zip(rest, rest)  # noqa: B905  the number is even


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
        raise malformed("a big int is no int")
    return int.from_bytes(content, "little", signed=True)


def _unfold_text(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _, content = node
    if type(content) is not bytes:
        raise malformed("a string is no string")
    return content.decode("utf-8", "surrogatepass")


def _unfold_bytes(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _, index, size = node
    if type(size) is not int:
        raise malformed("the length of bytes is no length")
    return bytes(unpacker.take(index, size))


def _unfold_data(unpacker: Unpacker, node: list[Any], depth: int) -> object:
    _descend(depth)
    name, signature = node[1], node[2]
    if type(name) is not str or type(signature) is not str:
        raise malformed("a dataclass has no name")
    entry = registry.by_name.get(name)
    if entry is None:
        raise WireError(
            f"A message holds a {_short(name)}, which is not registered on this node.",
            "Only dataclasses that the receiving program registered are made from a message.",
            "register_dataclass the class where every node runs it, such as beside its definition",
        )
    if signature != entry.signature or len(node) - 3 != len(entry.fields):
        raise WireError(
            f"A message holds a {name} with the fields {_short(signature)}, not {entry.fields}.",
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
    """Return how a node is unpacked that needs NumPy or torch, which are imported for it."""
    if tag == TENSOR:
        _unfolds[tag] = registry.tensor_unfold()
    elif ARRAY <= tag < TENSOR:
        _unfolds[tag] = registry.numpy_unfolds()[tag]
    else:
        raise malformed(f"it has a node with the unknown tag {tag}")
    return _unfolds[tag]
