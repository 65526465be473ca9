"""Policies that remember: the layers, states that end with episodes, gradients over sequences."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import autograd, loss_and_stats, some_rollout
from torch import nn

from muster import OptionError
from muster.nets import FlatParameters
from muster.nets.action_head import ActionHead
from muster.nets.cells import GRU, LSTM
from muster.nets.fused_recurrent import FusedRecurrent, why_not_fused_recurrent
from muster.nets.policy_net import STATS, LossTerms
from muster.nets.recurrent import RecurrentActorCritic, RecurrentPolicy, rows_of_sequences
from muster.nets.tile import FUSED

HEADS = {
    "discrete": ActionHead.of(spaces.Discrete(3)),
    "multi": ActionHead.of(spaces.MultiDiscrete([2, 3])),
    "box": ActionHead.of(spaces.Box(-1, 1, (2,))),
}
VECTOR = spaces.Box(-1, 1, (5,))
T, N, LENGTH = 12, 4, 4
TERMS = LossTerms(1 / 24, 0.2, 0.0, 0.5, 0.01)


@pytest.fixture(params=[RecurrentPolicy, FusedRecurrent])
def runner(request):
    if request.param is FusedRecurrent and not FUSED:
        pytest.skip("numba cannot compile here")
    return request.param


@pytest.fixture(params=["lstm", "gru"])
def cell(request):
    return request.param


def _made(runner, head, cell="lstm", space=VECTOR, hidden=(16, 8), **options):
    module = RecurrentActorCritic(
        space, head, hidden, generator=torch.Generator().manual_seed(0), cell=cell, **options
    )
    with torch.no_grad():
        for bias in (each for name, each in module.named_parameters() if name.endswith("bias")):
            bias.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    flat = FlatParameters(module)
    flat.vector[flat.names_and_slices["policy.weight"]] *= 100
    return module, flat, runner(module, flat, head)


def _collected(policy, head, rng, obs):
    """Act for T steps of N environments and return the rollout."""
    first = rng.random((T, N)) < 0.2
    first[5, 1] = True  # inside a sequence
    first[8, 2] = True  # where one begins
    state = rng.normal(size=(N, policy.state_width)).astype(np.float32)
    states = np.zeros((T // LENGTH, N, policy.state_width), np.float32)
    action = np.zeros((T, N, head.width), head.dtype)
    logp, value = np.zeros((2, T, N), np.float32)
    for t in range(T):
        if t % LENGTH == 0:
            states[t // LENGTH] = state
        noise = rng.random((N, head.width)).astype(np.float32)
        policy.act(_at(obs, t), noise, action[t], logp[t], value[t], state, first[t])
    flat = _flat(obs)
    rollout = some_rollout(rng, head, flat, T * N, state=states, first=first.reshape(-1))
    return rollout._replace(
        action=action.reshape(T * N, -1), logp=logp.reshape(-1), value=value.reshape(-1)
    )


def _at(obs, t):
    return {k: v[t] for k, v in obs.items()} if isinstance(obs, dict) else obs[t]


def _flat(obs):
    if isinstance(obs, dict):
        return {k: _flat(v) for k, v in obs.items()}
    return obs.reshape(T * N, *obs.shape[2:])


def _vectors(rng):
    return rng.normal(size=(T, N, 5)).astype(np.float32)


def _gradient(policy, flat, rollout, rows, terms=TERMS):
    grad = np.full_like(flat.vector, np.nan)
    stats = np.full(len(STATS), np.nan)
    policy.gradient(rollout, rows, terms, grad, stats)
    return grad, stats


def _torch_lstm(lstm):
    """Return torch's own cell with the same weights; its gates stand in another order."""
    order = torch.arange(4 * lstm.width).view(4, -1)[[0, 1, 3, 2]].flatten()
    theirs = nn.LSTMCell(lstm.input.in_features, lstm.width)
    with torch.no_grad():
        theirs.weight_ih.copy_(lstm.input.weight[order])
        theirs.bias_ih.copy_(lstm.input.bias[order])
        theirs.weight_hh.copy_(lstm.recurrent[order])
        theirs.bias_hh.zero_()
    return theirs


def test_the_layer_is_torchs_lstm():
    generator = torch.Generator().manual_seed(0)
    lstm = LSTM(5, 6, generator)
    inputs = torch.randn(7, 3, 5, generator=generator)
    state = torch.randn(3, 12, generator=generator)
    outputs, after = lstm(inputs, state, None)
    theirs = _torch_lstm(lstm)
    h, cell = state[:, :6], state[:, 6:]
    for t in range(7):
        h, cell = theirs(inputs[t], (h, cell))
        torch.testing.assert_close(outputs[t], h)
    torch.testing.assert_close(after, torch.cat([h, cell], dim=1))


