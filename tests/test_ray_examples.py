"""The examples that use Ray, and the shared-agent DQN on its backends, each in a process."""

import importlib
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("ray")
EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = pytest.mark.timeout(600)

BROKEN = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Broken(CartPoleEnv):
    steps = 0
    def step(self, action):
        Broken.steps += 1
        if Broken.steps == 150:
            raise ValueError("the cart fell off the table")
        return super().step(action)

gym.register("Broken-v0", Broken)
"""


def run(arguments, folder, returncode=0):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / arguments[0], *arguments[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == returncode, done.stderr
    if returncode:
        return done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def example(monkeypatch):
    """Import an example as a module."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_tasks_actors_and_objects_on_todays_ray(tmp_path):
    assert run(["ray_walkthrough.py"], tmp_path).splitlines() == [
        "results: [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]",
        "counts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
        "sums: [499999500000, 499999500000]",
        "is_left: True",
    ]


@pytest.mark.slow
def test_building_blocks_end_by_themselves_count_all_work_and_save(tmp_path):
    options = "--epochs 2 --steps-per-epoch 600 --random-exploration-steps 200 --num-learners 2"
    out = run(["ray_building_blocks.py", *options.split(), "--shards", "2"], tmp_path)
    first, second, last = out.splitlines()
    assert first.startswith("env_steps    600") and second.startswith("env_steps   1200")
    updates = [int(each) for each in re.findall(r"\d: (\d+)", last)]
    # 16 samples for each transition after the first 264, in batches of 64; both learners had some.
    due = 16 * (1200 - 264) / 64
    assert min(updates) > 0 and due - 2 <= sum(updates) <= due
    assert load_file(tmp_path / "weights.safetensors")["head.bias"].shape == (2,)


