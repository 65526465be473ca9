"""State trees: what goes in comes out, exactly; what could not is refused with its path."""

import math
from collections import OrderedDict

import numpy as np
import pytest
from benchmarks.faults.scene import equal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from muster.run import CheckpointError, CheckpointStore, NonFiniteStateError
from muster.run.tree import ARRAY_TYPES

FLOATS = [name for name in ARRAY_TYPES if name.startswith("F")]


def round_trip(path, tree, part="state"):
    store = CheckpointStore(path)
    store.save(1, {part: tree}, {})
    return store.load().parts[part]


@pytest.mark.parametrize("dtype", ARRAY_TYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2, 3, 4)], ids=str)
def test_every_dtype_and_shape_comes_back_as_it_was(ram, dtype, shape):
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    back = round_trip(ram, {"a": array})["a"]
    assert (back.dtype, back.shape, back.tobytes()) == (dtype, shape, array.tobytes())
    assert back.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::-2],
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.broadcast_to(np.float32(7), (3, 2)),
        np.arange(24).reshape(2, 3, 4)[:, 1:, ::2],
    ],
    ids=["transposed", "backwards", "fortran", "broadcast", "slice"],
)
def test_arrays_that_are_not_contiguous_keep_their_values(ram, array):
    back = round_trip(ram, {"a": array})["a"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("name", FLOATS)
def test_every_bit_of_a_float_array_survives(ram, name):
    dtype = ARRAY_TYPES[name]
    bits = np.random.default_rng(0).integers(0, 256, 1024 * dtype.itemsize, dtype=np.uint8)
    array = bits.view(dtype)  # NaNs with payloads, infinities, subnormals
    assert round_trip(ram, {"a": array})["a"].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**5000, -(10**5000),
        0.1, -0.0, 1e-320, 1.7976931348623157e308, math.inf, -math.inf, "", "a\0b\n", "\ud800",
        "ü€😀", [], {}, [[]], [None, {"a": [1, 2.0]}],
    ],
    ids=lambda value: ascii(value)[:20] if not isinstance(value, int) else hex(value)[:20],
)  # fmt: skip
def test_plain_values_come_back_with_type_and_sign(ram, value):
    back = round_trip(ram, {"v": value})["v"]
    assert equal(back, value)
    if isinstance(value, float):
        assert math.copysign(1, back) == math.copysign(1, value)


def test_nan_comes_back(ram):
    assert math.isnan(round_trip(ram, {"v": math.nan})["v"])


@pytest.mark.parametrize(
    "tree",
    [
        {"$array": "x"},
        {"$float": "nan"},
        {"$": 1, "$$": 2, "$$array": {"$int": "0x1"}},
        {"a": {"b": np.zeros(1)}, "a/b": np.ones(2)},
        {"": np.zeros(1), "__metadata__": np.ones(2), "\ud800": np.ones(3), "\\ud800": np.ones(4)},
        {"b": 1, "a": 2},
    ],
    ids=["$array", "$float", "dollars", "slashes", "odd names", "order"],
)
def test_keys_may_be_any_strings(ram, tree):
    assert equal(round_trip(ram, tree), tree)


def test_a_generator_goes_on_where_it_was(ram):
    rng = np.random.Generator(np.random.PCG64(3))
    rng.random(5)
    state = round_trip(ram, rng.bit_generator.state)
    other = np.random.Generator(np.random.PCG64(0))
    other.bit_generator.state = state
    assert other.random(10).tolist() == rng.random(10).tolist()


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    hnp.arrays(
        st.sampled_from(list(ARRAY_TYPES.values())), hnp.array_shapes(min_dims=0, min_side=0)
    ),
)
trees = st.dictionaries(
    st.text(),
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=trees)
def test_any_tree_comes_back(ram, tree):
    assert equal(round_trip(ram, tree), tree)


def test_other_programs_can_read_the_arrays(ram):
    tree = {"net": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(2, np.int8)}}
    path = CheckpointStore(ram).save(1, {"policy": tree}, {})
    found = load_file(path / "policy.safetensors")
    assert sorted(found) == ["net/b", "net/w"]
    np.testing.assert_array_equal(found["net/w"], tree["net"]["w"])
    assert found["net/b"].shape == ()


