"""What `train` does differently when this process is one of several ranks."""

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.errors import ClusterError
from muster.recipes.failure import keep_traceback
from muster.recipes.graceful import StopRequest
from muster.recipes.job import Job
from muster.recipes.joining import Ranks
from muster.recipes.result import RunResult
from muster.run import Checkpoint

_OWN = ("from_checkpoint", "wandb", "workers", "learners", "learner_slots", "history")
"""Settings that concern rank 0 alone, or that every rank may have its own of."""


def common_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that all ranks must have in common, from those of `config.yaml`."""
    return {name: value for name, value in written.items() if name not in _OWN}


def to_hand_over(
    job: Job, written: Mapping[str, Any], start_from: Checkpoint | None, reached: str | None
) -> dict[str, Any]:
    """Return what the other ranks need, which have no copy of the run directory.

    Args:
        job: The job of rank 0.
        written: The content of `config.yaml`.
        start_from: The checkpoint to resume from, or with the first policy.
        reached: The limit that the run has already reached, if it has.
    """
    state = None
    if start_from is not None:
        names = start_from.parts if job.options.resume else ("policy",)
        state = {
            "step": start_from.step,
            "parts": {name: start_from.parts[name] for name in names},
            "counters": start_from.counters,
        }
    return {
        "config": dict(written),
        "backend": job.options.backend,
        "run_dir": job.run_dir,
        "state": state,
        "reached": reached,
    }


def as_recipe(ranks: Ranks) -> Callable[[Job, Any, StopRequest], RunResult]:
    """Return the program of a run that has ranks, for `train`."""

    def train_as_rank(job: Job, run: Any, stop: StopRequest) -> RunResult:
        from muster.recipes.in_step import main

        found: RunResult = ranks.run(
            main, job, stop, how_to_resume(ranks, job.run_dir), lambda result: result.policy_sha256
        )
        # The bound of several machines is not that of this one's cores.
        return replace(found, workers=ranks.world, rho=None, eta=None)

    return train_as_rank


@contextmanager
def failures_kept(ranks: Ranks) -> Iterator[None]:
    """Within this block, keep the traceback of a failure of a rank that has no run directory."""
    try:
        yield
    except ClusterError:  # another rank failed, and has its traceback
        raise
    except Exception as error:
        place = tempfile.mkdtemp(prefix=f"muster-rank{ranks.rank}-")
        keep_traceback(error, Path(place) / "main.log")
        raise


def how_to_resume(ranks: Ranks, run_dir: str) -> str:
    """Return the command that resumes a run whose ranks have failed."""
    return f"muster resume {shlex.quote(run_dir)} {ranks.options}, and start all other ranks again"
