"""R2D2 as a run: the same to the bit, also across a stop; on nodes it keeps its ratio."""

import json

import pytest
from repeats import assert_same_across_a_stop

import muster

TINY = {
    "hidden": (8, 16),
    "batch_size": 8,
    "buffer_size": 2_000,
    "sequence": 10,
    "overlap": 5,
    "burn_in": 5,
    "last_action": True,
    "learning_starts": 64,
    "train_every": 32,
    "updates_per_train": 4,
    "num_envs": 4,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 2,
    "quiet": True,
}
HIDDEN = "benchmarks.hidden_cartpole:HiddenCartPole-v0"


def train(folder, **options):
    return muster.train("r2d2", "CartPole-v1", run_dir=str(folder), **{**TINY, **options})


@pytest.mark.parametrize(
    "options",
    [{}, {"model": "gru", "dueling": False, "prioritized": False, "buffer_size": 400}],
    ids=["lstm", "gru"],
)
def test_it_repeats_itself_to_the_bit_also_across_a_stop(tmp_path, options):
    assert_same_across_a_stop(tmp_path, "r2d2", "CartPole-v1", 224, 480, **{**TINY, **options})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shards", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_on_nodes_it_keeps_its_ratio_and_the_policy_that_was_evaluated(tmp_path, shards):
    run = tmp_path / "run"
    result = train(run, workers=3 + shards, replay_shards=shards, env_steps=4_000)
    assert result.workers == 3 + shards
    drawn = result.train_iter * 8 / (result.env_steps - 64)
    assert drawn == pytest.approx(8 * 4 / 32, rel=0.02 if not shards else 0.03)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("lag/max" in line for line in lines)
    policy = muster.load_policy(run)
    again = muster.workers.evaluate_policy(policy, "CartPole-v1", 2, result.seed)
    assert again.mean == result.eval_return_mean


def test_an_own_network_and_a_resume_with_other_sequences_are_refused(tmp_path):
    with pytest.raises(muster.OptionError, match="model='mlp' is not possible"):
        train(tmp_path / "run", model="mlp")
    train(tmp_path / "run", env_steps=96)
    with pytest.raises(muster.OptionError, match="sequence"):
        muster.resume(tmp_path / "run", env_steps=200, sequence=12, quiet=True)


def test_velocities_are_hidden_and_nothing_else():
    from muster.envs import make_envs

    with make_envs(HIDDEN, 2, seed=3) as hidden, make_envs("CartPole-v1", 2, seed=3) as plain:
        some, all_ = hidden.reset(), plain.reset()
        for _ in range(20):
            assert (some == all_[:, [0, 2]]).all()
            some, all_ = hidden.step([0, 1])[0], plain.step([0, 1])[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", [0, 3])
def test_it_learns_to_balance(tmp_path, workers):
    result = muster.train(
        "r2d2", "CartPole-v1", run_dir=str(tmp_path / "run"), workers=workers, quiet=True
    )
    assert result.eval_return_mean >= 475 and result.eval_episodes == 100
