"""Q-networks with a memory: compiled and by torch, against a loop that unrolls each sequence."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from muster.envs.masks import ACTION_MASK
from muster.nets import FlatParameters
from muster.nets.recurrent_q import (
    FusedQSequences,
    RecurrentQNetwork,
    TorchQSequences,
    make_q_sequences,
)

BOX = spaces.Box(-9, 9, (5,), np.float32)
B, T = 4, 7
KINDS = [
    ("lstm", True, (12, 9)),
    ("lstm", False, (16,)),
    ("gru", True, (9,)),
    ("gru", False, (8, 16)),
]


def network(cell, dueling, hidden, seed=0, space=BOX):
    module = RecurrentQNetwork(space, 3, hidden, "tanh", dueling, cell, seed)
    with torch.no_grad():  # so that no head is next to nothing
        rng = torch.Generator().manual_seed(1)
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=rng))
    return module, FlatParameters(module)


def both(cell, dueling, hidden):
    """Return a network run by torch, and the same compiled."""
    module, flat = network(cell, dueling, hidden)
    return module, TorchQSequences(module, flat), FusedQSequences(module, flat)


def slow_unroll(module, obs, state, cut_at):
    """Return q [T, actions] of one sequence, step by step; the state is detached at one step."""
    body, found = module.body, []
    state = torch.from_numpy(state)[None]
    for t in range(len(obs)):
        if t == cut_at:
            state = state.detach()
        x = body.trunk(body.encoder(torch.from_numpy(obs[t])[None]))
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
    state = rng.normal(size=(B, by_torch.state_width)).astype(np.float32)
    cut_at = [0, 3, 6, 2]
    cut = np.zeros((B, T), np.bool_)
    cut[np.arange(B), cut_at] = True
    dq = rng.normal(size=(B, T, 3)).astype(np.float32)
    for b in range(B):
        dq[b, : cut_at[b]] = 0
    module.zero_grad()
    slow = torch.stack([slow_unroll(module, obs[b], state[b], cut_at[b]) for b in range(B)])
    (slow * torch.from_numpy(dq)).sum().backward()
    expected = {
        name: each.grad.numpy().reshape(-1).copy() for name, each in module.named_parameters()
    }
    for net in (by_torch, compiled):
        before = state.copy()
        np.testing.assert_allclose(net.unroll(obs, state), slow.detach().numpy(), atol=1e-5)
        np.testing.assert_allclose(net.forward(obs, state, cut), slow.detach().numpy(), atol=1e-5)
        np.testing.assert_array_equal(state, before)
        grad = np.full(net._flat.vector.size, np.nan, np.float32)
        net.backward(dq, grad)
        for name, at in net._flat.names_and_slices.items():
            np.testing.assert_allclose(grad[at], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unroll_from_a_state_that_acting_left_gives_the_q_that_acted(kind, rng):
    _, *nets = both(*kind)
    obs = rng.normal(size=(B, T, 5)).astype(np.float32)
    for net in nets:
        state = rng.normal(size=(B, net.state_width)).astype(np.float32)
        states, acted = [], []
        for t in range(T):
            states.append(state.copy())
            acted.append(net.step(obs[:, t], state, np.zeros(B, np.bool_)))
        for start in (0, 3):
            q = net.unroll(obs[:, start:], states[start])
            # Not the same bits: one step multiplies in another order than several do.
            np.testing.assert_allclose(q, np.stack(acted[start:], axis=1), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_with_which_an_episode_begins_knows_nothing_of_before(kind, rng):
    _, *nets = both(*kind)
    obs = rng.normal(size=(2, 5)).astype(np.float32)
    for net in nets:
        state = rng.normal(size=(2, net.state_width)).astype(np.float32)
        kept = state[1:].copy()
        q = net.step(obs, state, np.array([True, False]))
        no = np.zeros(1, np.bool_)
        fresh = np.zeros((1, net.state_width), np.float32)
        np.testing.assert_allclose(q[:1], net.step(obs[:1], fresh, no), atol=1e-6)
        np.testing.assert_allclose(q[1:], net.step(obs[1:], kept, no), atol=1e-6)
        np.testing.assert_allclose(state, np.concatenate([fresh, kept]), atol=1e-6)


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
    q = net.unroll(obs, state)
    assert (q[..., 1] < -1e6).all() and (np.abs(q[..., [0, 2]]) < 1e3).all()
    last = net.step({name: each[:, 0] for name, each in obs.items()}, state, np.ones(2, np.bool_))
    np.testing.assert_allclose(last, q[:, 0], atol=1e-6)
