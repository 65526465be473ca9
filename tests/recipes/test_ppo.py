"""PPO by any number of workers: the same policy to the bit, whoever is killed, stopped or resumed.

Nodes find the environments of this file as "test_ppo:Id-v0". `Deadly-v0` is CartPole that kills the
process it is in, at a moment that `MUSTER_KILL` names, and writes down that it did.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import muster
from muster.errors import OptionError
from muster.framework.node import current_node
from muster.run import RunDirectory

pytestmark = pytest.mark.timeout(600)

LOOP = 32
SMALL = {
    "num_envs": 4,
    "rollout": 8,
    "epochs": 2,
    "minibatches": 2,
    "hidden": (16,),
    "horizon": 4_096,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 2,
    "checkpoint_every": 0,
    "quiet": True,
}
FIFTY_UPDATES = 13 * LOOP


# ---- environments


def node():
    found = current_node()
    return -1 if found is None else found.place.node_id


class Deadly(CartPoleEnv):
    """CartPole that may be the end of its process."""

    made = steps = renames = 0

    def __init__(self, **options):
        super().__init__(**options)
        Deadly.made += 1
        self.number = Deadly.made
        if plan().get("where") == "checkpoint":
            os.rename, os.replace = deadly(rename), deadly(replace)

    def reset(self, **options):
        if "MUSTER_SEEDS" in os.environ:
            line = f"{node()} {self.number} {options['seed']}\n"
            with open(Path(os.environ["MUSTER_SEEDS"], str(os.getpid())), "a") as file:
                file.write(line)
        return super().reset(**options)

    def close(self):
        asked = plan()
        if asked and asked["where"] == "the end" and 1 < self.number <= 1 + asked["width"]:
            time.sleep(1.0)  # all others have left by then
            die(asked)
        super().close()

    def step(self, action):
        asked = plan()
        if asked:
            # One is made to look at its spaces, then those that train, then those of evaluations.
            place = "evaluation" if self.number > 1 + asked["width"] else "training"
            Deadly.steps += place == asked["where"]
            if place == asked["where"] and Deadly.steps == asked["at"]:
                die(asked)
        return super().step(action)


def plan():
    text = os.environ.get("MUSTER_KILL")
    found = json.loads(text) if text else {}
    return found if found and found["node"] == node() and not Path(found["told"]).exists() else {}


def die(asked):
    Path(asked["told"]).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


rename, replace = os.rename, os.replace


def deadly(move):
    def _move(source, target, **options):
        asked = plan()
        if asked and Path(os.fspath(target)).name.startswith("step-"):
            Deadly.renames += 1
            if Deadly.renames == asked["at"]:
                die(asked)
        return move(source, target, **options)

    return _move


class Scene(gym.Env):
    """Ends when the action was wrong too often; its observation is what the spaces say."""

    def __init__(self, obs="image", action="discrete"):
        self.observation_space = {
            "image": gym.spaces.Box(0, 255, (24, 24, 1), np.uint8),
            "dict": gym.spaces.Dict(
                {
                    "a": gym.spaces.Box(-5, 5, (3,), np.float32),
                    "b": gym.spaces.Discrete(4),
                }
            ),
        }[obs]
        self.action_space = {
            "discrete": gym.spaces.Discrete(3),
            "parts": gym.spaces.MultiDiscrete([3, 2]),
        }[action]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.lives, self.steps = 4, 0
        return self.look(), {}

    def look(self):
        self.wanted = int(self.np_random.integers(0, 3))
        if isinstance(self.observation_space, gym.spaces.Dict):
            a = self.np_random.normal(size=3).astype(np.float32).clip(-5, 5)
            return {"a": a, "b": self.wanted}
        image = self.np_random.integers(0, 30, (24, 24, 1), dtype=np.uint8)
        image[8 * self.wanted : 8 * self.wanted + 8] += 200
        return image

    def step(self, action):
        right = int(np.ravel(action)[0]) == self.wanted
        self.lives -= not right
        self.steps += 1
        return self.look(), float(right), self.lives == 0, self.steps == 20, {}


class TinyCnn(torch.nn.Module):
    """A model of the user's own, for images."""

    def __init__(self, obs_space, outputs):
        super().__init__()
        self.encoder = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 8, 8), torch.nn.ReLU(), torch.nn.Flatten()
        )
        self.heads = torch.nn.Linear(36, outputs + 1)

    def forward(self, obs):
        found = self.heads(self.encoder(obs.permute(0, 3, 1, 2).float() / 255))
        return found[:, :-1], found[:, -1]


