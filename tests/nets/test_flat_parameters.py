"""One vector, two views: what torch sees and what NumPy sees are the same memory."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from muster.nets import FlatParameters, ModelError
from muster.nets.flat import add_rows, add_rows_numpy


def _module(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))


def test_flattening_changes_no_weight():
    module = _module()
    before = copy.deepcopy(module.state_dict())
    flat = FlatParameters(module)
    assert flat.vector.dtype == np.float32
    assert flat.vector.size == sum(p.numel() for p in module.parameters())
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_each_parameter_lies_where_its_slice_says():
    module = _module()
    flat = FlatParameters(module)
    for name, parameter in module.named_parameters():
        expected = parameter.detach().numpy().ravel()
        assert np.array_equal(flat.vector[flat.names_and_slices[name]], expected)
    assert flat.name_at(0) == "0.weight"
    assert flat.name_at(15) == "0.bias"
    assert flat.name_at(flat.vector.size - 1) == "2.bias"


def test_writing_the_vector_changes_what_torch_computes():
    module = nn.Linear(2, 1)
    flat = FlatParameters(module)
    flat.vector[:] = [2, 3, 1]
    assert module(torch.tensor([[10.0, 100.0]])).item() == 321


def test_loading_and_stepping_in_torch_changes_the_vector():
    module, other = _module(0), _module(1)
    flat = FlatParameters(module)
    module.load_state_dict(other.state_dict())
    assert np.array_equal(flat.vector, FlatParameters(other).vector)
    module[0].weight.grad = torch.ones(5, 3)
    torch.optim.SGD(module.parameters(), lr=1).step()
    assert np.array_equal(flat.vector[:15], FlatParameters(other).vector[:15] - 1)


def test_the_vector_begins_a_cache_line():
    for size in range(1, 40):
        assert FlatParameters(nn.Linear(size, 3)).vector.ctypes.data % 64 == 0


def test_a_shared_parameter_is_held_once():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    flat = FlatParameters(module)
    assert flat.vector.size == 16 + 4 + 4
    flat.vector[:16] = 7
    assert (module[1].weight == 7).all()


def test_weights_of_another_type_are_refused():
    with pytest.raises(ModelError, match=r"parameter 'weight' is torch\.float64"):
        FlatParameters(nn.Linear(2, 2).double())


def test_copying_takes_weights_and_buffers():
    mine, theirs = FlatParameters(_module(0)), FlatParameters(_module(1))
    theirs.module[1].running_mean[:] = 3
    mine.copy_from(theirs)
    assert np.array_equal(mine.vector, theirs.vector)
    assert mine.sha256() == theirs.sha256()
    assert not np.shares_memory(mine.vector, theirs.vector)


def test_a_soft_copy_goes_part_of_the_way():
    mine, theirs = FlatParameters(nn.Linear(2, 1)), FlatParameters(nn.Linear(2, 1))
    mine.vector[:], theirs.vector[:] = [0, 4, 8], [4, 4, 0]
    mine.copy_from(theirs, tau=0.25)
    assert mine.vector.tolist() == [1, 4, 6]


def test_a_state_is_a_copy_and_comes_back_exactly():
    flat = FlatParameters(_module(0))
    state, digest = flat.state_dict(), flat.sha256()
    assert all(isinstance(array, np.ndarray) for array in state.values())
    flat.vector[:] = 0
    flat.module[1].running_var[:] = 9
    assert flat.sha256() != digest
    flat.load_state_dict(state)
    assert flat.sha256() == digest


def test_the_hash_sees_names_and_shapes_too():
    wide, tall = (
        FlatParameters(nn.Linear(3, 2, bias=False)),
        FlatParameters(nn.Linear(2, 3, bias=False)),
    )
    named = FlatParameters(nn.Sequential(nn.Linear(3, 2, bias=False)))
    for flat in (wide, tall, named):
        flat.vector[:] = 1
    assert len({wide.sha256(), tall.sha256(), named.sha256()}) == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda state: state.pop("0.bias"), r"\['0.bias'\] absent, \[\] unknown"),
        (lambda state: state.update(extra=np.ones(1)), r"\[\] absent, \['extra'\] unknown"),
        (lambda state: state.update({"0.bias": np.ones(4)}), r"'0.bias' has shape \(4,\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_nothing_is_changed(change, what):
    flat = FlatParameters(_module(0))
    state = {name: array + 1 for name, array in flat.state_dict().items()}
    change(state)
    before = flat.sha256()
    with pytest.raises(ModelError, match=what):
        flat.load_state_dict(state)
    assert flat.sha256() == before


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_are_added_in_their_order(rng, rows):
    given = (rng.normal(size=(rows, 1003)) * 10.0 ** rng.integers(-5, 5, (rows, 1))).astype("f4")
    found, wanted = np.empty(1003, np.float32), np.empty(1003, np.float32)
    add_rows(given, found)
    add_rows_numpy(given, wanted)
    assert np.array_equal(found, wanted)
    if rows > 2:
        backwards = np.empty(1003, np.float32)
        add_rows(given[::-1].copy(), backwards)
        assert not np.array_equal(backwards, found), "the order shows in the bits"
