"""PPO of muster: the speeds are read off the metrics that a run has written."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.trial import (
    CHECK_EVERY,
    ENV,
    EPISODES,
    SOLVED,
    Solve,
    Speed,
    Trial,
    age,
    cpu_seconds,
)

from muster import train

WARM_LINES = 5
"""Of the metrics, each of some rollouts, before the clock starts. Rollouts of Pong take seconds."""


def run(trial: Speed | Solve, workers: int) -> dict[str, Any]:
    """Train on CartPole, and return what was measured."""
    options = {**_options(trial, workers), "hidden": trial.recipe.hidden}
    if isinstance(trial, Solve):
        return _solve(trial, options)
    return speed(ENV, options, trial.seconds)


def pong(trial: Speed, workers: int) -> dict[str, Any]:
    """Train on Pong, and return what was measured."""
    return speed("Pong-v5", _options(trial, workers), trial.seconds, warm_lines=0)


def speed(
    env: str, options: dict[str, Any], seconds: float, warm_lines: int = WARM_LINES
) -> dict[str, Any]:
    """Return steps per second between the first lines of the metrics and the last."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        cpu, started = cpu_seconds(), time.perf_counter()
        train(
            "ppo",
            env,
            run_dir=str(run_dir),
            env_steps=10**9,
            seconds=seconds,
            stop_at=None,
            eval_every=0,
            eval_episodes=1,
            **options,
        )
        share = (cpu_seconds() - cpu) / (time.perf_counter() - started)
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    first, last = lines[warm_lines], lines[-2]  # the last is written after the final evaluation
    env_steps, took = last["env_step"] - first["env_step"], last["seconds"] - first["seconds"]
    return {
        "steps_per_s": round(env_steps / took, 1),
        "cpu_share": round(share, 2),
        "env_steps": env_steps,
        "seconds": round(took, 2),
    }


def _solve(trial: Solve, options: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds until an evaluation has passed. Here, those of evaluations count."""
    with tempfile.TemporaryDirectory() as folder:
        done = train(
            "ppo",
            ENV,
            run_dir=str(Path(folder) / "run"),
            env_steps=trial.limit,
            stop_at=SOLVED,
            eval_every=CHECK_EVERY,
            eval_episodes=EPISODES,
            **options,
        )
        seconds = age()
    solved = done.stopped_by == "target"
    return {
        "greedy_seconds": round(seconds, 2) if solved else None,
        "greedy_env_steps": done.env_steps if solved else None,
        "training_seconds": None,
        "training_env_steps": None,
        "env_steps": done.env_steps,
        "seconds": round(seconds, 2),
        "cpu_share": round(cpu_seconds() / seconds, 2),
    }


def _options(trial: Trial, workers: int) -> dict[str, Any]:
    recipe = trial.recipe
    return {
        "workers": workers,
        "num_envs": recipe.num_envs,
        "rollout": recipe.rollout,
        "epochs": recipe.epochs,
        "minibatches": recipe.minibatches,
        "lr": recipe.lr,
        "gae_lambda": recipe.gae_lambda,
        "clip": recipe.clip,
        "entropy_coef": recipe.entropy_coef,
        "seed": trial.seed,
        "checkpoint_every": 0,
        "quiet": True,
    }