gym.register("Deadly-v0", Deadly, max_episode_steps=500)
gym.register("Image-v0", Scene)
gym.register("Dict-v0", Scene, kwargs={"obs": "dict"})
gym.register("Parts-v0", Scene, kwargs={"obs": "dict", "action": "parts"})

IMAGE, DICT, PARTS, DEADLY = (
    f"test_ppo:{name}-v0" for name in ("Image", "Dict", "Parts", "Deadly")
)
NORMALIZED = {"normalize_obs": True, "normalize_reward": True}
KINDS = {"CartPole-v1": {}, "Pendulum-v1": NORMALIZED, IMAGE: {"model": "test_ppo:TinyCnn"}}


def train(place, env="CartPole-v1", env_steps=FIFTY_UPDATES, workers=0, **options):
    return muster.train(
        "ppo",
        env,
        env_steps=env_steps,
        workers=workers,
        run_dir=str(place),
        **{**SMALL, **options},
    )


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """What one process alone comes to; each is trained once."""
    known = {}

    def _serial(env="CartPole-v1", seed=0, env_steps=FIFTY_UPDATES, **options):
        key = (env, seed, env_steps, *sorted(options.items()))
        if key not in known:
            place = tmp_path_factory.mktemp("serial") / "run"
            known[key] = train(place, env, env_steps, seed=seed, **options), place
        return known[key]

    return _serial


def curve(place):
    """Return the metrics of a run without what a clock, or who ran it, has to do with."""
    lines = map(json.loads, (Path(place) / "metrics.jsonl").read_text().splitlines())
    clocks = ("seconds", "time/", "speed/", "nodes/")
    return [{k: v for k, v in line.items() if not k.startswith(clocks)} for line in lines]


# ---- any number of workers


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("env", KINDS)
def test_any_number_of_workers_comes_to_the_same_policy(tmp_path, serial, env, seed, workers):
    wanted, place = serial(env, seed, **KINDS[env])
    found = train(tmp_path / "run", env, workers=workers, seed=seed, **KINDS[env])
    assert found.policy_sha256 == wanted.policy_sha256
    assert (found.train_iter, found.env_steps) == (wanted.train_iter, wanted.env_steps)
    assert found.train_iter >= 26 and found.eval_return_mean == wanted.eval_return_mean
    assert curve(tmp_path / "run") == curve(place)


@pytest.mark.parametrize("env", KINDS)
def test_different_seeds_give_different_policies_and_the_same_seed_the_same(tmp_path, serial, env):
    found = [serial(env, seed, **KINDS[env])[0].policy_sha256 for seed in range(3)]
    assert len(set(found)) == 3
    again = train(tmp_path / "run", env, seed=1, **KINDS[env])
    assert again.policy_sha256 == found[1]
    assert curve(tmp_path / "run") == curve(serial(env, 1, **KINDS[env])[1])


def resets(place):
    lines = [line.split() for path in place.iterdir() for line in path.read_text().splitlines()]
    return [(int(where), int(env), int(seed)) for where, env, seed in lines]