def test_the_layer_is_torchs_gru():
    generator = torch.Generator().manual_seed(0)
    gru, theirs = GRU(5, 6, generator), nn.GRU(5, 6)
    with torch.no_grad():
        gru.recurrent_bias.normal_(generator=generator)
        theirs.weight_ih_l0.copy_(gru.input.weight)
        theirs.bias_ih_l0.copy_(gru.input.bias)
        theirs.weight_hh_l0.copy_(gru.recurrent)
        theirs.bias_hh_l0.zero_()
        theirs.bias_hh_l0[12:] = gru.recurrent_bias
    inputs = torch.randn(7, 3, 5, generator=generator)
    state = torch.randn(3, 6, generator=generator)
    outputs, after = gru(inputs, state, None)
    expected, last = theirs(inputs, state[None])
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(after, last[0])


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_the_gradient_is_that_of_a_plain_loss_step_by_step(rng, head, runner):
    module, flat, policy = _made(runner, head)
    rollout = _collected(policy, head, rng, _vectors(rng))
    flat.vector += rng.normal(0, 0.05, flat.vector.size).astype(np.float32)  # it has learnt since
    rows = np.array([0 * N + 3, 2 * N + 2, 1 * N + 1, 1 * N + 0, 0 * N + 1, 2 * N + 0])
    theirs = _torch_lstm(module.lstm)
    first = rollout.first.reshape(T, N)
    outputs, values, numbers = [], [], []
    for row in rows:  # one sequence at a time, one step at a time, by torch's own cell
        chunk, env = divmod(row, N)
        state = torch.from_numpy(rollout.state[chunk, env])[None]
        h, cell = state[:, :8], state[:, 8:]
        for t in range(chunk * LENGTH, (chunk + 1) * LENGTH):
            if first[t, env]:
                h, cell = torch.zeros(1, 8), torch.zeros(1, 8)
            obs = torch.from_numpy(rollout.obs[t * N + env])[None]
            h, cell = theirs(module.trunk(module.encoder(obs)), (h, cell))
            made = module.policy(h)
            if head.gaussian:
                made = torch.cat([made, module.log_std[None]], dim=1)
            outputs.append(made)
            values.append(module.value(h)[0])
            numbers.append(t * N + env)
    both = nn.ModuleList([module, theirs])
    loss, expected_stats = loss_and_stats(
        head, torch.cat(outputs), torch.cat(values), rollout, np.array(numbers), TERMS
    )
    vector = autograd(both, loss)
    expected = vector[: flat.vector.size]  # but for the LSTM's weights, which `theirs` stands for
    order = torch.arange(32).view(4, -1)[[0, 1, 3, 2]].flatten().numpy()
    names = [name for name, _ in both.named_parameters()]
    sizes = np.cumsum([0] + [p.numel() for p in both.parameters()])
    pairs = {"lstm.recurrent": "1.weight_hh", "lstm.input.weight": "1.weight_ih",
             "lstm.input.bias": "1.bias_ih"}  # fmt: skip
    for mine, other in pairs.items():
        at = names.index(other)
        piece = vector[sizes[at] : sizes[at + 1]].reshape(32, -1)[order]
        expected[flat.names_and_slices[mine]] = piece.reshape(-1)
    grad, stats = _gradient(policy, flat, rollout, rows)
    np.testing.assert_allclose(grad, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(stats, expected_stats, rtol=1e-4, atol=1e-6)
    assert rollout.first[numbers].sum() > 1


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("normalize_obs", [False, True])
def test_in_the_first_epoch_every_ratio_is_one(rng, head, normalize_obs, runner, cell):
    module, flat, policy = _made(runner, head, cell, normalize_obs=normalize_obs)
    if normalize_obs:
        module.normalizer.parts[0].merge(5, np.full(5, 0.5), np.full(5, 10.0))
    rollout = _collected(policy, head, rng, _vectors(rng))
    for rows in (np.arange(12), rng.permutation(12)[:5]):
        terms = TERMS._replace(clip=1e-5)
        _, stats = _gradient(policy, flat, rollout, rows, terms)
        assert stats[4] == 0  # no ratio is further from 1 than 1e-5
    shifted = rollout._replace(first=np.roll(rollout.first, N))
    assert _gradient(policy, flat, shifted, np.arange(12))[1][3] > 1e-6


def test_normalised_observations_go_in():
    head = HEADS["discrete"]
    module, plain = (
        _made(RecurrentPolicy, head, normalize_obs=True)[0],
        _made(RecurrentPolicy, head)[0],
    )
    module.normalizer.parts[0].merge(10, np.full(5, 3.0), np.full(5, 40.0))
    expected = plain(torch.full((2, 5), 1.0))
    for made, wanted in zip(module(torch.full((2, 5), 5.0)), expected, strict=True):
        torch.testing.assert_close(made, wanted)


def test_images_go_through_in_sequences(rng):
    space = spaces.Dict(image=spaces.Box(0, 255, (12, 12, 3), np.uint8), speed=VECTOR)
    head = HEADS["discrete"]
    _, flat, policy = _made(RecurrentPolicy, head, space=space)
    image = rng.integers(0, 256, (T, N, 12, 12, 3), dtype=np.uint8)
    rollout = _collected(policy, head, rng, {"image": image, "speed": _vectors(rng)})
    grad, stats = _gradient(policy, flat, rollout, np.arange(12), TERMS._replace(clip=1e-5))
    assert stats[4] == 0
    assert all(grad[piece].any() for piece in flat.names_and_slices.values())


def test_a_first_step_forgets_whatever_the_state_holds(rng, runner, cell):
    head = HEADS["box"]
    _, _, policy = _made(runner, head, cell)
    obs = _vectors(rng)[0]
    first = np.array([True, False, True, False])
    noise, action = np.zeros((2, N, 2), np.float32)
    logp, value, again = np.zeros((3, N), np.float32)
    state = np.zeros((N, policy.state_width), np.float32)
    filled = rng.normal(size=state.shape).astype(np.float32)
    filled[0] = np.nan
    policy.values(obs, value, state, first)
    before = filled.copy()
    policy.values(obs, again, filled, first)
    np.testing.assert_array_equal(filled, before)  # values leave the state as it is
    np.testing.assert_array_equal(value[first], again[first])
    assert (value[~first] != again[~first]).all()
    other = filled.copy()
    policy.act(obs, noise, action, logp, value, filled, first)
    np.testing.assert_array_equal(policy.best(obs, other, first), action)
    np.testing.assert_array_equal(other, filled)
    assert np.isfinite(filled).all()
    assert (filled[1:] != before[1:]).all()


def test_the_same_inputs_give_the_same_bits(rng, runner, cell):
    head = HEADS["multi"]
    obs = _vectors(rng)
    seen = set()
    for _ in range(2):
        _, flat, policy = _made(runner, head, cell)
        rollout = _collected(policy, head, np.random.default_rng(1), obs)
        grad, stats = _gradient(policy, flat, rollout, np.arange(7))
        seen.add(grad.tobytes() + stats.tobytes() + rollout.state.tobytes())
    assert len(seen) == 1


def test_dropout_does_not_part_acting_from_learning(rng):
    head = HEADS["discrete"]
    module, flat, policy = _made(RecurrentPolicy, head)
    module.trunk.append(nn.Dropout(0.5))
    module.train()
    rollout = _collected(policy, head, rng, _vectors(rng))
    module.train()
    assert _gradient(policy, flat, rollout, np.arange(12))[1][3] < 1e-9


def test_compiled_goes_through_torch_compile(rng, monkeypatch):
    head = HEADS["discrete"]
    module, flat, policy = _made(RecurrentPolicy, head)
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda steps: compiled.append(steps) or steps)
    fast = RecurrentPolicy(module, flat, head, compiled=True)
    assert compiled == [module.steps]
    rollout = _collected(fast, head, rng, _vectors(rng))
    expected = _gradient(policy, flat, rollout, np.arange(3))[0]
    assert np.array_equal(_gradient(fast, flat, rollout, np.arange(3))[0], expected)


