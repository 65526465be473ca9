"""PPO of muster: the speeds are read off the metrics that a run has written."""

import json
import tempfile
import threading
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


def run(
    trial: Speed | Solve, workers: int, engine: str = "local", warm_lines: int = WARM_LINES
) -> dict[str, Any]:
    """Train, and return what was measured."""
    options = {**ppo_options(trial, workers), "hidden": trial.recipe.hidden, "engine": engine}
    if isinstance(trial, Solve):
        return _solve(trial, options)
    return speed(trial.recipe.env, options, trial.seconds, warm_lines)


def pong(trial: Speed, workers: int) -> dict[str, Any]:
    """Train on Pong, and return what was measured."""
    return speed("Pong-v5", ppo_options(trial, workers), trial.seconds, warm_lines=0)


def speed(
    env: str,
    options: dict[str, Any],
    seconds: float,
    warm_lines: int = WARM_LINES,
    algo: str = "ppo",
) -> dict[str, Any]:
    """Return steps per second between the first lines of the metrics and the last.

    Beside it `train_steps_per_s`, as `result.json` has it; `start_s`, from the call until the first
    line; and `end_s`, what is left of the call when the last is written.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        watch = _Watch(run_dir / "metrics.jsonl")
        done = train(
            algo,
            env,
            run_dir=str(run_dir),
            env_steps=10**9,
            seconds=seconds,
            stop_at=None,
            eval_every=0,
            eval_episodes=1,
            **options,
        )
        took_all = watch.stop()
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    if len(lines) < warm_lines + 3:
        raise SystemExit(f"{seconds:g} s were too few: {len(lines)} lines of metrics")
    first, last = lines[warm_lines], lines[-2]  # the last is written after the final evaluation
    env_steps, took = last["env_step"] - first["env_step"], last["seconds"] - first["seconds"]
    return {
        "steps_per_s": round(env_steps / took, 1),
        "cpu_share": round(watch.cpu_share(), 2),
        "env_steps": env_steps,
        "seconds": round(took, 2),
        "train_steps_per_s": round((done.speed or {}).get("steps_per_s", 0.0), 1),
        "busy_elsewhere": round((done.speed or {}).get("busy_elsewhere", 0.0), 3),
        "start_s": round(watch.start_s, 2),
        "end_s": round(took_all - watch.start_s - (lines[-1]["seconds"] - lines[0]["seconds"]), 2),
    }


class _Watch:
    """Sees from a thread when a run writes its first metrics, and what CPU time it takes then.

    It looks while the run goes on: of processes that are gone, Ray's tell nobody what they took.

    Args:
        metrics: The file that the run writes.
    """

    def __init__(self, metrics: Path) -> None:
        self.start_s = 0.0
        self._metrics = metrics
        self._started = time.perf_counter()
        self._marks: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """End it, and return the seconds since it began."""
        took = time.perf_counter() - self._started
        self._stopped.set()
        self._thread.join()
        return took

    def cpu_share(self) -> float:
        """Return the share of a core that all processes took while it trained."""
        if len(self._marks) < 2:
            return 0.0
        (first, first_cpu), (last, last_cpu) = self._marks[0], self._marks[-1]
        return (last_cpu - first_cpu) / (last - first)

    def _look(self) -> None:
        while not self._stopped.wait(0.02):
            if self._metrics.exists() and self._metrics.stat().st_size:
                break
        self.start_s = time.perf_counter() - self._started
        cpu = 0.0
        while not self._stopped.wait(0.5):
            if (now := cpu_seconds()) < cpu:
                return  # processes have begun to end
            cpu = now
            self._marks.append((time.perf_counter(), cpu))


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


def ppo_options(trial: Trial, workers: int) -> dict[str, Any]:
    """Return the recipe of a trial as options of `train`."""
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
