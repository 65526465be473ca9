"""DQN with a memory as a run: the same to the bit, also across a stop; its policy remembers."""

import numpy as np
import pytest
from repeats import assert_same_across_a_stop

import muster

TINY = {
    "model": "lstm",
    "hidden": (8, 16),
    "batch_size": 8,
    "buffer_size": 2_000,
    "sequence": 10,
    "overlap": 5,
    "burn_in": 5,
    "learning_starts": 64,
    "train_every": 32,
    "updates_per_train": 4,
    "num_envs": 4,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 2,
    "quiet": True,
}


@pytest.mark.parametrize(
    "options", [{}, {"model": "gru", "prioritized": True, "double": True, "lr_end": 0.0}], ids=str
)
def test_it_repeats_itself_to_the_bit_also_across_a_stop(tmp_path, options):
    assert_same_across_a_stop(tmp_path, "dqn", "CartPole-v1", 224, 480, **{**TINY, **options})


def test_a_saved_policy_is_loaded_with_its_memory(tmp_path):
    run = tmp_path / "run"
    result = muster.train("dqn", "CartPole-v1", run_dir=str(run), env_steps=128, **TINY)
    policy = muster.load_policy(run)
    obs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    chosen = []
    for each in (policy, result.policy):
        each.reset()
        chosen.append([int(each.act(row)) for row in obs])
    assert policy.remembers and chosen[0] == chosen[1]
    with pytest.raises(muster.OptionError, match="sequence"):
        muster.resume(run, env_steps=256, sequence=12, quiet=True)


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_on_nodes_it_keeps_its_ratio(tmp_path):
    run = tmp_path / "run"
    result = muster.train(
        "dqn", "CartPole-v1", run_dir=str(run), env_steps=4_000, workers=3, **TINY
    )
    assert result.train_iter / (result.env_steps - 64) == pytest.approx(4 / 32, rel=0.02)
    policy = muster.load_policy(run)
    again = muster.workers.evaluate_policy(policy, "CartPole-v1", 2, result.seed)
    assert again.mean == result.eval_return_mean
