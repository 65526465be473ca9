"""Types on the wire besides plain values: dataclasses by name, NumPy and torch dtypes by name.

    wire.pack   -> folds()[type](out, value, depth) -> node; raw bytes go to out.attach
    wire.unpack -> unfolds()[tag](source, node, depth) -> value; they come from source.take

All three are allow-lists: a name in a message selects from the types that this process knows, and
never causes an import or a call. NumPy is imported at the first array, torch at the first tensor.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from muster.errors import MusterError

ARRAY, SCALAR, NUMPY_STR, NUMPY_BYTES, TENSOR = 7, 8, 9, 10, 11
"""Tags of nodes, see muster.flow.wire."""

MAX_DIMS = 64
"""Maximum number of dimensions of an array; NumPy's own limit."""

NUMBER_CODES = frozenset(
    ["|b1", "|i1", "|u1", "q", "Q"]
    + [f"{order}{kind}{size}" for order in "<>" for kind in "iu" for size in (2, 4, 8)]
    + [f"{order}f{size}" for order in "<>" for size in (2, 4, 8)]
    + [f"{order}c{size}" for order in "<>" for size in (8, 16)]
)
OTHER_CODES = re.compile(
    r"[<>][mM]8(\[[0-9]{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
    r"|[<>]U[1-9][0-9]{0,7}"
    r"|\|S[1-9][0-9]{0,8}"
)
TENSOR_DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bfloat16", "complex32", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn_x2",
)

Class = TypeVar("Class", bound=type)
Fold = Callable[[Any, Any, int], object]
Unfold = Callable[[Any, list[Any], int], object]


class WireError(MusterError, ValueError):
    """A received message is malformed, or exceeds a limit."""


class CannotTravelError(MusterError, TypeError):
    """A value cannot be sent to another node; the message names its place and its type."""


class Out(Protocol):
    """Takes the raw bytes of a message that is being packed."""

    def attach(self, view: memoryview) -> int:
        """Add a buffer and return its number."""


class Source(Protocol):
    """Supplies the raw bytes of a message that is being unpacked."""

    def take(self, index: object, nbytes: int) -> memoryview:
        """Return buffer `index`, which must be the next one and have `nbytes` bytes."""


class Refusal(Exception):
    """A value that cannot travel; propagates up to `pack`, which names the value's place."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what, why, fix)
        self.steps: list[str] = []
        self.holders: list[int] = []

    def passed(self, step: str, holder: object) -> None:
        """Record that the value was found at `step` of `holder`."""
        self.steps.append(step)
        self.holders.append(id(holder))


def malformed(what: str) -> WireError:
    """Return the error for a message that no `pack` of this version produces."""
    return WireError(
        f"A message cannot be read: {what}.",
        "It was damaged on its way, or made by another version or another program.",
        "install the same version of muster on every node",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """A dataclass that may travel; `signature` is the names of its `fields`."""

    cls: type
    name: str
    fields: tuple[str, ...]
    signature: str


by_name: dict[str, Registered] = {}
by_type: dict[type, Registered] = {}


def register_dataclass(cls: Class) -> Class:
    """Let instances of this dataclass travel between nodes; a decorator, or a plain call.

    An instance travels under the import name of its class, and only a node that registered the same
    name with the same fields accepts it. That node sets the fields as they were sent; neither
    `__init__` nor `__post_init__` runs, so a message cannot run code of the class, and fields that
    `__post_init__` computed arrive unchanged. Attributes that are not fields, such as a cached
    property, are not sent. A class that is defined again replaces the earlier one.

    Raises:
        CannotTravelError: `cls` is not a dataclass, or its instances hold more than their fields.
    """
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise CannotTravelError(
            f"register_dataclass() got {cls!r}, which is not a dataclass.",
            "Only a dataclass says which fields make up its value.",
            "put @register_dataclass above @dataclass, not below it",
        )
    try:
        object.__new__(cls)
    except TypeError as error:
        raise CannotTravelError(
            f"The dataclass {cls.__qualname__} cannot travel: {error}.",
            "Its instances are made from their fields alone, which is not enough for this class.",
            "give it no abstract methods, and no base such as dict, list or Exception",
        ) from None
    # A spawned child runs the user's program as __mp_main__ and not as __main__.
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    fields = tuple(field.name for field in dataclasses.fields(cls))
    entry = Registered(cls, f"{module}:{cls.__qualname__}", fields, ",".join(fields))
    older = by_name.get(entry.name)
    if older is not None:
        by_type.pop(older.cls, None)
    by_name[entry.name] = by_type[cls] = entry
    return cls


def refuse_dtype(kind: str, dtype: object) -> Refusal:
    """Return the refusal of an array or tensor because of its dtype."""
    return Refusal(
        f"{kind} of dtype {dtype}",
        "Only dtypes that are plain bytes and mean the same on every node can travel.",
        "convert it to a number type, or send a list or a dict of arrays",
    )


def shape_of(node: list[Any], itemsize: int) -> tuple[tuple[int, ...], int]:
    """Check and return the shape in an array's node, and the number of bytes it needs."""
    shape = tuple(node[3:])
    if len(shape) > MAX_DIMS:
        raise malformed(f"an array has more than {MAX_DIMS} dimensions")
    nbytes = itemsize
    for size in shape:
        if type(size) is not int or size < 0:
            raise malformed("a dimension of an array is not a size")
        nbytes *= size
    # NumPy and torch multiply the other dimensions of an empty array, in 64 bits.
    if not nbytes and itemsize * math.prod(filter(None, shape)) >= 1 << 63:
        raise malformed("an empty array has dimensions that are too big")
    return shape, nbytes