def test_seeds_of_workers_and_episodes_are_distinct_and_those_of_one_process(tmp_path, monkeypatch):
    found = {}
    for workers in (0, 2):
        place = tmp_path / f"seeds{workers}"
        place.mkdir()
        monkeypatch.setenv("MUSTER_SEEDS", str(place))
        Deadly.made = 0
        train(tmp_path / f"run{workers}", DEADLY, workers=workers, eval_episodes=1)
        found[workers] = resets(place)
    # The first ones are only made to look at their spaces; the last ones evaluate and measure.
    numbers = {0: range(3, 7), 2: range(2, 4)}
    # Of a run with workers only they train: the parent looks, too.
    wheres = {0: {-1}, 2: {0, 1}}
    training = {
        n: [each for each in found[n] if each[0] in wheres[n] and each[1] in numbers[n]]
        for n in found
    }
    for workers, all_ in training.items():
        seeds = [seed for _, _, seed in all_]
        assert len(set(seeds)) == len(seeds) >= 12, workers
        assert len({each[:2] for each in all_}) == 4, "not every environment was reset"
    assert {where for where, _, _ in training[2]} == {0, 1}
    assert {seed for _, _, seed in training[0]} == {seed for _, _, seed in training[2]}


@pytest.mark.parametrize("env", KINDS)
def test_the_first_observations_of_all_environments_are_distinct(env):
    with muster.envs.make_envs(env, 64, 0) as envs:
        rows = {row.tobytes() for row in envs.reset()}
    assert len(rows) == 64


# ---- going on


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_run_that_was_resumed_twice_equals_one_that_was_not(tmp_path, serial, env):
    wanted, place = serial(env, 0, **KINDS[env])
    for steps in (3 * LOOP, 8 * LOOP, FIFTY_UPDATES):
        part = train(tmp_path / "run", env, steps, resume=steps > 3 * LOOP, seed=0, **KINDS[env])
        assert part.env_steps == steps
    assert part.policy_sha256 == wanted.policy_sha256 and part.train_iter == wanted.train_iter
    assert saved(tmp_path / "run") == saved(place)


def saved(place):
    """Return all that the last checkpoint holds, as text and bytes."""

    def plain(tree):
        if isinstance(tree, dict):
            return {key: plain(value) for key, value in tree.items()}
        return (tree.dtype.str, tree.shape, tree.tobytes()) if hasattr(tree, "tobytes") else tree

    return plain(RunDirectory.open(place).checkpoints.load().parts)


def test_what_two_workers_saved_others_go_on_with(tmp_path, serial):
    wanted, place = serial("Pendulum-v1", 0, **NORMALIZED)
    steps = iter((2, 6, 11, 13))
    for workers in (2, 0, 4, 2):
        loops = next(steps)
        part = train(
            tmp_path / "run",
            "Pendulum-v1",
            loops * LOOP,
            workers,
            resume=loops > 2,
            seed=0,
            **NORMALIZED,
        )
    assert part.policy_sha256 == wanted.policy_sha256
    assert saved(tmp_path / "run") == saved(place)


def test_another_number_of_environments_is_refused_on_the_way(tmp_path):
    train(tmp_path / "run", env_steps=LOOP)
    with pytest.raises(OptionError, match="num_envs=4"):
        train(tmp_path / "run", env_steps=4 * LOOP, num_envs=8, resume=True)


# ---- kills


def killed(tmp_path, monkeypatch, where, who, at, env_steps=FIFTY_UPDATES, **options):
    """Train with two workers of which one is killed, and prove that it was."""
    told = tmp_path / "told"
    asked = {"where": where, "node": who, "at": at, "told": str(told), "width": 2}
    monkeypatch.setenv("MUSTER_KILL", json.dumps(asked))
    result = train(tmp_path / "run", DEADLY, env_steps, workers=2, **options)
    assert told.exists(), "nobody was killed"
    assert not Path("/proc", told.read_text()).exists()
    return result


