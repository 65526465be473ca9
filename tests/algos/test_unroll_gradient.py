"""IMPALA and APPO: the gradient of a batch of unrolls against plain torch autograd."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from muster.algos.appo import APPO, APPOConfig
from muster.algos.impala import IMPALA, IMPALAConfig
from muster.data.obs import map_obs
from muster.data.unrolls import CutEpisodes, make_slots
from muster.envs.masks import ACTION_MASK
from muster.workers.unroll_collector import unroll_plan
from muster.workers.unroll_learner import UnrollLearner

NUMBERS = gym.spaces.Box(-1, 1, (3,), np.float32)
MASKED = gym.spaces.Dict(
    {"obs": NUMBERS, ACTION_MASK: gym.spaces.Box(0, 1, (4,), np.int8)},
)
IMAGE = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
FOUR, MULTI = gym.spaces.Discrete(4), gym.spaces.MultiDiscrete([3, 2])
BOX = gym.spaces.Box(-1, 1, (2,), np.float32)
STEPS, ENVS, UNROLLS = 6, 3, 2
ALL = ENVS * UNROLLS

AGENTS = {
    "impala": (IMPALA, IMPALAConfig, {}),
    "appo": (APPO, APPOConfig, {"normalize_advantage": False, "clip": 0.1}),
}


def some_obs(space, shape, rng):
    if isinstance(space, gym.spaces.Dict):
        mask = (rng.random((*shape, 4)) < 0.6).astype(np.int8)
        mask[..., 1] = 1
        return {"obs": some_obs(space["obs"], shape, rng), ACTION_MASK: mask}
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (*shape, *space.shape), np.uint8)
    return rng.normal(size=(*shape, *space.shape)).astype(np.float32)


def batch_of(agent, space, rng):
    """Return slots as actors with other weights would have filled them, and the cut episodes."""
    slots = make_slots(unroll_plan(agent, STEPS, ENVS, UNROLLS))
    obs = some_obs(space, (STEPS + 1, ALL), rng)
    for key, part in slots.obs.items() if isinstance(obs, dict) else [(None, slots.obs)]:
        part[:] = obs if key is None else obs[key]
    if agent.head.gaussian:
        slots.action[:] = rng.normal(size=slots.action.shape)
    elif isinstance(space, gym.spaces.Dict):
        slots.action[:] = 1  # always legal
    else:
        slots.action[:] = rng.integers(0, agent.head.sizes, slots.action.shape)
    slots.logp[:] = rng.normal(-1.2, 0.5, slots.logp.shape)
    slots.reward[:] = rng.normal(size=slots.reward.shape)
    slots.terminated[:] = rng.random(slots.terminated.shape) < 0.15
    slots.truncated[:] = rng.random(slots.truncated.shape) < 0.2
    if slots.state is not None:
        slots.state[:] = rng.normal(size=slots.state.shape)
        slots.first[0] = rng.random(ALL) < 0.3
        slots.first[1:] = (slots.terminated | slots.truncated)[:-1]
    cut = []
    for unroll in range(UNROLLS):
        mine = slots.plan.columns(unroll)
        step, env = np.nonzero(slots.truncated[:, mine] & ~slots.terminated[:, mine])
        state = rng.normal(size=(len(step), agent.state_width)).astype(np.float32)
        seen = some_obs(space, (len(step),), rng) if len(step) else None
        cut.append(CutEpisodes(step, env, seen, state))
    return slots, cut


def forward(agent, slots, cut):
    """Return outputs and values of all steps, of what follows, and of cut ends, by torch."""
    rows = map_obs(lambda x: torch.from_numpy(x).flatten(0, 1), slots.obs)
    if not agent.state_width:
        outputs, value = agent.model(rows)
        last = [None if each.obs is None else agent.model(tensors(each.obs))[1] for each in cut]
        return outputs[: STEPS * ALL], value.view(STEPS + 1, ALL), last
    over = (slots.terminated | slots.truncated)[-1:]
    first = torch.from_numpy(np.concatenate([slots.first, over]).reshape(-1))
    state = torch.from_numpy(slots.state[0].copy())
    outputs, value, _ = agent.model.steps(rows, state, first, STEPS + 1)
    last = [
        None
        if each.obs is None
        else agent.model(tensors(each.obs), torch.from_numpy(each.state))[1]
        for each in cut
    ]
    return outputs[: STEPS * ALL], value.view(STEPS + 1, ALL), last


def tensors(obs):
    return map_obs(torch.from_numpy, obs)


def policy_of(agent, outputs, action):
    action = torch.from_numpy(action).flatten(0, 1)
    if agent.head.gaussian:
        mean, log_std = outputs.chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        return normal.log_prob(action).sum(1), normal.entropy().sum(1)
    parts = outputs.split(list(agent.head.sizes), dim=1)
    made = [torch.distributions.Categorical(logits=part) for part in parts]
    logp = [each.log_prob(a) for each, a in zip(made, action.unbind(1), strict=True)]
    return sum(logp), sum(each.entropy() for each in made)


def vtrace(cfg, slots, cut, logp, behaviour, value, last):
    """V-trace by its recursion (remark 1 of the paper), in float64, without a gradient."""
    value = value.detach().double().numpy()
    final = np.zeros((STEPS, ALL))
    for unroll, (each, found) in enumerate(zip(cut, last, strict=True)):
        if found is not None:
            final[each.step, unroll * ENVS + each.env] = found.detach().numpy()
    ratio = np.exp(logp.detach().double().numpy().reshape(STEPS, ALL) - behaviour)
    rho, c = np.minimum(cfg.rho_bar, ratio), cfg.vtrace_lambda * np.minimum(cfg.c_bar, ratio)
    target, advantage = np.zeros((2, STEPS, ALL))
    for i in range(ALL):
        after, step_after, carried = value[STEPS, i], value[STEPS, i], 0.0
        for t in range(STEPS - 1, -1, -1):
            if slots.truncated[t, i]:
                after = step_after = final[t, i]
                carried = 0.0
            if slots.terminated[t, i]:
                after = step_after = carried = 0.0
            reward = float(slots.reward[t, i])
            delta = rho[t, i] * (reward + cfg.gamma * step_after - value[t, i])
            advantage[t, i] = reward + cfg.gamma * after - value[t, i]
            carried = delta + cfg.gamma * c[t, i] * carried
            after, step_after = value[t, i] + carried, value[t, i]
            target[t, i] = after
    return target, advantage, rho


@pytest.mark.parametrize(
    ("space", "actions", "model"),
    [
        (NUMBERS, FOUR, None),
        (NUMBERS, MULTI, None),
        (NUMBERS, BOX, None),
        (MASKED, FOUR, None),
        (IMAGE, FOUR, None),
        (NUMBERS, FOUR, "lstm"),
        (NUMBERS, BOX, "gru"),
    ],
    ids=["four", "multi", "box", "masked", "image", "lstm", "gru"],
)
@pytest.mark.parametrize("algo", AGENTS)
def test_the_gradient_is_that_of_the_loss_as_it_is_written_down(algo, space, actions, model):
    kind, config, more = AGENTS[algo]
    cfg = config(
        hidden=(16, 8), model=model, unroll=STEPS, batch_unrolls=UNROLLS, rho_bar=1.3, c_bar=0.9,
        vtrace_lambda=0.9, entropy_coef=0.02, value_coef=0.7, max_grad_norm=None, **more,
    )  # fmt: skip
    agent = kind(cfg, space, actions, seed=3)
    rng = np.random.default_rng(0)
    agent.weights.vector[:] += 0.2 * rng.normal(size=agent.weights.vector.size)
    slots, cut = batch_of(agent, space, rng)
    behaviour = slots.logp.astype(np.float64)
    learner = UnrollLearner(agent, slots)
    taken = []
    agent.step = lambda grad: taken.append(grad.copy()) or 1.0
    learner.learn(cut, env_step=0)

    outputs, value, last = forward(agent, slots, cut)
    logp, entropy = policy_of(agent, outputs, slots.action)
    target, advantage, rho = vtrace(cfg, slots, cut, logp, behaviour, value, last)
    np.testing.assert_allclose(slots.target, target, rtol=2e-4, atol=2e-4)
    columns = {"advantage": advantage, "rho": rho, "target": target, "then": behaviour}
    seen = {name: torch.from_numpy(column.reshape(-1)) for name, column in columns.items()}
    if algo == "impala":
        policy_loss = -(seen["rho"] * seen["advantage"] * logp).mean()
    else:
        ratio = (logp - seen["then"]).exp()
        held = ratio.clamp(1 - cfg.clip, 1 + cfg.clip)
        policy_loss = torch.maximum(-seen["advantage"] * ratio, -seen["advantage"] * held).mean()
        assert ((ratio < 0.9) | (ratio > 1.1)).any(), "nothing would be clipped"
    error = value[:STEPS].reshape(-1) - seen["target"]
    loss = policy_loss + 0.7 * 0.5 * (error**2).mean() - 0.02 * entropy.mean()
    agent.model.zero_grad()
    loss.backward()
    by_torch = np.concatenate([p.grad.numpy().ravel() for p in agent.model.parameters()])
    np.testing.assert_allclose(taken[0], by_torch, rtol=1e-3, atol=2e-5)


def test_impala_weighs_advantages_once_and_appo_leaves_that_to_its_loss():
    weighed = {}
    for algo, (kind, config, more) in AGENTS.items():
        agent = kind(config(unroll=STEPS, **more), NUMBERS, FOUR, seed=3)
        slots, _ = batch_of(agent, NUMBERS, np.random.default_rng(1))
        slots.value[:] = 0
        then, now = slots.logp.copy(), slots.logp - np.float32(0.5)
        found = agent.correct(slots, now)
        weighed[algo] = slots.advantage.copy()
        assert found["rho"] == pytest.approx(np.exp(-0.5))
        assert found["behaviour_kl"] == pytest.approx(np.exp(-0.5) - 1 + 0.5, rel=1e-4)
        assert np.array_equal(slots.logp, now if algo == "impala" else then)
    np.testing.assert_allclose(weighed["impala"], np.exp(-0.5) * weighed["appo"], rtol=1e-5)


@pytest.mark.parametrize("algo", AGENTS)
def test_normalised_advantages_have_mean_0_and_spread_1(algo):
    kind, config, _ = AGENTS[algo]
    agent = kind(config(unroll=STEPS, normalize_advantage=True), NUMBERS, FOUR)
    slots, _ = batch_of(agent, NUMBERS, np.random.default_rng(1))
    agent.correct(slots, slots.logp + np.float32(0.1))
    assert slots.advantage.mean() == pytest.approx(0, abs=1e-6)
    assert slots.advantage.std() == pytest.approx(1, rel=1e-5)


def test_the_normaliser_learns_the_observations_of_each_batch_once():
    agent = IMPALA(IMPALAConfig(unroll=STEPS, normalize_obs=True), NUMBERS, FOUR)
    slots, cut = batch_of(agent, NUMBERS, np.random.default_rng(1))
    UnrollLearner(agent, slots).learn(cut, 0)
    seen = slots.obs[:STEPS].reshape(-1, 3).astype(np.float64)
    norm = agent.normalizer.parts[0]
    assert norm.count.item() == len(seen)
    np.testing.assert_allclose(norm.mean.numpy(), seen.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(norm.var.numpy(), seen.var(axis=0), rtol=1e-9)