@pytest.mark.slow
def test_a_worker_that_raises_ends_the_building_blocks_with_its_message(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    error = run(["ray_building_blocks.py", "--env", "broken:Broken-v0"], tmp_path, returncode=1)
    assert re.match(r"rollout worker \d raised EnvError: .*the cart fell off the table", error)
    assert "broken.py" in error
    assert not (tmp_path / "weights.safetensors").exists()


def test_every_flag_of_the_building_blocks_reaches_its_block(example, monkeypatch, tmp_path):
    module = example("ray_building_blocks")
    made = {}

    def spy(name, **methods):
        def make(*arguments, **options):
            made.setdefault(name, []).append((arguments, options))
            return SimpleNamespace(**methods)

        monkeypatch.setattr(module, name, make)

    with module.make_envs("CartPole-v1") as envs:
        spaces = envs.single_observation_space, envs.single_action_space
    weights = module.DQN(module.CFG, *spaces).parts()["policy"]
    saved = []
    counts = {"gradients": 5, "applied": {0: 5}, "lag_min": 0, "lag_max": 1}
    monkeypatch.setattr(
        module, "cluster", lambda *a, **k: made.update(cluster=(a, k)) or nullcontext()
    )
    spy(
        "ParameterServer",
        get_weights=lambda: weights,
        counts=lambda: counts,
        save_weights=lambda path: saved.append(path) or path,
    )
    spy("ReplayBuffer", seal=lambda: None)
    shares = []
    spy("RolloutWorker", rollout=shares.append)
    spy("Learner", train=lambda: None)
    monkeypatch.setattr(
        module, "finish", lambda calls, watch=(): [SimpleNamespace(steps=7) for _ in calls]
    )
    monkeypatch.setattr(
        module,
        "evaluate_policy",
        lambda agent, env, episodes, seed: SimpleNamespace(mean=float(seed)),
    )
    result = module.main(
        env="CartPole-v1",
        epochs=3,
        steps_per_epoch=400,
        replay_size=900,
        random_exploration_steps=30,
        max_ep_len=77,
        num_workers=2,
        num_learners=3,
        worker_update_freq=11,
        shards=5,
        seed=9,
        weights=tmp_path / "w",
        address="10.0.0.1:6379",
    )
    assert made["cluster"] == (("10.0.0.1:6379",), {"num_cpus": 5})
    ((spaces_and_size, replay),) = made["ReplayBuffer"]
    assert spaces_and_size[2] == 900 and replay["shards"] == 5 and replay["min_size"] == 94
    assert len(made["RolloutWorker"]) == 2 and len(made["Learner"]) == 3
    for k, (arguments, options) in enumerate(made["RolloutWorker"]):
        assert arguments[0] == "CartPole-v1"
        assert (options["worker"], options["seed"], options["random_steps"]) == (k, 9, 30)
        assert (options["max_ep_len"], options["update_freq"]) == (77, 11)
    assert shares == [200, 200, 400, 400, 600, 600]
    assert saved == [tmp_path / "w"] and result.mean_return == 9.0


def test_the_command_line_of_the_building_blocks_is_the_signature(tmp_path):
    text = run(["ray_building_blocks.py", "--help"], tmp_path)
    text = " ".join(re.sub("[│╭╰─╮╯]", " ", text).split())
    defaults = {
        "env": "CartPole-v1",
        "epochs": 4,
        "steps-per-epoch": 5000,
        "replay-size": 100000,
        "random-exploration-steps": 1000,
        "max-ep-len": 1000,
        "num-workers": 2,
        "num-learners": 1,
        "worker-update-freq": 50,
    }
    for name, default in defaults.items():
        assert re.search(rf"--{name} (?:(?!--).)*\(default: {default}\)", text), name
    assert "--epoch-count" in run(["ray_building_blocks.py", "--epoch-count", "1"], tmp_path, 2)


@pytest.mark.parametrize(
    "backend",
    [
        "single",
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("ray", marks=pytest.mark.slow),
    ],
)
def test_the_shared_agent_learns_on_every_backend_with_one_program(backend, tmp_path):
    out = run(
        ["shared_agent_dqn.py", "--backend", backend, "--episodes", "40", "--folder", "r"], tmp_path
    )
    *evaluations, done, best = out.splitlines()
    result = json.loads((tmp_path / "r/results.json").read_text())
    assert len(result["returns"]) >= 40 and done.startswith(f"{len(result['returns'])} episodes")
    # An update for every two steps of each worker after the first 500 of all.
    assert abs(result["updates"] - (result["env_steps"] - 500) / 2) <= 4
    assert len(evaluations) == 1 and "best return" in best
    assert load_file(tmp_path / "r/best.safetensors")["head.bias"].shape == (2,)


def test_every_update_that_was_sent_is_applied_once(example, tmp_path):
    module = example("shared_agent_dqn")
    result = module.train(module.Config(backend="local", episodes=40, folder=tmp_path))
    # A worker waits for newer weights, which the other one's update makes too: at the end, two of
    # each may be on their way.
    assert len(result["sent"]) == 2 and min(result["sent"]) > 0
    assert 0 <= sum(result["sent"]) - result["updates"] <= 4


def test_the_best_model_is_what_was_evaluated_also_if_all_returns_are_negative(
    example, monkeypatch, tmp_path
):
    module = example("shared_agent_dqn")
    cfg = module.Config(folder=tmp_path)
    agent = module.ShareAgent(cfg, module.ParameterServer())
    evaluated = []
    means = iter([-200.0, -150.0, -180.0])

    def evaluate(policy, env, episodes, seed):
        evaluated.append(policy.parts()["policy"])
        return SimpleNamespace(mean=next(means))

    monkeypatch.setattr(module, "evaluate_policy", evaluate)
    recorder = module.Recorder()
    for number in range(3):
        recorder.returns.append(0.0)
        names = agent.agent.parts()["policy"]
        rng = np.random.default_rng(number)
        update = {name: rng.normal(size=w.shape) for name, w in names.items()}
        agent.receive_parameters(update)
        module.evaluate(agent, recorder, cfg)
    assert recorder.best_reward == -150.0
    assert recorder.evaluations == {1: -200.0, 2: -150.0, 3: -180.0}
    saved = load_file(tmp_path / "best.safetensors")
    assert all(np.array_equal(saved[name], weight) for name, weight in evaluated[1].items())
    assert not np.array_equal(saved["head.bias"], evaluated[2]["head.bias"])


def test_workers_begin_episodes_of_their_own(example, tmp_path):
    module = example("shared_agent_dqn")
    workers = [module.Worker(module.Config(), number, 0) for number in range(2)]
    first = [worker._collector.collect().obs[0, 0] for worker in workers]
    assert not np.array_equal(*first)


def test_the_committed_curves_of_the_backends_lie_in_one_band():
    from benchmarks.shared_agent import BAND, widest

    file = EXAMPLES.parent / "benchmarks/results/shared_agent_dqn.json"
    committed = json.loads(file.read_text())
    backends = committed["backends"]
    assert {"single", "local"} <= backends.keys()
    assert widest(backends) == committed["largest_difference_in_standard_errors"] < BAND
    for each in backends.values():
        curves = np.array([seed["curve"] for seed in each["seeds"]])
        assert len(curves) >= 5 and np.allclose(curves.mean(axis=0), each["mean"], atol=0.06)
        assert np.mean(each["mean"][-4:]) > 4 * each["mean"][0]  # it has learnt