@functools.cache
def numpy_dtype() -> Callable[[str], Any]:
    """Return the function from a dtype's name in a message to the dtype."""
    import numpy as np

    @functools.lru_cache(256)
    def dtype_of(code: str) -> Any:
        if type(code) is not str or not (code in NUMBER_CODES or OTHER_CODES.fullmatch(code)):
            raise malformed("an array has a dtype that is not allowed")
        return np.dtype(code)

    return dtype_of


@functools.cache
def raw_view() -> Callable[[Any], memoryview]:
    """Return the function from an array to its bytes in C order; copies only if they are not."""
    import numpy as np

    byte = np.dtype(np.uint8)
    castable = frozenset("?bBhHiIlLqQefd")

    def view(array: Any) -> memoryview:
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        dtype = array.dtype
        if dtype.char in castable and dtype.isnative and array.size:
            return memoryview(array).cast("B")
        flat: memoryview = array.reshape(-1).view(byte).data
        return flat

    return view


@functools.cache
def numpy_folds() -> dict[type, Fold]:
    """Return the packing function of each NumPy type."""
    import numpy as np

    raw = raw_view()
    kinds = {char: np.dtype(char) for char in "?bBhHiIlLqQefdFD"}
    # long and long long have the same bytes and compare equal, but their scalars are two types.
    native = {char: char if char in "qQ" else dtype.str for char, dtype in kinds.items()}

    def fold_array(out: Out, value: Any, depth: int) -> object:
        dtype = value.dtype
        code = native.get(dtype.char) if dtype.isnative else None
        if code is None:
            code = dtype.str
            allowed = code in NUMBER_CODES or OTHER_CODES.fullmatch(code)
            if dtype.hasobject or dtype.names is not None or not allowed:
                raise refuse_dtype("a NumPy array", dtype)
        return [ARRAY, code, out.attach(raw(value)), *value.shape]

    def fold_scalar(code: str) -> Fold:
        return lambda out, value, depth: [SCALAR, code, value.tobytes()]

    folds: dict[type, Fold] = {
        np.ndarray: fold_array,
        np.datetime64: lambda out, value, depth: [SCALAR, value.dtype.str, value.tobytes()],
        np.timedelta64: lambda out, value, depth: [SCALAR, value.dtype.str, value.tobytes()],
        # surrogatepass: a str may contain a lone surrogate; as bytes it also keeps a trailing NUL.
        np.str_: lambda out, value, depth: [NUMPY_STR, value.encode("utf-8", "surrogatepass")],
        np.bytes_: lambda out, value, depth: [NUMPY_BYTES, bytes(value)],
    }
    folds |= {dtype.type: fold_scalar(native[char]) for char, dtype in kinds.items()}
    return folds


