"""What `fit` does differently when this process is one of several ranks."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from muster.fitting.job import AnyData, FitJob
from muster.fitting.options import FitOptions
from muster.fitting.program import main
from muster.fitting.result import FitResult
from muster.recipes.graceful import StopRequest
from muster.recipes.join_options import Membership, check_slots
from muster.recipes.joining import Ranks
from muster.recipes.ranks import how_to_resume
from muster.run import Checkpoint

_OWN = frozenset({"data", "replicas"})
"""Options that each rank may have its own of: the data may be elsewhere, but is the same."""


def as_rank(options: FitOptions, joined: Membership) -> FitOptions:
    """Return the options of one rank: a single process."""
    check_slots(joined, options.slots)
    return replace(options, replicas=0)


def common_settings(model: str, options: FitOptions, dataset: AnyData) -> dict[str, Any]:
    """Return the settings that all ranks must have in common."""
    apart = options.OF_THE_COMMAND | _OWN
    told = {name: value for name, value in asdict(options).items() if name not in apart}
    return {"model": model, "data_sha256": dataset.sha256, **told}


def to_hand_over(
    job: FitJob, config: Mapping[str, Any], start_from: Checkpoint | None, over: bool
) -> dict[str, Any]:
    """Return what the other ranks need, which have no copy of the run directory.

    Args:
        job: The job of rank 0.
        config: The content of `config.yaml`.
        start_from: The checkpoint to resume from.
        over: Whether the run has done all its epochs.
    """
    state = None
    if start_from is not None:
        state = {
            "step": start_from.step,
            "parts": start_from.parts,
            "counters": start_from.counters,
            "meta": start_from.meta,
        }
    return {"config": dict(config), "run_dir": job.run_dir, "state": state, "over": over}


def run_as_rank(ranks: Ranks, job: FitJob, stop: StopRequest) -> FitResult:
    """Train together with the other ranks."""
    found: FitResult = ranks.run(
        main, job, stop, how_to_resume(ranks, job.run_dir), lambda result: result.model_sha256
    )
    return replace(found, replicas=ranks.world)
