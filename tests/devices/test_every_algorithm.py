"""Every algorithm on a device that is not the CPU: the same policy, and promised copies only.

There is no GPU here. `pretend` is to torch a device of its own, whose sums are the CPU's.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pretend
import pytest
from runs import COMMON, RUNS

import muster
from muster import devices
from muster.data import Batch
from muster.envs import make_envs
from muster.nets.policy_net import Rollout
from muster.recipes import algorithms
from muster.recipes.algorithms import ALGORITHMS, configuration_of, make_agent
from muster.recipes.settings import resolve

# They are cut short: what they come to does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore:episodes of the evaluation")


@pytest.fixture(autouse=True)
def found(monkeypatch, request):
    monkeypatch.syspath_prepend(str(request.config.rootpath / "tests" / "recipes"))


QUICK = {"ppo", "ppo of images", "dqn", "sac", "impala", "r2d2", "a3c"}
SLOW = RUNS.keys() - QUICK
"""Neighbours of others, which `make slow` trains."""
MORE = ("ppo", "ppo with a memory", "impala", "r2d2")
SOME_SLOW = [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in RUNS]


def trained(name, run_dir, device, **more):
    algo, env, options = RUNS[name]
    told = {**COMMON, **options, **more}
    return muster.train(algo, env, run_dir=str(run_dir), device=device, **told)


def by_torch_on_cpu(monkeypatch):
    """Have the CPU treated as any other device: nothing is compiled or shared with NumPy."""
    here = devices.Device("cpu", by_torch=True)
    monkeypatch.setattr(algorithms, "find_device", lambda name: here)


def test_there_is_a_run_of_every_algorithm():
    assert {algo for algo, _, _ in RUNS.values()} == set(ALGORITHMS)


@pytest.mark.parametrize("name", SOME_SLOW)
def test_training_on_another_device_gives_the_policy_of_torch_on_the_cpu(
    name, tmp_path, monkeypatch
):
    with pretend.devices() as crossings:
        there = trained(name, tmp_path / "there", "pretend")
    with monkeypatch.context() as patched:
        by_torch_on_cpu(patched)
        here = trained(name, tmp_path / "here", "cpu")
    assert crossings.to_device > 0 and there.train_iter > 0
    assert there.policy_sha256 == here.policy_sha256


@pytest.mark.parametrize(
    "name", ["dqn", "sac", *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)]
)
def test_a_checkpoint_of_one_device_is_resumed_on_another(name, tmp_path, monkeypatch):
    more = {"env_steps": 2 * RUNS[name][2]["env_steps"]}
    if RUNS[name][0] in ("dqn", "sac", "r2d2"):
        more["buffer_size"] = 1_000
    with pretend.devices():
        trained(name, tmp_path / "moved", "pretend", **more | {"env_steps": more["env_steps"] // 2})
    with monkeypatch.context() as patched:
        by_torch_on_cpu(patched)
        moved = muster.resume(tmp_path / "moved", device="cpu", quiet=True, **more)
        stayed = trained(name, tmp_path / "stayed", "cpu", **more)
    assert moved.train_iter == stayed.train_iter
    assert moved.policy_sha256 == stayed.policy_sha256


def test_a_policy_that_learnt_elsewhere_is_loaded_and_acts_on_the_cpu(tmp_path):
    with pretend.devices():
        found = trained("ppo", tmp_path / "run", "pretend")
    policy = muster.load_policy(tmp_path / "run")
    assert policy.act([0.0, 0.1, 0.0, -0.1]) in (0, 1)
    assert found.eta is None and found.speed["device"] == "pretend"


def test_an_algorithm_of_the_users_own_is_on_the_device_without_knowing_it(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2] / "examples")
    monkeypatch.setattr(algorithms, "_own", {})
    options = COMMON | {"env_steps": 256, "hidden": (16,)}
    with pretend.devices() as crossings:
        run = str(tmp_path / "run")
        found = muster.train(
            "reinforce:reinforce", "CartPole-v1", run_dir=run, device="pretend", **options
        )
    assert found.train_iter > 0 and found.speed["device"] == "pretend"
    assert crossings.to_device > found.env_steps // 8, "each step of 8 environments is one copy"


def counted(device, work):
    before = device.copies.to_device, device.copies.to_host
    work()
    return device.copies.to_device - before[0], device.copies.to_host - before[1]


@pytest.mark.parametrize("name", RUNS)
def test_acting_costs_one_copy_in_and_one_out_for_all_environments(name):
    algo, env, options = RUNS[name]
    settings = resolve(algo, env, {**COMMON, **options})
    with make_envs(env, 3) as envs, pretend.devices() as crossings:
        spaces = envs.single_observation_space, envs.single_action_space
        agent = make_agent(algo, settings.config, spaces, 0, "pretend")
        obs = envs.reset()
        for act in (agent.act, agent.explore):
            act(obs)
            before = crossings.to_device, crossings.to_host, crossings.numbers_read
            assert counted(agent.weights.device, lambda act=act: act(obs)) == (
                2 if "Rainbow" in name and act == agent.explore else 1,  # noise of the weights
                1,
            )
            now = crossings.to_device, crossings.to_host, crossings.numbers_read
            assert now[1] - before[1] == 1 and now[2] == before[2], "somebody copied besides"


BOX = gym.spaces.Box(-1, 1, (3,), np.float32)


def agent_of(algo, action_space, **options):
    return make_agent(algo, configuration_of(algo)(**options), (BOX, action_space), 0, "pretend")


@pytest.mark.parametrize(
    ("algo", "options", "copies"),
    [
        ("dqn", {"double": False}, (2, 3)),  # the batch, derivatives; two outputs, the norm
        ("dqn", {"double": True}, (2, 4)),
        ("sac", {}, (6, 8)),  # six outputs of networks, two norms
    ],
)
def test_an_update_stages_its_batch_by_one_copy(algo, options, copies):
    rows = np.ones((16, 3), np.float32)
    ones, box = np.ones(16, np.float32), algo == "sac"
    action = np.zeros((16, 1), np.float32) if box else np.zeros(16, np.int64)
    batch = Batch(rows, action, ones, rows, ones, ones, np.arange(16))
    space = gym.spaces.Box(-1, 1, (1,), np.float32) if box else gym.spaces.Discrete(2)
    with pretend.devices() as crossings:
        agent = agent_of(algo, space, hidden=(8, 8), **options)
        agent.update(batch)
        before = crossings.to_device, crossings.to_host + crossings.numbers_read
        assert counted(agent.weights.device, lambda: agent.update(batch)) == copies
        now = crossings.to_device, crossings.to_host + crossings.numbers_read
        assert (now[0] - before[0], now[1] - before[1]) == copies, "somebody copied besides"


@pytest.mark.parametrize("model", [None, "lstm"])
def test_the_gradients_of_all_slots_go_and_come_together(model):
    steps, envs, slots = 8, 4, 2
    rng = np.random.default_rng(0)
    floats = rng.standard_normal((4, steps * envs)).astype(np.float32)
    obs = rng.standard_normal((steps * envs, 3)).astype(np.float32)
    with pretend.devices():
        agent = agent_of("ppo", gym.spaces.Discrete(2), model=model, hidden=(8,))
        action = np.zeros((steps * envs, 1), np.int64)
        rollout = Rollout(obs, action, *floats)
        rows = np.arange(steps * envs).reshape(slots, -1)
        if model is not None:
            state = np.zeros((1, envs, agent.state_width), np.float32)
            rollout = rollout._replace(state=state, first=np.zeros(steps * envs, np.bool_))
            rows = np.arange(envs).reshape(slots, -1)
        out = np.zeros((slots, agent.weights.vector.size), np.float32)
        stats = np.zeros((slots, len(agent.stats)))
        terms, device = agent.terms(0, steps * envs), agent.weights.device

        def learn():
            agent.gradients(rollout, rows, terms, out, stats)

        assert counted(device, learn) == (2, 2), "observations, derivatives; outputs, gradients"
        assert counted(device, lambda: agent.step(out.sum(axis=0))) == (1, 1)
        alone, sums = np.zeros_like(out[0]), np.zeros_like(stats[0])
        agent.gradients(rollout, rows, terms, out, stats)
        agent.gradient(rollout, rows[1], terms, alone, sums)
        assert np.array_equal(alone, out[1]) and np.array_equal(sums, stats[1])


@pytest.mark.parametrize("model", [None, "lstm"])
def test_all_slots_act_by_one_copy_in_and_one_out_each_with_its_own_bits(model):
    rng = np.random.default_rng(0)
    with pretend.devices():
        agent = agent_of("ppo", gym.spaces.Discrete(2), model=model, hidden=(8,))

        def group():
            arrays = np.zeros((3, 1), np.int64), np.zeros(3, np.float32), np.zeros(3, np.float32)
            state = np.ones((3, agent.state_width), np.float32), np.zeros(3, np.bool_)
            return (obs, noise, *arrays, *(state if model else ()))

        obs, noise = rng.random((3, 3), np.float32), rng.random((3, 1), np.float32)
        alone, together = group(), [group(), group()]
        agent.net.act(*alone)
        assert counted(agent.weights.device, lambda: agent.net.act_groups(together)) == (1, 1)
        for each in together:
            assert all(map(np.array_equal, each, alone))
        assert np.any(alone[3]), "a log-probability was written"