@functools.cache
def numpy_unfolds() -> dict[int, Unfold]:
    """Return the unpacking function of each node that needs NumPy."""
    import numpy as np

    dtype_of = numpy_dtype()

    def unfold_array(source: Source, node: list[Any], depth: int) -> object:
        dtype = dtype_of(node[1])
        shape, nbytes = shape_of(node, dtype.itemsize)
        return np.ndarray(shape, dtype, source.take(node[2], nbytes)).copy()

    def unfold_scalar(source: Source, node: list[Any], depth: int) -> object:
        _, code, content = node
        dtype = dtype_of(code)
        if dtype.kind in "US" or type(content) is not bytes or len(content) != dtype.itemsize:
            raise malformed("a NumPy scalar does not fit its dtype")
        return np.frombuffer(content, dtype)[0]

    def unfold_str(source: Source, node: list[Any], depth: int) -> object:
        _, content = node
        if type(content) is not bytes:
            raise malformed("a NumPy string is not a string")
        return np.str_(content.decode("utf-8", "surrogatepass"))

    def unfold_bytes(source: Source, node: list[Any], depth: int) -> object:
        _, content = node
        if type(content) is not bytes:
            raise malformed("NumPy bytes are not bytes")
        return np.bytes_(content)

    return {
        ARRAY: unfold_array,
        SCALAR: unfold_scalar,
        NUMPY_STR: unfold_str,
        NUMPY_BYTES: unfold_bytes,
    }


@functools.cache
def tensor_dtypes() -> dict[str, tuple[Any, Any, Any]]:
    """Return, by name: a torch dtype, the NumPy dtype of its bytes, and the dtype for a view first.

    NumPy lacks bfloat16 and similar dtypes. Their bytes are sent as integers of the same size, also
    where ml_dtypes, which JAX and ONNX import, has taught NumPy their names: torch does not convert
    them, and another node may not know them.
    """
    import numpy as np
    import torch

    carriers = {1: "uint8", 2: "int16", 4: "int32"}
    table: dict[str, tuple[Any, Any, Any]] = {}
    for name in TENSOR_DTYPES:
        dtype = getattr(torch, name, None)  # an older torch has fewer dtypes
        if dtype is None:
            continue
        try:
            known = np.dtype(name)
        except TypeError:
            known = None
        if known is not None and known.isbuiltin == 1:
            table[name] = (dtype, known, None)
        else:
            carrier = carriers[dtype.itemsize]
            table[name] = (dtype, np.dtype(carrier), getattr(torch, carrier))
    return table


@functools.cache
def tensor_folds() -> dict[type, Fold]:
    """Return the packing function of tensors. Called for a tensor, so torch is imported already."""
    import torch

    raw = raw_view()
    names = {dtype: (name, carrier) for name, (dtype, _, carrier) in tensor_dtypes().items()}
    strided = torch.strided

    def fold_tensor(out: Out, value: Any, depth: int) -> object:
        name, carrier = names.get(value.dtype, (None, None))
        if name is None:
            raise refuse_dtype("a tensor", value.dtype)
        if carrier is not None:
            array = plain(value).view(carrier).numpy()
        else:
            try:
                array = value.numpy()
            except (RuntimeError, TypeError):  # requires grad, is conjugated, or is not on the CPU
                array = plain(value).numpy()
        return [TENSOR, name, out.attach(raw(array)), *array.shape]

    def plain(value: Any) -> Any:
        if not value.is_cpu or value.layout is not strided:
            raise Refusal(
                f"a tensor on {value.device} with layout {value.layout}",
                "Only dense tensors in the memory of the CPU can travel.",
                "send tensor.cpu(), or tensor.to_dense()",
            )
        return value.detach().resolve_conj().resolve_neg()

    def refuse_parameter(out: Out, value: Any, depth: int) -> object:
        raise Refusal(
            "a torch Parameter",
            "It belongs to its module, and would arrive as a plain tensor.",
            "send parameter.detach(), or module.state_dict()",
        )

    return {torch.Tensor: fold_tensor, torch.nn.Parameter: refuse_parameter}


@functools.cache
def tensor_unfold() -> Unfold:
    """Return the unpacking function of tensors; imports torch."""
    import numpy as np
    import torch

    table = tensor_dtypes()

    def unfold_tensor(source: Source, node: list[Any], depth: int) -> object:
        if node[1] not in table:
            raise malformed("a tensor has a dtype that is not allowed")
        dtype, bytes_of, carrier = table[node[1]]
        shape, nbytes = shape_of(node, bytes_of.itemsize)
        buffer = source.take(node[2], nbytes)
        if not nbytes:  # NumPy gives empty arrays strides that torch would not
            return torch.empty(shape, dtype=dtype)
        tensor = torch.from_numpy(np.ndarray(shape, bytes_of, buffer).copy())
        return tensor if carrier is None else tensor.view(dtype)

    return unfold_tensor
