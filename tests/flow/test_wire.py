"""What is packed arrives as it was; what cannot is refused by name."""

import collections
import enum
import math
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from muster.errors import MusterError
from muster.flow import registry, wire, wire_format, wire_pack
from muster.flow.wire import (
    CannotTravelError,
    WireError,
    buffer_sizes,
    can_travel,
    pack,
    register_dataclass,
    unpack,
)

SETTINGS = settings(max_examples=150, deadline=None)


def travel(value):
    """Send a value through bytes, as a transport does, and wipe what the transport used."""
    packed = pack(value)
    sizes = buffer_sizes(packed.tree)
    assert sizes == tuple(buffer.nbytes for buffer in packed.buffers)
    assert packed.nbytes == sum(sizes)
    memory = [bytearray(buffer) for buffer in packed.buffers]
    arrived = unpack(packed.tree, [memoryview(area) for area in memory])
    for area in memory:
        area[:] = b"\xaa" * len(area)
    return arrived


def same(left, right):
    """Return whether two values have the same types all the way down, and the same bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and not isinstance(left, np.generic):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=False)
        return len(left) == len(right) and all(same(one, other) for one, other in pairs)
    if isinstance(left, (np.ndarray, np.generic)):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and left.tobytes() == right.tobytes()
    if isinstance(left, torch.Tensor):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and raw(left) == raw(right)
    return left == right


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@register_dataclass
@dataclass(frozen=True, slots=True)
class Version:
    number: int
    weights: object = None


@register_dataclass
@dataclass
class Episode:
    """Would count twice if its constructor ran again."""

    steps: int
    total: int = field(init=False)

    def __post_init__(self):
        self.steps += 1
        self.total = self.steps * 10

    @cached_property
    def slow(self):
        return self.total


@dataclass
class Stranger:
    x: int


class Colour(enum.IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int


class Text(str):
    pass


DTYPES = st.one_of(
    st_np.boolean_dtypes(),
    st_np.integer_dtypes(endianness="?"),
    st_np.unsigned_integer_dtypes(endianness="?"),
    st_np.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    st_np.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    st_np.datetime64_dtypes(endianness="?"),
    st_np.timedelta64_dtypes(endianness="?"),
    st_np.unicode_string_dtypes(endianness="?", min_len=1),
    st_np.byte_string_dtypes(min_len=1),
)
SHAPES = st_np.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def arrays(draw):
    """Arrays of random bytes, of any layout."""
    dtype, shape = draw(DTYPES), draw(SHAPES)
    if dtype.kind in ("b", "U"):  # not all bits are allowed there
        array = draw(st_np.arrays(dtype, shape))
    else:
        size = math.prod(shape) * dtype.itemsize
        array = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)
    layout = draw(st.sampled_from(["C", "F", "reversed", "every other"]))
    if layout == "F":
        return np.asfortranarray(array) if array.ndim else array
    if layout == "reversed":
        return array.T[..., ::-1] if array.ndim else array
    if layout == "every other" and array.ndim:
        return np.repeat(array, 2, axis=0)[::2]
    return array


FLOATS = st.one_of(
    st.floats(),
    st.binary(min_size=8, max_size=8).map(lambda bits: struct.unpack("<d", bits)[0]),
)
ANY_STR = st.text(st.characters(exclude_categories=()), max_size=8)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), FLOATS, ANY_STR, st.binary(max_size=8))
NUMPY_SCALARS = st.one_of(
    DTYPES.filter(lambda dtype: dtype.kind not in "US" and dtype.isnative).flatmap(
        lambda dtype: st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize).map(
            lambda bits: np.frombuffer(bits, dtype)[0]
        )
    ),
    st.sampled_from([np.str_(""), np.str_("a\0"), np.str_("\ud800"), np.bytes_(b"a\0")]),
    st.sampled_from([np.longlong(-3), np.ulonglong(3), np.datetime64("NaT")]),
)
KEYS = st.recursive(
    st.one_of(PLAIN, NUMPY_SCALARS.filter(lambda scalar: scalar == scalar)),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
LEAVES = st.one_of(PLAIN, NUMPY_SCALARS, arrays(), st.binary(min_size=1025, max_size=1030))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4).map(collections.OrderedDict),
        st.builds(Version, st.integers(), inner),
    ),
    max_leaves=12,
)


def unlike(left, right):
    """Compare dataclasses through their fields, too."""
    if type(left) is type(right) is Version:
        return unlike([left.number, left.weights], [right.number, right.weights])
    if isinstance(left, (list, tuple)) and type(left) is type(right):
        pairs = zip(left, right, strict=False)
        return len(left) != len(right) or any(unlike(*pair) for pair in pairs)
    if isinstance(left, dict) and type(left) is type(right):
        return unlike(list(left.keys()), list(right.keys())) or unlike(
            list(left.values()), list(right.values())
        )
    return not same(left, right)


@SETTINGS
@given(VALUES)
def test_what_arrives_is_what_was_sent_type_by_type_and_bit_by_bit(value):
    assert not unlike(value, travel(value))


@SETTINGS
@given(arrays())
def test_an_array_arrives_writable_with_memory_of_its_own(array):
    packed = pack(array)
    memory = [memoryview(bytes(buffer)) for buffer in packed.buffers]
    one, other = unpack(packed.tree, memory), unpack(packed.tree, memory)
    assert one.flags.writeable and one.flags.owndata and one.flags.c_contiguous
    assert not np.shares_memory(one, other)
    one[...] = np.zeros((), one.dtype)
    assert same(other, array)


def test_a_contiguous_array_is_not_copied_and_a_strided_one_is():
    array = np.arange(12.0).reshape(3, 4)
    (buffer,) = pack(array).buffers
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)
    assert (buffer.format, buffer.ndim, buffer.nbytes) == ("B", 1, 96)
    (buffer,) = pack(array.T).buffers
    assert not np.shares_memory(np.frombuffer(buffer, np.uint8), array)
    blob = bytes(2000)
    assert pack(blob).buffers[0].obj is blob
    tensor = torch.arange(4.0)
    (buffer,) = pack(tensor).buffers
    tensor[0] = 7
    assert struct.unpack("<f", buffer[:4]) == (7.0,)


def test_a_dtype_that_ml_dtypes_has_taught_numpy_still_travels_as_integers():
    pytest.importorskip("ml_dtypes")
    assert np.dtype("bfloat16").isbuiltin != 1
    found = registry.tensor_dtypes.__wrapped__()  # as in a process that has imported it before
    assert found == registry.tensor_dtypes() and found["bfloat16"][1] == np.int16


@pytest.mark.parametrize("name", registry.TENSOR_DTYPES)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_tensor_of_every_dtype_arrives_bit_equal(name):
    dtype = getattr(torch, name)
    bits = torch.arange(256, dtype=torch.uint8).repeat(3)[: 12 * 2 * dtype.itemsize]
    if dtype is torch.bool:
        bits %= 2
    tensor = bits.view(dtype).reshape(4, 6)
    for case in (
        tensor,
        tensor.T,
        tensor[:, 1:3],
        tensor[0, 0],
        tensor[:0],
        tensor[1].expand(5, 6),
    ):
        arrived = travel(case)
        assert type(arrived) is torch.Tensor and arrived.device.type == "cpu"
        assert same(arrived, case) and not arrived.requires_grad
        arrived.view(torch.uint8 if arrived.ndim else arrived.dtype).zero_()
    assert raw(tensor) == bits.numpy().tobytes()


def test_a_tensor_with_gradients_arrives_detached():
    tensor = torch.ones(3, requires_grad=True) * 2
    arrived = travel(tensor)
    assert torch.equal(arrived, tensor.detach()) and not arrived.requires_grad
    assert arrived.grad_fn is None


def test_a_conjugated_tensor_arrives_conjugated():
    tensor = torch.tensor([1 + 2j]).conj()
    assert torch.equal(travel(tensor), torch.tensor([1 - 2j]))
    assert torch.equal(travel(tensor.imag), torch.tensor([-2.0]))


def test_a_state_dict_arrives_as_it_is_with_its_metadata():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = net.state_dict()
    arrived = travel(state)
    assert type(arrived) is collections.OrderedDict
    assert list(arrived) == list(state)
    assert all(same(arrived[key], state[key]) for key in state)
    assert arrived._metadata == state._metadata
    assert type(arrived._metadata) is collections.OrderedDict
    fresh = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    fresh.load_state_dict(arrived)
    assert torch.equal(fresh[0].weight, net[0].weight)


def test_the_order_of_a_dict_stays():
    assert list(travel({"b": 1, "a": 2, 3: 4})) == ["b", "a", 3]


def test_ints_at_the_ends_of_64_bits_arrive():
    for power in (7, 8, 15, 31, 32, 63, 64, 65, 127, 128, 4096):
        for value in (2**power, 2**power - 1, -(2**power), -(2**power) - 1):
            assert travel([value, {value: value}]) == [value, {value: value}]


def test_a_state_of_a_random_generator_travels():
    state = np.random.default_rng(3).bit_generator.state
    rng = np.random.default_rng(4)
    rng.bit_generator.state = travel(state)
    assert rng.random() == np.random.default_rng(3).random()


def test_what_is_referred_to_twice_arrives_as_two():
    array = np.zeros(2)
    one, other = travel([array, array])
    one[0] = 1
    assert other[0] == 0


def test_a_dataclass_arrives_without_its_constructor_being_run():
    episode = Episode(4)
    assert episode.slow == 50
    arrived = travel(episode)
    assert type(arrived) is Episode and (arrived.steps, arrived.total) == (5, 50)
    assert "slow" not in vars(arrived)
    frozen = travel(Version(3, np.ones(2, np.float32)))
    assert frozen.number == 3 and same(frozen.weights, np.ones(2, np.float32))
    with pytest.raises(AttributeError):
        frozen.number = 4


def test_only_a_registered_dataclass_is_made(monkeypatch):
    packed = pack(Version(3))
    monkeypatch.delitem(registry.by_name, f"{__name__}:Version")
    with pytest.raises(WireError, match=r"test_wire:Version.*not registered"):
        unpack(packed.tree, ())


def test_a_dataclass_of_another_version_is_refused(monkeypatch):
    packed = pack(Version(3))
    name = f"{__name__}:Version"
    other = registry.Registered(Version, name, ("weights", "number"), "weights,number")
    monkeypatch.setitem(registry.by_name, name, other)
    with pytest.raises(WireError, match="number,weights"):
        unpack(packed.tree, ())


def test_a_class_of_a_spawned_program_has_the_name_it_has_in_the_parent():
    cls = dataclass(type("Local", (), {"__module__": "__mp_main__"}))
    assert register_dataclass(cls) is cls
    assert registry.by_type.pop(cls).name == "__main__:Local"
    del registry.by_name["__main__:Local"]


def test_a_class_that_is_defined_again_takes_the_place_of_the_older_one():
    def define():
        @register_dataclass
        @dataclass
        class Local:
            x: int

        return Local

    old, new = define(), define()
    assert type(travel(new(1))) is new
    assert not can_travel(old(1))


@pytest.mark.parametrize("cls", [int, Colour, "Version", dataclass(type("D", (dict,), {}))])
def test_what_is_no_plain_dataclass_cannot_be_registered(cls):
    with pytest.raises(CannotTravelError):
        register_dataclass(cls)


REFUSED = {
    "object": (object(), "object"),
    "IntEnum": (Colour.RED, "Colour"),
    "NamedTuple": (Point(1), "Point"),
    "str subclass": (Text("a"), "Text"),
    "defaultdict": (collections.defaultdict(int), "defaultdict"),
    "Counter": (collections.Counter(), "Counter"),
    "bytearray": (bytearray(b"a"), "bytearray"),
    "memoryview": (memoryview(b"a"), "memoryview"),
    "set": ({1}, "set"),
    "complex": (1j, "complex"),
    "class": (int, "type"),
    "function": (len, "builtin_function_or_method"),
    "dataclass": (Stranger(1), "Stranger"),
    "object array": (np.array([None]), "dtype object"),
    "structured array": (np.zeros(1, [("a", "i4")]), "dtype"),
    "void array": (np.zeros(1, "V3"), "dtype"),
    "long double": (np.zeros(1, np.longdouble), "dtype"),
    "long double scalar": (np.longdouble(1), "longdouble"),
    "masked array": (np.ma.zeros(2), "MaskedArray"),
    "matrix subclass": (np.zeros(2).view(np.recarray), "recarray"),
    "parameter": (torch.nn.Parameter(torch.ones(1)), "Parameter"),
    "sparse tensor": (torch.ones(1).to_sparse(), "sparse"),
    "tensor elsewhere": (torch.ones(1, device="meta"), "meta"),
    "generator": (np.random.default_rng(0), "Generator"),
    "key": ({Version(1): 2}, "a key of type .*Version"),
    "key in a tuple": ({(1, Version(1)): 2}, "a key of type .*Version"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_travel_is_named_with_its_place_and_type(case):
    value, kind = REFUSED[case]
    assert not can_travel(value)
    with pytest.raises(CannotTravelError, match=kind):
        pack(value)
    place = r"ctx\['a'\]\[1\]\[\(2, None\)\]\.weights"
    with pytest.raises(CannotTravelError, match=f"{place}.* cannot travel: it is .*{kind}"):
        pack({"a": [0, {(2, None): Version(1, value)}]}, "ctx")


def test_errors_are_of_musters_tree_and_say_what_why_and_try():
    with pytest.raises(MusterError, match=r"why: .*\n  try: .*register_dataclass") as caught:
        pack(Stranger(1))
    assert isinstance(caught.value, TypeError)
    assert issubclass(WireError, ValueError) and issubclass(WireError, MusterError)


def test_a_field_without_a_value_is_named():
    episode = Episode(1)
    del episode.total
    with pytest.raises(CannotTravelError, match=r"value\.total"):
        pack(episode)


def test_an_ordered_dict_with_attributes_of_its_own_is_refused():
    value = collections.OrderedDict()
    value.mine = 1
    with pytest.raises(CannotTravelError, match="mine"):
        pack(value)
    del value.mine
    value._metadata = {"x": object()}
    with pytest.raises(CannotTravelError, match=r"value\._metadata\['x'\]"):
        pack(value)


def test_a_cycle_is_refused_as_one():
    ring = [1]
    ring.append({"again": ring})
    with pytest.raises(CannotTravelError, match="contains itself"):
        pack(ring)
    version = Version(1, [])
    version.weights.append(version)
    with pytest.raises(CannotTravelError, match="contains itself"):
        pack(version)


def nested(depth, wrap=lambda value: [value]):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = {
    "list": lambda value: [value],
    "tuple": lambda value: (value,),
    "dict": lambda value: {1: value},
    "ordered": lambda value: collections.OrderedDict({1: value}),
    "data": lambda value: Version(1, value),
}


@pytest.mark.parametrize("kind", WRAPS)
def test_depth_is_limited_on_both_sides_alike(kind, monkeypatch):
    assert not unlike(travel(nested(64, WRAPS[kind])), nested(64, WRAPS[kind]))
    with pytest.raises(CannotTravelError, match="64 containers"):
        pack(nested(65, WRAPS[kind]))
    monkeypatch.setattr(wire_pack, "MAX_DEPTH", 65)
    packed = pack(nested(65, WRAPS[kind]))
    with pytest.raises(WireError, match="64 containers"):
        unpack(packed.tree, ())


def test_a_deep_key_is_limited_too(monkeypatch):
    key = nested(64, WRAPS["tuple"])
    with pytest.raises(CannotTravelError, match="64 containers"):
        pack({key: 1})
    monkeypatch.setattr(wire_pack, "MAX_DEPTH", 65)
    packed = pack({key: 1})
    with pytest.raises(WireError, match="64 containers"):
        unpack(packed.tree, ())


LIMITS = {
    "MAX_NODES": (5000, [0] * 6000),
    "MAX_TREE_BYTES": (99, "x" * 100),
    "MAX_BUFFERS": (2, [np.zeros(1)] * 3),
    "MAX_BUFFER_BYTES": (99, np.zeros(100, np.uint8)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_each_limit_holds_for_the_sender_and_for_the_receiver(name, monkeypatch):
    limit, value = LIMITS[name]
    monkeypatch.setattr(wire_format, "SMALL_TREE", 0)
    packed = pack(value)
    for module in (wire_format, wire_pack):
        monkeypatch.setattr(module, name, limit, raising=False)
    with pytest.raises(CannotTravelError, match="value cannot travel"):
        pack(value)
    for read in (buffer_sizes, lambda tree: unpack(tree, packed.buffers)):
        with pytest.raises(WireError):
            read(packed.tree)


def test_a_thousand_references_to_one_list_are_counted_before_they_are_followed():
    value = []
    for _ in range(20):
        value = [value] * 10
    with pytest.raises(CannotTravelError, match="elements"):
        pack(value)


GOLDEN_VALUE = {
    "train_iter": 3,
    "loss": -0.5,
    (1, None): [True, b"ab", "é", 2**64, "\ud800"],
    "weights": np.arange(3, dtype=np.int16),
    "scalar": np.float32(1.5),
    "tensor": torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16),
    "ordered": collections.OrderedDict(a=1),
    "version": Version(7),
    "names": [np.str_("a"), np.bytes_(b"b")],
    "blob": bytes(1025),
}
GOLDEN_TREE = (
    "9301930604cd0401dc001502aa747261696e5f6974657203a46c6f7373cbbfe00000000000009301"
    "01c09600c3c4026162a2c3a99204c4090000000000000000019205c403eda080a777656967687473"
    "9407a33c69320003a67363616c61729308a33c6634c4040000c03fa674656e736f72950ba862666c"
    "6f61743136010102a76f7264657265649403c0a16101a776657273696f6e950cb1746573745f7769"
    "72653a56657273696f6eae6e756d6265722c7765696768747307c0a56e616d657393009209c40161"
    "920ac40162a4626c6f62930602cd0401"
)
GOLDEN_BUFFERS = ["000001000200", "803f0040", "00" * 1025]


def test_the_bytes_are_those_of_protocol_1():
    """When this fails on purpose: raise PROTOCOL, and write the new bytes here."""
    packed = pack(GOLDEN_VALUE)
    assert wire.PROTOCOL == 1
    assert packed.tree.hex() == GOLDEN_TREE
    assert [bytes(buffer).hex() for buffer in packed.buffers] == GOLDEN_BUFFERS
    assert not unlike(travel(GOLDEN_VALUE), GOLDEN_VALUE)


def test_another_protocol_is_refused_by_number():
    tree = bytearray(pack(1).tree)
    tree[1] = 2
    for read in (buffer_sizes, lambda tree: unpack(tree, ())):
        with pytest.raises(WireError, match="protocol 2, and this node uses 1"):
            read(bytes(tree))


def python(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.split()


def test_importing_the_codec_imports_neither_numpy_nor_torch_nor_ray():
    heavy = "print(*[name for name in ('numpy', 'torch', 'ray') if name in sys.modules])"
    assert (
        python(f"import sys, muster.flow.wire as w; w.unpack(w.pack([1]).tree, ()); {heavy}") == []
    )


def test_torch_is_imported_for_a_tensor_and_not_before():
    packed = pack([np.ones(2), np.float32(1), np.str_("a")])
    tensor = pack(torch.ones(1))
    code = f"""
import sys
from muster.flow.wire import pack, unpack
value = unpack({packed.tree!r}, [memoryview(bytes(16))])
pack(value)
print("numpy" in sys.modules, "torch" in sys.modules)
unpack({tensor.tree!r}, [memoryview(bytes(4))])
print("torch" in sys.modules)
"""
    assert python(code) == ["True", "False", "True"]
