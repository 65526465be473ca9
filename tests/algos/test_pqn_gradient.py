"""PQN: Q(lambda) targets, epsilon-greedy actions, the gradient, and options that it refuses."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

from muster import OptionError
from muster.algos.pqn import PQN, PQNConfig
from muster.nets.policy_net import Rollout
from muster.workers import SlotWorker

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = gym.spaces.Discrete(4)


def q_of(agent, obs):
    with torch.no_grad():
        return agent.model(torch.as_tensor(np.asarray(obs), dtype=torch.float32))[0].numpy()


def by_recursion(reward, best, terminated, truncated, final_best, gamma, lam):
    """Return the targets of one environment, as the paper writes them (its eq. for Q(lambda))."""
    steps = len(reward)
    target = [0.0] * steps
    following = float(best[steps])  # of the last observation: the fragment goes on after it
    for t in reversed(range(steps)):
        if terminated[t]:
            target[t] = float(reward[t])
        elif truncated[t]:
            target[t] = reward[t] + gamma * float(final_best[t])
        else:
            target[t] = reward[t] + gamma * (lam * following + (1 - lam) * float(best[t + 1]))
        following = target[t]
    return target


@pytest.mark.parametrize("lam", [0.0, 0.65, 1.0])
@pytest.mark.parametrize("ends", [0.0, 0.2, 0.6])
def test_targets_are_those_of_a_plain_loop(rng, lam, ends):
    steps, envs = 40, 6
    reward, final = rng.normal(size=(2, steps, envs)).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < ends
    slots = SimpleNamespace(
        value=rng.normal(size=(steps + 1, envs)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        final_value=final,
        advantage=np.zeros((steps, envs), np.float32),
        target=np.full((steps, envs), np.nan, np.float32),
    )
    agent = PQN(PQNConfig(gamma=0.9, q_lambda=lam, hidden=(8,)), OBS, ACTIONS)
    agent.prepare(slots, reward, slice(2, envs))
    for i in range(2, envs):
        columns = reward, slots.value, terminated, truncated, final
        wanted = by_recursion(*(column[:, i] for column in columns), 0.9, lam)
        np.testing.assert_allclose(slots.target[:, i], wanted, rtol=1e-4, atol=1e-4)
    assert np.isnan(slots.target[:, :2]).all()


class Counting(gym.Env):
    """Counts steps; action 3 terminates. Truncated after five."""

    observation_space = gym.spaces.Box(0, 10, (3,), np.float32)
    action_space = ACTIONS

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        self.count += 1
        return self._obs(), float(self.count), bool(action == 3), False, {}

    def _obs(self):
        return np.full(3, self.count, np.float32)


gym.register("PqnCounting-v0", Counting, max_episode_steps=5)


@pytest.mark.parametrize("model", [None, "lstm", "gru"])
def test_a_collected_rollout_has_the_targets_of_its_true_ends(model):
    """Terminal, truncated, and a fragment that stops in the middle of an episode."""
    cfg = PQNConfig(
        rollout=16,
        minibatches=2,
        slots=2,
        eps_end=0.3,
        eps_decay=1.0,
        hidden=(8,),
        gamma=0.9,
        model=model,
    )
    env = Counting()
    agent = PQN(cfg, env.observation_space, env.action_space, seed=1)
    worker = SlotWorker(agent, "PqnCounting-v0", num_envs=4, seed=5)
    for loop in range(2):
        worker.collect(loop)
        worker.group.prepare(loop)
        slots = worker.rollouts._slots[0]
        cut = slots.truncated & ~slots.terminated
        assert slots.terminated.any() and (cut.any() or loop == 0)
        if model is None:
            best = q_of(agent, slots.obs.reshape(-1, 3)).max(1).reshape(17, 4)
            final = q_of(agent, np.full((1, 3), 5)).max()
            np.testing.assert_allclose(slots.value, best, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(slots.final_value[cut], final, rtol=1e-4, atol=1e-5)
        for i in range(4):
            columns = slots.reward, slots.value, slots.terminated, cut, slots.final_value
            wanted = by_recursion(*(column[:, i] for column in columns), 0.9, cfg.q_lambda)
            np.testing.assert_allclose(slots.target[:, i], wanted, rtol=1e-4, atol=1e-4)
        worker.learn(loop)
    worker.close()


@pytest.mark.parametrize("hidden", [(16,), (24, 16), (300,)], ids=str)
@pytest.mark.parametrize("layer_norm", [True, False], ids=["norm", "plain"])
@pytest.mark.parametrize("normalize_obs", [True, False], ids=["obs_norm", "raw"])
def test_the_gradient_is_that_of_autograd(rng, hidden, layer_norm, normalize_obs):
    cfg = PQNConfig(hidden=hidden, layer_norm=layer_norm, normalize_obs=normalize_obs)
    agent = PQN(cfg, OBS, ACTIONS, seed=3)
    agent.weights.vector[:] += rng.normal(size=agent.weights.vector.size).astype(np.float32) * 0.1
    rollout, rows = some_rows(rng, agent, 90)
    grad, stats = np.zeros_like(agent.weights.vector), np.zeros(len(agent.stats))
    agent.gradient(rollout, rows, agent.terms(0, len(rows)), grad, stats)
    q = agent.model(torch.from_numpy(rollout.obs[rows]))[0]
    chosen = q[torch.arange(len(rows)), torch.from_numpy(rollout.action[rows, 0])]
    error = chosen - torch.from_numpy(rollout.target[rows])
    (0.5 * error**2).mean().backward()
    wanted = np.concatenate([p.grad.numpy().ravel() for p in agent.model.parameters()])
    np.testing.assert_allclose(grad, wanted, atol=2e-5, rtol=2e-4)
    sums = (0.5 * error**2).mean(), chosen.mean(), error.abs().mean(), torch.tensor(1.0)
    np.testing.assert_allclose(stats, [float(each.detach()) for each in sums], rtol=1e-4)


def some_rows(rng, agent, count):
    obs = rng.normal(size=(count, 3)).astype(np.float32)
    action = rng.integers(0, 4, (count, 1))
    target = rng.normal(size=count).astype(np.float32)
    none = np.zeros(count, np.float32)
    return Rollout(obs, action, none, none, none, target, None, None), rng.permutation(count)[:70]


def test_the_gradient_of_a_memory_is_that_of_autograd(rng):
    agent = PQN(PQNConfig(hidden=(12, 8), model="lstm", sequence=4), OBS, ACTIONS, seed=3)
    steps, envs = 8, 3
    rollout, _ = some_rows(rng, agent, steps * envs)
    state = rng.normal(size=(2, envs, 16)).astype(np.float32)
    first = rng.random(steps * envs) < 0.2
    rollout = rollout._replace(state=state, first=first)
    grad, stats = np.zeros_like(agent.weights.vector), np.zeros(len(agent.stats))
    agent.gradient(rollout, np.arange(2 * envs), agent.terms(0, steps * envs), grad, stats)
    loss = torch.zeros(())
    memory = [torch.from_numpy(state[0]), torch.from_numpy(state[1])]
    for t in range(steps):
        here = slice(t * envs, (t + 1) * envs)
        chunk = t // 4
        q, _, memory[chunk] = agent.model.steps(
            torch.from_numpy(rollout.obs[here]), memory[chunk], torch.from_numpy(first[here])
        )
        chosen = q[torch.arange(envs), torch.from_numpy(rollout.action[here, 0])]
        loss = loss + (0.5 * (chosen - torch.from_numpy(rollout.target[here])) ** 2).sum()
    (loss / (steps * envs)).backward()
    wanted = np.concatenate([p.grad.numpy().ravel() for p in agent.model.parameters()])
    np.testing.assert_allclose(grad, wanted, atol=2e-5, rtol=2e-4)


def test_it_acts_greedily_and_explores_as_the_schedule_says(rng):
    cfg = PQNConfig(eps_start=1.0, eps_end=0.0, eps_decay=100.0, hidden=(16,))
    agent = PQN(cfg, OBS, ACTIONS, seed=2)
    agent.weights.vector[:] += rng.normal(size=agent.weights.vector.size).astype(np.float32)
    obs = rng.normal(size=(500, 3)).astype(np.float32)
    best = q_of(agent, obs).argmax(1)
    assert (agent.act(obs) == best).all()
    assert (agent.explore(obs) == best).all()  # as at the end, where epsilon is 0
    action = np.zeros((500, 1), np.int64)
    logp, value = np.ones((2, 500), np.float32)
    for env_step, share in ((0, 0.25), (50, 0.625), (100, 1.0), (10**6, 1.0)):
        agent.net.act(obs, agent.noise(rng, (500,), env_step), action, logp, value)
        assert (action[:, 0] == best).mean() == pytest.approx(share, abs=0.08)
    np.testing.assert_allclose(value, q_of(agent, obs).max(1), rtol=1e-4, atol=1e-5)
    assert (logp == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q_lambda": 1.1}, "q_lambda=1.1 is not possible"),
        ({"q_lambda": -0.1}, "q_lambda=-0.1 is not possible"),
        ({"eps_start": 2}, "eps_start=2 is not possible"),
        ({"eps_end": float("nan")}, "eps_end=nan is not possible"),
        ({"eps_decay": 0}, "eps_decay=0 is not possible"),
        ({"layer_norm": 1}, "layer_norm=1 is not possible"),
        ({"epochs": 0}, "epochs=0 is not possible"),
        ({"minibatches": 1.5}, "minibatches=1.5 is not possible"),
        ({"lr": -1}, "lr=-1 is not possible"),
        ({"hidden": (0,)}, "hidden=.* is not possible"),
        ({"model": "lstm", "rollout": 30}, "rollout=30 and sequence=16 contradict each other"),
        ({"model": "lstm", "hidden": ()}, "model=lstm and hidden=.* contradict each other"),
    ],
)
def test_options_that_cannot_be_are_refused_with_one_that_can(options, message):
    with pytest.raises(OptionError, match=rf"{message}\n  why: .+\n  try: .+"):
        PQNConfig(**options)


@pytest.mark.parametrize(
    "space", [gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.MultiDiscrete([2, 3])], ids=str
)
def test_actions_that_cannot_be_compared_are_refused(space):
    with pytest.raises(OptionError, match="PQN needs Discrete actions; got"):
        PQN(PQNConfig(), OBS, space)


def test_what_belongs_to_a_policy_is_no_option():
    for name in ("gae_lambda", "entropy_coef", "value_coef", "clip", "shared", "log_std"):
        assert not hasattr(PQNConfig(), name)
