"""The format of a tree: its tags, its limits, and the checks before it is decoded."""

from muster.flow.registry import (
    NUMPY_BYTES,
    NUMPY_STR,
    SCALAR,
    malformed,
)

PROTOCOL = 1
"""Version of the format; increase it with any change of the bytes that `pack` produces."""

MAX_DEPTH = 64
"""Maximum nesting of containers."""
MAX_TREE_BYTES = 64 << 20
MAX_NODES = 1 << 20
"""Elements of all containers of a tree together, including tags and dimensions."""
MAX_BUFFERS = 1 << 16
MAX_BUFFER_BYTES = 16 << 30
"""Total bytes of all buffers of a message."""

INLINE_BYTES = 1024
"""bytes up to this length are in the tree; longer ones are a buffer and are not copied."""
SMALL_TREE = 16 << 10
"""A tree up to this length cannot contain enough nodes to do harm."""

LIST, TUPLE, DICT, ORDERED, BIG_INT, TEXT, BYTES, DATA = 0, 1, 2, 3, 4, 5, 6, 12

KEY_TAGS = frozenset([TUPLE, BIG_INT, TEXT, BYTES, SCALAR, NUMPY_STR, NUMPY_BYTES])
SELF = frozenset([type(None), bool, int, float, str, bytes])
"""Types that stand for themselves in a body, when it is read."""


def checked(tree: bytes) -> bytes:
    """Return the tree as bytes that are safe to decode: it claims no more than it contains."""
    if type(tree) is not bytes:
        tree = bytes(tree)
    if len(tree) > MAX_TREE_BYTES:
        raise malformed(f"its tree has {len(tree)} bytes, more than {MAX_TREE_BYTES}")
    # 0xdc begins an array of up to 2**16 elements, 0xdd one of up to 2**32.
    if len(tree) > SMALL_TREE or b"\xdd" in tree or tree.count(b"\xdc") > 4:
        _count_nodes(tree)
    return tree


def _heads() -> tuple[int, ...]:
    """Return, for each first byte of a msgpack item, its size; or minus the size of its length."""
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
    """Raise WireError if a tree has too many nodes, or claims more than its bytes can hold."""
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
            raise malformed("its tree holds a value that no message can have")
        if claimed > most:
            raise malformed(f"its tree claims more than {most} nodes")


def check_head(protocol: object, sizes: list[int]) -> None:
    """Raise WireError for a tree of another protocol, or whose buffers exceed a limit."""
    if protocol != PROTOCOL:
        raise malformed(f"it uses protocol {protocol!r:.20}, and this node uses {PROTOCOL}")
    if sizes:
        if len(sizes) > MAX_BUFFERS or set(map(type, sizes)) != {int} or min(sizes) < 0:
            raise malformed("the number or the size of its buffers is out of bounds")
        total = sum(sizes)
        if total > MAX_BUFFER_BYTES:
            raise malformed(f"it needs {total} bytes of buffers, more than {MAX_BUFFER_BYTES}")


def short(value: object) -> str:
    """Return the repr of a value, in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
