"""A run on roles goes on with more workers, fewer or none: its counters go on, nothing is lost."""

import json

import pytest

import muster

COMMON = {
    "num_envs": 4,
    "hidden": (16, 16),
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "quiet": True,
}
REPLAY = {"learning_starts": 64, "train_every": 32, "buffer_size": 2_000, "save_replay": True}
SHORT = {**REPLAY, "updates_per_train": 8, "batch_size": 16}
PROGRAMS = {
    "replay": ("dqn", SHORT),
    "stream": ("impala", {"unroll": 8}),
    "gradients": ("a3c", {}),
    "sac": ("sac", {**REPLAY, "updates_per_step": 0.25, "batch_size": 16}),
    "apex": ("apex", SHORT),
    "r2d2": ("r2d2", {**SHORT, "sequence": 8, "overlap": 4, "burn_in": 2, "n_step": 2}),
    "appo": ("appo", {"unroll": 8}),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "program",
    ["replay", *(pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS if n != "replay")],
)
def test_the_number_of_workers_may_change_on_resume(tmp_path, program):
    algo, options = PROGRAMS[program]
    run = tmp_path / "run"
    env = "Pendulum-v1" if algo == "sac" else "CartPole-v1"
    result = muster.train(
        algo, env, run_dir=str(run), env_steps=512, workers=3, **COMMON, **options
    )
    for workers in (5, "4..4", 0):
        before = result
        steps = before.env_steps + 512
        result = muster.resume(run, workers=workers, env_steps=steps, quiet=True)
        many = 4 if workers == "4..4" else workers
        assert (result.workers, result.stopped_by) == (many, "steps")
        assert result.workers_range == ((4, 4) if workers == "4..4" else None)
        assert result.env_steps >= steps and result.train_iter > before.train_iter
        assert result.policy_sha256 != before.policy_sha256
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for name in ("env_step", "train_iter"):
        found = [line[name] for line in lines if name in line]
        assert found == sorted(found), f"{name} never goes back"