class Module:
    pass


Module.__module__ = "torch.nn"
looped: list = []
looped.append(looped)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ((1, 2), "tuple"),
        ([1, {"b": (1,)}], "'state/a/1/b'"),
        (np.float64(1.0), "NumPy scalar"),
        (np.float32(1.0), "NumPy scalar"),
        (np.bool_(True), "NumPy scalar"),
        (OrderedDict(a=1), "subclass"),
        (np.ma.masked_array([1, 2], mask=[0, 1]), "subclass"),
        (np.array([1, "a"], dtype=object), "ndarray of object"),
        (np.array(["a"]), "ndarray of <U1"),
        (np.zeros(2, ">f4"), "ndarray of >f4"),
        (np.zeros(2, np.complex64), "complex64"),
        (np.zeros(2, "M8[s]"), "datetime64"),
        ({1: 2}, "keys are strings"),
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
        (1j, "complex"),
        (Module(), ".detach().cpu().numpy()"),
        (looped, "contains itself"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_could_not_come_back_is_refused_with_its_path(ram, value, said):
    with pytest.raises(CheckpointError, match="'state/a") as caught:
        CheckpointStore(ram).save(1, {"state": {"a": value}}, {})
    assert said in str(caught.value)
    assert CheckpointStore(ram).last() is None


@pytest.mark.parametrize("state", [[], None, np.zeros(2), "policy"], ids=str)
def test_the_state_of_a_part_is_a_dict(ram, state):
    with pytest.raises(CheckpointError, match="is a dict"):
        CheckpointStore(ram).save(1, {"policy": state}, {})


@pytest.mark.parametrize("where", ["counters", "meta"])
def test_arrays_belong_into_parts(ram, where):
    trees = {"counters": {}, "meta": {}, where: {"deep": [np.zeros(1)]}}
    with pytest.raises(CheckpointError, match=f"{where}/deep/0"):
        CheckpointStore(ram).save(1, {}, trees["counters"], trees["meta"])


@pytest.mark.parametrize("part", ["", "../x", "a/b", ".hidden", "a.b", "x" * 65, "a\n", 3])
def test_parts_have_harmless_names(ram, part):
    with pytest.raises(CheckpointError, match="name"):
        CheckpointStore(ram).save(1, {part: {}}, {})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [ARRAY_TYPES[name] for name in FLOATS], ids=str)
def test_a_policy_that_is_not_finite_is_never_saved(ram, bad, dtype):
    store = CheckpointStore(ram)
    good = store.save(1, {"policy": {"w": np.ones(3, dtype)}}, {})
    weights = np.ones((2, 3), dtype)
    weights[1, 2] = bad
    with pytest.raises(NonFiniteStateError, match=r"'net/w' holds 1 of 6") as caught:
        store.save(2, {"policy": {"net": {"w": weights}}}, {})
    assert isinstance(caught.value, CheckpointError)
    assert (store.last(), store.list()) == (good, [good])
    store.save(2, {"replay": {"w": weights}, "policy": {"log": [bad]}}, {})  # fine elsewhere


def test_too_many_arrays_are_refused_before_anything_is_written(ram):
    state = {f"{i:060}": np.zeros(1) for i in range(10_000)}
    with pytest.raises(CheckpointError, match="10000 arrays"):
        CheckpointStore(ram).save(1, {"policy": state}, {})
    assert not list(ram.iterdir())


def test_a_manifest_that_could_not_be_read_again_is_not_written(ram):
    store = CheckpointStore(ram)
    with pytest.raises(CheckpointError, match="manifest has some 60"):
        store.save(1, {"replay": {"actions": [0] * 600_000}}, {})
    with pytest.raises(CheckpointError, match="manifest has 1"):
        store.save(1, {"replay": {"text": "x" * (17 << 20)}}, {})
    assert [path.name for path in ram.iterdir()] == [".lock"]
