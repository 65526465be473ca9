"""Slots: who has which of them, and that all of it is views of the team's arrays."""

import gymnasium as gym
import numpy as np
import pytest

from muster.data.obs import at, put
from muster.data.slots import (
    SlotPlan,
    Slots,
    action_field,
    join_obs,
    nbytes,
    obs_fields,
    obs_parts,
    rows_of,
)
from muster.errors import OptionError

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (6, 5, 2), np.uint8)
DICT = gym.spaces.Dict({"camera": IMAGE, "joints": VECTOR, "gear": gym.spaces.Discrete(4)})
OBS = {"vector": VECTOR, "image": IMAGE, "dict": DICT, "number": gym.spaces.Discrete(7)}
ACTION = gym.spaces.Discrete(2)


def plan_of(obs=VECTOR, **sizes):
    sizes = {"steps": 5, "envs": 8, "slots": 4, **sizes}
    return SlotPlan(obs, 1, np.dtype(np.int64), ACTION, **sizes)


def arrays_of(fields):
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in fields.items()}


def leaves(obs):
    return list(obs.values()) if isinstance(obs, dict) else [obs]


# ---- who has what


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7, 16, 100])
def test_the_shares_of_any_number_of_members_have_every_slot_once(slots):
    plan = plan_of(envs=3 * slots, slots=slots)
    for members in range(1, slots + 1):
        shares = [plan.share(member, members) for member in range(members)]
        assert [slot for share in shares for slot in share] == list(range(slots))
        sizes = {len(share) for share in shares}
        assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


def test_the_columns_of_all_slots_are_all_environments_once():
    plan = plan_of(envs=12, slots=4)
    found = np.concatenate([np.arange(12)[plan.columns(slot)] for slot in range(4)])
    assert found.tolist() == list(range(12)) and plan.width == 3


@pytest.mark.parametrize(("envs", "slots"), [(7, 2), (1, 2), (9, 4)])
def test_environments_that_cannot_be_cut_into_slots_are_refused(envs, slots):
    with pytest.raises(OptionError, match=f"num_envs={envs} and slots={slots}") as caught:
        plan_of(envs=envs, slots=slots)
    fixed = int(caught.value.args[2].removeprefix("num_envs="))
    assert fixed >= envs and plan_of(envs=fixed, slots=slots).width * slots == fixed


# ---- views


@pytest.mark.parametrize("kind", OBS)
@pytest.mark.parametrize("buffers", [1, 2])
def test_slots_are_views_of_the_arrays_and_have_the_shapes_they_promise(kind, buffers):
    plan = plan_of(OBS[kind], buffers=buffers, state_width=6, chunk=5)
    arrays = arrays_of(plan.fields())
    held = [Slots(plan, arrays, buffer) for buffer in range(buffers)]
    names = ["action", "logp", "value", "reward", "terminated", "truncated", "final_value"]
    names += ["advantage", "target", "state", "first"]
    for number, slots in enumerate(held):
        for name in names:
            array = getattr(slots, name)
            array[...] = True
            assert np.shares_memory(array, arrays[name]) and arrays[name][number].all(), name
        for part in leaves(slots.obs):
            part[...] = 1
    assert all(array.all() for array in arrays.values()), "something is held by no buffer"
    slots = held[0]
    assert {part.shape[:2] for part in leaves(slots.obs)} == {(6, 8)}
    assert slots.value.shape == (6, 8) and slots.action.shape == (5, 8, 1)
    assert slots.state.shape == (1, 8, 6) and slots.first.shape == (5, 8)
    assert slots.logp.shape == slots.reward.shape == slots.target.shape == (5, 8)


def test_buffers_do_not_overlap():
    plan = plan_of(DICT, buffers=2)
    arrays = arrays_of(plan.fields())
    one, other = Slots(plan, arrays, 0), Slots(plan, arrays, 1)
    one.reward[:] = 3
    for part in leaves(one.obs):
        part[...] = 1
    assert not other.reward.any() and not any(part.any() for part in leaves(other.obs))


def test_a_network_that_does_not_remember_needs_no_memory_for_it():
    plan = plan_of()
    assert not {"state", "first"} & plan.fields().keys()
    slots = Slots(plan, arrays_of(plan.fields()))
    assert slots.state is None and slots.first is None


@pytest.mark.parametrize("kind", OBS)
def test_rows_are_views_and_row_t_n_is_step_t_of_env_n(kind):
    plan = plan_of(OBS[kind])
    slots = Slots(plan, arrays_of(plan.fields()))
    rows = rows_of(slots.obs, plan.steps)
    for row, part in zip(leaves(rows), leaves(slots.obs), strict=True):
        assert len(row) == plan.steps * plan.envs and row.base is not None
        row[3 * plan.envs + 2] = 1
        assert part[3, 2].all() and part.sum() == part[3, 2].size
        assert np.shares_memory(row, part)


# ---- observations


@pytest.mark.parametrize("kind", OBS)
def test_fields_of_observations_are_those_of_the_space(kind):
    space = OBS[kind]
    parts = space.spaces if kind == "dict" else {"": space}
    for key, (shape, dtype) in obs_fields(space).items():
        part = parts[key.removeprefix(".")]
        sample = np.asarray(part.sample())
        assert shape == sample.shape and np.can_cast(sample.dtype, dtype, "same_kind")
    assert len(obs_fields(space)) == len(parts)


@pytest.mark.parametrize("kind", OBS)
def test_an_observation_taken_apart_and_put_together_is_the_same_arrays(kind):
    fields = obs_fields(OBS[kind])
    parts = {key: np.zeros((4, *shape), dtype) for key, (shape, dtype) in fields.items()}
    again = obs_parts(join_obs(OBS[kind], parts))
    assert again.keys() == parts.keys() and all(again[key] is parts[key] for key in parts)


@pytest.mark.parametrize("kind", ["vector", "image", "dict"])
def test_what_is_put_somewhere_is_found_there_and_nowhere_else(kind):
    fields = obs_fields(OBS[kind])

    def make(shape):
        return join_obs(OBS[kind], {k: np.zeros((*shape, *s), d) for k, (s, d) in fields.items()})

    whole, value = make((6, 8)), make((2,))
    for part in leaves(value):
        part[...] = 1
    put(whole, (2, slice(4, 6)), value)
    for there, part in zip(leaves(at(whole, (2, slice(4, 6)))), leaves(whole), strict=True):
        assert there.all() and np.shares_memory(there, part)
        assert part.sum() == there.size


# ---- actions and memory


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (gym.spaces.Discrete(5), (), np.int64),
        (gym.spaces.MultiDiscrete([2, 3]), (2,), np.int64),
        (gym.spaces.MultiDiscrete([2, 3], dtype=np.int32), (2,), np.int64),
        (gym.spaces.Box(-1, 1, (2, 2), np.float64), (2, 2), np.float64),
        (gym.spaces.Box(-1, 1, (1,), np.float32), (1,), np.float32),
    ],
)
def test_an_action_is_held_as_environments_get_it(space, shape, dtype):
    assert action_field(space) == (shape, np.dtype(dtype))


@pytest.mark.parametrize("kind", OBS)
def test_the_bytes_that_are_promised_are_those_of_the_arrays(kind):
    fields = plan_of(OBS[kind], buffers=2, state_width=3).fields()
    assert nbytes(fields) == sum(array.nbytes for array in arrays_of(fields).values())
