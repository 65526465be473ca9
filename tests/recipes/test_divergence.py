"""C8 of the fault catalogue: numbers that are none in the middle of training.

The run stops, says what and where, names the last good checkpoint, and no checkpoint that it leaves
holds a NaN or an infinity in any part.
"""

import random

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from muster.algos.dqn import DQN
from muster.cli.main import main
from muster.middleware.guard import GuardError
from muster.recipes.policy import load_policy
from muster.recipes.train import train
from muster.run import RunDirectory

SMALL = {
    "hidden": (16, 16),
    "train_every": 32,
    "updates_per_train": 4,
    "target_update": 8,
    "learning_starts": 64,
    "buffer_size": 500,
    "batch_size": 16,
    "stop_at": None,
    "eval_every": 64,
    "eval_episodes": 2,
    "checkpoint_every": 64,
    "env_steps": 640,
    "quiet": True,
}


class GoldRush(CartPoleEnv):
    """CartPole whose rewards become as large as a float32 can be."""

    steps = 0

    def step(self, action):
        GoldRush.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, 3e38 if GoldRush.steps > 400 else reward, terminated, truncated, info


gym.register("GoldRush-v0", GoldRush, max_episode_steps=500)


@pytest.fixture(autouse=True)
def no_gold_yet():
    GoldRush.steps = 0


def published(path):
    """Every checkpoint that is there, with what `last` and `best` point at."""
    run = RunDirectory.open(path)
    store, best = run.checkpoints, run.best.load()
    named = [store.path / name.name for name in store.path.glob("step-*")]
    assert {store.last()} <= {*named, None}
    return [*map(store.load, named), *([] if best is None else [best])]


def arrays(tree):
    if isinstance(tree, dict):
        for value in tree.values():
            yield from arrays(value)
    elif isinstance(tree, np.ndarray):
        yield tree


def not_finite(checkpoint):
    return [a for a in arrays(checkpoint.parts) if a.dtype.kind == "f" and not np.isfinite(a).all()]


def check_what_is_left(path, error):
    what, _, fix = str(error).splitlines()
    last = RunDirectory.open(path).checkpoints.last()
    assert "env_step" in what and "train_iter" in what
    log = path / "logs" / "main.log"
    assert fix == f"  try: --from-checkpoint {last}, with a smaller --lr; see {log}"
    assert "GuardError" in log.read_text()
    assert [each for each in published(path) if not_finite(each)] == []
    assert load_policy(last).act(np.zeros(4, np.float32)) in (0, 1)


def test_a_loss_that_is_none_ends_the_run_with_the_last_good_checkpoint(tmp_path):
    with pytest.raises(GuardError) as caught:
        train("dqn", "GoldRush-v0", run_dir=str(tmp_path / "run"), huber=False, **SMALL)
    assert str(caught.value).startswith("the loss is inf")
    check_what_is_left(tmp_path / "run", caught.value)


def test_the_command_ends_with_code_1_and_three_lines(tmp_path, capsys):
    words = ["--run-dir", str(tmp_path / "run"), "--no-huber", "--quiet", "--env-steps", "9999"]
    words += ["--train-every", "32", "--learning-starts", "64", "--checkpoint-every", "64"]
    assert main(["train", "dqn", "GoldRush-v0", *words, "--eval-every", "0"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("muster: the loss is inf") and len(shown.splitlines()) == 3
    assert str(tmp_path / "run" / "checkpoints" / "step-") in shown


# NumPy says so when it acts with such weights, and training is not to depend on that.
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("every", [32, 96])
@pytest.mark.parametrize("part", ["policy", "target", "optimizer"])
def test_no_checkpoint_with_a_nan_is_ever_published(tmp_path, monkeypatch, part, every):
    """Five seeds each; with every=32 each loop saves, so the fault is always in one that does."""
    update_many = DQN.update_many
    stopped = 0
    for seed in range(5):
        rng = random.Random(seed)
        at, value = rng.randrange(1, 18), rng.choice([np.nan, np.inf, -np.inf])
        calls = 0

        def poisoned(agent, batches, at=at, value=value, rng=rng):
            nonlocal calls
            metrics = update_many(agent, batches)
            calls += 1
            if calls == at:
                poison(agent, part, rng, value)
            return metrics

        monkeypatch.setattr(DQN, "update_many", poisoned)
        path = tmp_path / str(seed)
        options = {**SMALL, "checkpoint_every": every, "eval_every": every, "seed": seed}
        try:
            train("dqn", "CartPole-v1", run_dir=str(path), **options)
        except GuardError:
            stopped += 1
        assert calls >= at, "the fault landed"
        assert [each.path for each in published(path) if not_finite(each)] == []
    assert stopped == 5


def poison(agent, part, rng, value):
    """Write past all checks, as a broken kernel would."""
    if part == "optimizer":
        array = getattr(agent._adam, rng.choice(["mean", "square"]))
    else:
        array = (agent.weights if part == "policy" else agent._target_weights).vector
    array[rng.randrange(array.size)] = value


def test_without_a_fault_the_same_runs_come_to_their_end(tmp_path):
    for seed in range(5):
        path = tmp_path / str(seed)
        result = train("dqn", "CartPole-v1", run_dir=str(path), **{**SMALL, "seed": seed})
        assert result.stopped_by == "steps"
        found = published(path)
        assert len(found) >= 3 and not any(map(not_finite, found))