def test_what_a_sequence_cannot_be_made_of_is_refused(rng, runner):
    head = HEADS["discrete"]
    _, flat, policy = _made(runner, head)
    rollout = _collected(policy, head, rng, _vectors(rng))
    with pytest.raises(OptionError, match="has no state or no first"):
        _gradient(policy, flat, rollout._replace(state=None), np.arange(2))
    with pytest.raises(OptionError, match="48 rows are not 5 chunks of 4 environments"):
        state = np.zeros((5, N, 16), np.float32)
        _gradient(policy, flat, rollout._replace(state=state), np.arange(2))
    with pytest.raises(OptionError, match=r"hidden=\(\) is not possible"):
        RecurrentActorCritic(VECTOR, head, ())


@pytest.mark.skipif(not FUSED, reason="numba cannot compile here")
@pytest.mark.parametrize("hidden", [(16, 8), (24,), (64, 128), (33, 50), (7, 3)])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_the_compiled_network_is_that_of_torch_at_every_width(rng, head, hidden, cell):
    module, flat, policy = _made(RecurrentPolicy, head, cell, hidden=hidden, layer_norm=True)
    fused = FusedRecurrent(module, flat, head)
    rollout = _collected(policy, head, rng, _vectors(rng))
    flat.vector += rng.normal(0, 0.05, flat.vector.size).astype(np.float32)
    for rows in (np.arange(12), np.array([5]), np.array([11, 2, 7])):
        expected, expected_stats = _gradient(policy, flat, rollout, rows)
        grad, stats = _gradient(fused, flat, rollout, rows)
        np.testing.assert_allclose(grad, expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(stats, expected_stats, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not FUSED, reason="numba cannot compile here")
@pytest.mark.parametrize("hidden", [(24,), (33, 50)])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_the_compiled_gradient_is_that_of_autograd_in_float64(rng, head, hidden, cell):
    module, flat, policy = _made(FusedRecurrent, head, cell, hidden=hidden)
    rollout = _collected(policy, head, rng, _vectors(rng))
    flat.vector += rng.normal(0, 0.05, flat.vector.size).astype(np.float32)
    rows = np.array([11, 2, 7, 3])
    steps, state, first = rows_of_sequences(rollout, rows)
    exact = copy.deepcopy(module).double()
    exact.encoder = nn.Flatten()  # muster's own makes float32 of everything
    obs = torch.from_numpy(rollout.obs[steps]).double()
    state = torch.from_numpy(state).double()
    outputs, value, _ = exact.steps(obs, state, torch.from_numpy(first), LENGTH)
    loss, expected_stats = loss_and_stats(head, outputs, value, rollout, steps, TERMS)
    expected = autograd(exact, loss)
    grad, stats = _gradient(policy, flat, rollout, rows)
    assert np.abs(grad - expected).max() < 2e-6 * np.abs(expected).max()
    np.testing.assert_allclose(stats, expected_stats, rtol=2e-5, atol=1e-6)
    assert rollout.first[steps].any()


@pytest.mark.skipif(not FUSED, reason="numba cannot compile here")
@pytest.mark.parametrize("critic", [True, False])
@pytest.mark.parametrize("hidden", [(16,), (9, 21)])
def test_slots_together_have_the_bits_of_each_alone(rng, hidden, critic, cell):
    head = HEADS["box" if critic else "discrete"]
    _, flat, policy = _made(FusedRecurrent, head, cell, hidden=hidden, critic=critic)
    rollout = _collected(policy, head, rng, _vectors(rng))
    rows = rng.permutation(12).reshape(4, 3)
    alone = [_gradient(policy, flat, rollout, mine) for mine in rows]
    for some in (slice(0, 4), slice(1, 3), slice(3, 4)):
        count = some.stop - some.start
        grads = np.full((count, flat.vector.size), np.nan, np.float32)
        stats = np.full((count, len(STATS)), np.nan)
        policy.gradients(rollout, rows[some], TERMS, grads, stats)
        for k, (grad, sums) in enumerate(alone[some]):
            assert np.array_equal(grads[k], grad)
            assert np.array_equal(stats[k], sums)


@pytest.mark.skipif(not FUSED, reason="numba cannot compile here")
@pytest.mark.parametrize("hidden", [(48, 40), (32,)])
def test_the_bits_of_an_environment_do_not_depend_on_those_beside_it(rng, hidden, cell):
    head = HEADS["box"]
    _, _, policy = _made(FusedRecurrent, head, cell, hidden=hidden)
    n = 70
    obs = rng.normal(size=(n, 5)).astype(np.float32)
    state = rng.normal(size=(n, policy.state_width)).astype(np.float32)
    first = rng.random(n) < 0.2
    whole, values = state.copy(), np.zeros(n, np.float32)
    policy.values(obs, values, state, first)
    actions = policy.best(obs, whole, first)
    for rows in (slice(0, 1), slice(3, 20), slice(60, 70)):
        mine, some = state[rows].copy(), np.zeros(rows.stop - rows.start, np.float32)
        policy.values(obs[rows], some, mine, first[rows])
        assert np.array_equal(some, values[rows])
        assert np.array_equal(policy.best(obs[rows], mine, first[rows]), actions[rows])
        assert np.array_equal(mine, whole[rows])


def test_which_networks_with_a_memory_are_compiled(cell):
    head = HEADS["discrete"]
    module, flat, _ = _made(RecurrentPolicy, head, cell)
    assert (why_not_fused_recurrent(module, flat) is None) is FUSED
    module.trunk.append(nn.Dropout(0.5))
    assert "Dropout" in why_not_fused_recurrent(module, flat)
    image = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    module, flat, _ = _made(RecurrentPolicy, head, space=image)
    assert "observations go through" in why_not_fused_recurrent(module, flat)
