"""Q-networks with a memory: compiled and by torch, against a loop that unrolls each sequence."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from muster.envs.masks import ACTION_MASK
from muster.nets import FlatParameters, ModelError
from muster.nets.recurrent_q import (
    FusedQSequences,
    RecurrentQNetwork,
    TorchQSequences,
    make_q_sequences,
)

BOX = spaces.Box(-9, 9, (5,), np.float32)
B, T = 4, 7
KINDS = [
    ("lstm", True, (12, 9), False),
    ("lstm", False, (16,), True),
    ("gru", True, (9,), True),
    ("gru", False, (8, 16), False),
]


def network(cell, dueling, hidden, last_action=False, space=BOX):
    module = RecurrentQNetwork(space, 3, hidden, "tanh", dueling, cell, 0, last_action)
    with torch.no_grad():  # so that no head is next to nothing
        rng = torch.Generator().manual_seed(1)
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=rng))
    return module, FlatParameters(module)


def both(*kind):
    """Return a network run by torch, and the same compiled."""
    module, flat = network(*kind)
    return module, TorchQSequences(module, flat), FusedQSequences(module, flat)


def states(module, rng):
    """Return states of B sequences; where actions are read, the first one has none before it."""
    state = rng.normal(size=(B, module.state_width)).astype(np.float32)
    if module.last_action is not None:
        state[:, -1] = np.arange(B)
    return state


def slow_unroll(module, obs, state, action, cut_at):
    """Return q [T, actions] of one sequence, step by step; the state is detached at one step."""
    body, found = module.body, []
    last = int(state[-1]) - 1
    state = torch.from_numpy(state[: body.state_width])[None]
    for t in range(len(obs)):
        if t == cut_at:
            state = state.detach()
        seen = torch.from_numpy(obs[t])
        if module.last_action is not None:
            done = torch.zeros(3)
            if last >= 0:
                done[last] = 1
            seen = torch.cat([seen, done])
        last = action[t] if t < len(action) else -1
        x = body.trunk(body.encoder(seen[None]))
        memory, state = body.cell(x[None], state, None)
        out = body.policy(memory[0])
        if body.value is not None:
            out = body.value(memory[0]) + out - out.mean(1, keepdim=True)
        found.append(out[0])
    return torch.stack(found)


@pytest.mark.parametrize("kind", KINDS)
def test_q_and_its_gradient_are_those_of_a_slow_loop_cut_where_it_says(kind, rng):
    module, by_torch, compiled = both(*kind)
    obs = rng.normal(size=(B, T, 5)).astype(np.float32)
    state = states(module, rng)
    action = rng.integers(3, size=(B, T - 1))
    cut_at = [0, 3, 6, 2]
    cut = np.zeros((B, T), np.bool_)
    cut[np.arange(B), cut_at] = True
    dq = rng.normal(size=(B, T, 3)).astype(np.float32)
    for b in range(B):
        dq[b, : cut_at[b]] = 0
    module.zero_grad()
    slow = torch.stack(
        [slow_unroll(module, obs[b], state[b], action[b], cut_at[b]) for b in range(B)]
    )
    (slow * torch.from_numpy(dq)).sum().backward()
    expected = {
        name: each.grad.numpy().reshape(-1).copy() for name, each in module.named_parameters()
    }
    for net in (by_torch, compiled):
        before = state.copy()
        wanted = slow.detach().numpy()
        np.testing.assert_allclose(net.unroll(obs, state, action), wanted, atol=1e-5)
        np.testing.assert_allclose(net.forward(obs, state, action, cut), wanted, atol=1e-5)
        np.testing.assert_array_equal(state, before)
        grad = np.full(net._flat.vector.size, np.nan, np.float32)
        net.backward(dq, grad)
        for name, at in net._flat.names_and_slices.items():
            np.testing.assert_allclose(grad[at], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unroll_from_a_state_that_acting_left_gives_the_q_that_acted(kind, rng):
    module, *nets = both(*kind)
    obs = rng.normal(size=(B, T, 5)).astype(np.float32)
    action = rng.integers(3, size=(B, T))
    for net in nets:
        state = states(module, rng)
        before, acted = [], []
        for t in range(T):
            before.append(state.copy())
            acted.append(net.step(obs[:, t], state))
            if module.last_action is not None:
                state[:, -1] = 1 + action[:, t]
        for start in (0, 3):
            q = net.unroll(obs[:, start:], before[start], action[:, start:-1])
            # Not the same bits: one step multiplies in another order than several do.
            np.testing.assert_allclose(q, np.stack(acted[start:], axis=1), atol=1e-6, rtol=1e-6)


def test_vectors_are_compiled_and_what_is_masked_goes_by_torch_and_says_why(rng):
    assert make_q_sequences(*network("lstm", True, (8,))).by_torch is None
    masked = spaces.Dict({"seen": BOX, ACTION_MASK: spaces.MultiBinary(3)})
    net = make_q_sequences(*network("lstm", True, (8,), space=masked))
    assert "observations go through DictEncoder" in net.by_torch
    obs = {
        "seen": rng.normal(size=(2, 4, 5)).astype(np.float32),
        ACTION_MASK: np.tile(np.array([1, 0, 1], np.int8), (2, 4, 1)),
    }
    state = np.zeros((2, net.state_width), np.float32)
    q = net.unroll(obs, state, np.zeros((2, 3), np.int64))
    assert (q[..., 1] < -1e6).all() and (np.abs(q[..., [0, 2]]) < 1e3).all()
    last = net.step({name: each[:, 0] for name, each in obs.items()}, state)
    np.testing.assert_allclose(last, q[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    "space",
    [
        BOX,
        spaces.Box(-9, 9, (2, 3), np.float32),
        spaces.Discrete(4),
        spaces.Box(0, 255, (36, 36, 1), np.uint8),
        spaces.Dict({"a": BOX, "b": spaces.Discrete(2)}),
    ],
    ids=["vector", "matrix", "discrete", "image", "dict"],
)
def test_observations_of_every_kind_are_read_with_the_last_action(space):
    net = make_q_sequences(*network("gru", True, (8,), True, space))
    obs = gym.vector.utils.create_empty_array(space, 2, fn=np.zeros)
    state = np.zeros((2, net.state_width), np.float32)
    alike = net.step(obs, state.copy())
    np.testing.assert_allclose(alike[0], alike[1], atol=1e-6)
    state[1, -1] = 3
    other = net.step(obs, state)
    np.testing.assert_allclose(other[0], alike[0], atol=1e-6)
    assert not np.allclose(other[1], alike[1], atol=1e-4)


def test_a_part_that_is_called_as_the_last_action_is_refused():
    with pytest.raises(ModelError, match="last_action=False"):
        network("gru", True, (8,), True, spaces.Dict({"last_action": BOX}))
