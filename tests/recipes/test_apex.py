"""Ape-X as a run: the same to the bit; on nodes it keeps its ratio and has its epsilons."""

import json

import numpy as np
import pytest
from repeats import assert_same_across_a_stop

import muster

TINY = {
    "hidden": (16, 16),
    "batch_size": 16,
    "buffer_size": 2_000,
    "learning_starts": 64,
    "train_every": 32,
    "updates_per_train": 8,
    "num_envs": 4,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "quiet": True,
}


def train(folder, **options):
    return muster.train("apex", "CartPole-v1", run_dir=str(folder), **{**TINY, **options})


@pytest.mark.parametrize("options", [{}, {"prioritized": False, "buffer_size": 200}])
def test_it_repeats_itself_to_the_bit_also_across_a_stop(tmp_path, options):
    assert_same_across_a_stop(tmp_path, "apex", "CartPole-v1", 320, 640, **{**TINY, **options})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shards", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_on_nodes_it_keeps_its_ratio_and_actors_have_epsilons_of_their_own(tmp_path, shards):
    result = train(tmp_path / "run", workers=4 + shards, replay_shards=shards, env_steps=4_000)
    assert result.workers == 4 + shards
    drawn = result.train_iter * 16 / (result.env_steps - 64)
    assert drawn == pytest.approx(16 * 8 / 32, rel=0.02 if not shards else 0.03)
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = {round(line["collect/epsilon"], 9) for line in lines if "collect/epsilon" in line}
    all_of_them = 0.4 ** (1 + 7 * np.arange(8) / 7)
    # A line has that of the actor whose fragment came last: one of the two, or each in turn.
    assert found and found <= {round(float(part.mean()), 9) for part in np.split(all_of_them, 2)}
    assert any("lag/max" in line for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [0, 4])
def test_it_learns_to_balance(tmp_path, workers):
    result = muster.train(
        "apex", "CartPole-v1", run_dir=str(tmp_path / "run"), workers=workers, quiet=True
    )
    assert result.eval_return_mean >= 475 and result.eval_episodes == 100


def test_actions_of_a_box_are_refused_in_three_lines(tmp_path):
    with pytest.raises(muster.OptionError, match="Ape-X needs Discrete actions"):
        muster.train("apex", "Pendulum-v1", run_dir=str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