@pytest.mark.parametrize(
    ("trial", "lag"),
    [
        (0, 0),
        (4, 1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 0), (2, 0), (3, 1))),
    ],
)
def test_a_killed_worker_changes_nothing(tmp_path, monkeypatch, serial, trial, lag):
    rng = random.Random(trial)
    options = {**NORMALIZED, "lag": lag}
    wanted, place = serial(DEADLY, trial, **options)
    at = rng.randrange(2, 2 * 8 * 13)
    found = killed(tmp_path, monkeypatch, "training", trial % 2, at, seed=trial, **options)
    assert found.policy_sha256 == wanted.policy_sha256
    assert (found.env_steps, found.train_iter) == (wanted.env_steps, wanted.train_iter)
    assert found.eval_return_mean == wanted.eval_return_mean
    assert saved(tmp_path / "run") == saved(place)


OFTEN = {"eval_every": 3 * LOOP, "checkpoint_every": 2 * LOOP}


@pytest.mark.parametrize(
    ("where", "at"), [("evaluation", 5), ("checkpoint", 2)], ids=["evaluates", "saves"]
)
def test_the_first_worker_may_be_killed_while_it(tmp_path, monkeypatch, serial, where, at):
    wanted, place = serial(DEADLY, 0, **OFTEN)
    found = killed(tmp_path, monkeypatch, where, 0, at, seed=0, **OFTEN)
    assert found.policy_sha256 == wanted.policy_sha256 and found.env_steps == wanted.env_steps
    assert saved(tmp_path / "run") == saved(place)
    steps = [line["env_step"] for line in curve(tmp_path / "run")]
    assert steps == sorted(steps)


@pytest.mark.parametrize(("where", "who"), [("checkpoint", 0), ("the end", 0), ("the end", 1)])
def test_a_worker_may_be_killed_when_all_have_learnt(tmp_path, monkeypatch, serial, where, who):
    """In the last save nobody has left yet; at the end all others have."""
    wanted, place = serial(DEADLY, 0)
    found = killed(tmp_path, monkeypatch, where, who, 1, seed=0)
    assert found.policy_sha256 == wanted.policy_sha256 and found.env_steps == wanted.env_steps
    assert saved(tmp_path / "run") == saved(place)


def evaluated(place):
    return [line["env_step"] for line in curve(place) if "eval/return" in line]


@pytest.mark.parametrize("how", ["killed", "resumed"])
def test_evaluations_are_where_they_are_without_a_fault(tmp_path, monkeypatch, serial, how):
    _, place = serial(DEADLY, 0, **OFTEN)
    if how == "killed":
        killed(tmp_path, monkeypatch, "training", 0, 2 * 8 * 7 + 3, seed=0, **OFTEN)
        wanted = evaluated(place)
    else:
        train(tmp_path / "run", DEADLY, 7 * LOOP, seed=0, **OFTEN)
        train(tmp_path / "run", DEADLY, resume=True, seed=0, **OFTEN)
        wanted = sorted({*evaluated(place), 7 * LOOP})  # the first part ended with one
    assert evaluated(tmp_path / "run") == wanted


def test_the_seconds_of_a_run_go_on_when_its_first_worker_is_killed(tmp_path, monkeypatch):
    found = killed(tmp_path, monkeypatch, "the end", 0, 1, seed=0)
    assert found.seconds >= 1.0, "its first life alone took a second"


# ---- signals


def command(place, *options):
    words = [sys.executable, "-m", "muster.cli.main", "train", "ppo", "CartPole-v1"]
    words += ["--run-dir", str(place), "--quiet"]
    given = {**SMALL, "stop_at": 1e9, "seed": 0}
    for name in ("num_envs", "rollout", "epochs", "minibatches", "horizon", "stop_at"):
        words += [f"--{name.replace('_', '-')}", str(given[name])]
    words += ["--hidden", "16", "--eval-every", "0", "--eval-episodes", "2", "--seed", "0"]
    return subprocess.Popen(
        [*words, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def test_sigterm_saves_exits_with_143_and_the_run_goes_on_from_there(tmp_path, serial):
    place = tmp_path / "run"
    driver = command(place, "--workers", "2", "--env-steps", "10000000", "--checkpoint-every", "64")
    deadline = time.monotonic() + 300
    while not list(place.glob("checkpoints/step-*")):
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    driver.send_signal(signal.SIGTERM)
    _, complaints = driver.communicate(timeout=300)
    assert driver.returncode == 143, complaints
    assert "Traceback" not in complaints
    step = RunDirectory.open(place).checkpoints.load().counters["env_step"]
    assert step % LOOP == 0
    after = step + 5 * LOOP
    found = train(place, env_steps=after, workers=0, resume=True, seed=0)
    assert found.policy_sha256 == serial(env_steps=after)[0].policy_sha256


# ---- options

VARIANTS = {
    "target_kl": {"target_kl": 1e-3, "lr": 0.01, "epochs": 6},
    "schedules": {"lr_end": 0.0, "clip_end": 0.01, "entropy_end": 0.0, "horizon": FIFTY_UPDATES},
    "value_clip": {"value_clip": 0.001},
    "plain": {"normalize_advantage": False, "max_grad_norm": None, "shared": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_option_trains_and_means_something(tmp_path, serial, variant):
    wanted, place = serial(seed=0, **VARIANTS[variant])
    again = train(tmp_path / "run", seed=0, **VARIANTS[variant])
    assert again.policy_sha256 == wanted.policy_sha256
    assert curve(tmp_path / "run") == curve(place)
    assert wanted.policy_sha256 != serial()[0].policy_sha256
    if variant == "target_kl":
        assert wanted.train_iter < 13 * 12


def test_options_that_decide_in_the_middle_of_a_loop_do_so_for_two_workers(tmp_path, serial):
    both = {**VARIANTS["target_kl"], **VARIANTS["value_clip"], "lr_end": 0.001, "clip_end": 0.1}
    wanted, _ = serial(seed=0, **both)
    found = train(tmp_path / "run", workers=2, seed=0, **both)
    assert (found.policy_sha256, found.train_iter) == (wanted.policy_sha256, wanted.train_iter)


@pytest.mark.parametrize(("env", "workers"), [(DICT, 0), (PARTS, 0), (PARTS, 2)])
def test_dict_observations_and_actions_of_several_parts_train(tmp_path, serial, env, workers):
    wanted, _ = serial(env, 0, **NORMALIZED)
    found = train(tmp_path / "run", env, workers=workers, seed=0, **NORMALIZED)
    assert found.policy_sha256 == wanted.policy_sha256 and np.isfinite(found.eval_return_mean)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"workers": 5}, ["workers=5", "slots=4"]),
        ({"workers": 2, "slots": 1}, ["workers=2", "slots=1"]),
        ({"num_envs": 6}, ["num_envs=6", "slots=4"]),
        ({"num_envs": 4, "slots": 8, "workers": 2}, ["num_envs=4", "slots=8"]),
        ({"minibatches": 3}, ["minibatches=3", "rollout=8"]),
        ({"minibatches": 16}, ["minibatches=16", "rollout=8"]),
    ],
    ids=str,
)
def test_contradictions_are_refused_before_any_process_starts(
    tmp_path, monkeypatch, options, named
):
    monkeypatch.setattr(muster.Parallel, "runner", lambda *a, **k: pytest.fail("it was started"))
    with pytest.raises(OptionError) as caught:
        train(tmp_path / "run", **options)
    assert all(name in str(caught.value) for name in named)
    assert not (tmp_path / "run").exists()
    # What is to be tried instead is possible.
    name, value = caught.value.args[2].split("=")
    monkeypatch.undo()
    train(tmp_path / "run", env_steps=1, **{**options, "workers": 0, name: int(value)})
