"""`follow`: takes part in a run of `muster fit` as a rank other than 0, which writes no files."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.engines.logs import say
from muster.errors import OptionError
from muster.fitting.data import check_data
from muster.fitting.job import (
    AnyData,
    FitJob,
    check_same,
    make_augmentation,
    make_network,
    read_data,
)
from muster.fitting.loading import network_of
from muster.fitting.network import FittedNetwork
from muster.fitting.options import FitOptions
from muster.fitting.ranks import as_rank, common_settings, run_as_rank
from muster.fitting.result import FitResult, with_network
from muster.fitting.saved import changed, check_names, fit_of_config, resolve
from muster.nets.threads import one_torch_thread
from muster.recipes.graceful import StopRequest
from muster.recipes.join_options import Membership
from muster.recipes.joining import Ranks, attending
from muster.recipes.models import load_model
from muster.recipes.ranks import failures_kept
from muster.run import Checkpoint


def follow(joined: Membership, model: object, given: Mapping[str, Any]) -> FitResult:
    """Train as a rank other than 0, and return the same network as rank 0 does.

    Args:
        joined: How this command takes part.
        model: Name of the network; None for that of a run that is resumed.
        given: Options by name.
    """
    own = {name: value for name, value in given.items() if name not in ("run_dir", "resume")}
    if given.get("resume") is True:
        check_names(own)
        with attending(joined, None) as (ranks, told):
            named = model if isinstance(model, str) else None
            return follow_resumed(ranks, told, joined, named, own)
    name, options, _ = resolve(model, own)
    load_model(name)
    dataset = read_data(options)
    options = as_rank(options, joined)
    with attending(joined, common_settings(name, options, dataset)) as (ranks, told):
        return _train(ranks, name, options, dataset, told)


def follow_resumed(
    ranks: Ranks,
    told: Mapping[str, Any],
    joined: Membership,
    model: str | None,
    given: Mapping[str, Any],
) -> FitResult:
    """Take part in a run that rank 0 resumes, after it has handed over the run."""
    saved = fit_of_config(dict(told["config"]), Path(told["run_dir"]))
    if isinstance(given.get("data"), str):
        given = {**given, "data": os.path.abspath(given["data"])}
    options = as_rank(changed(saved, model, given), joined)
    try:
        check_data(options.data)
    except OptionError as error:
        what, why, _ = error.args
        raise OptionError(what, why, "data=PATH, where this machine has the data") from None
    load_model(saved.model)
    dataset = read_data(options)
    check_same(dataset, saved.data_sha256, f"since {saved.path} began")
    return _train(ranks, saved.model, options, dataset, told)


def _train(
    ranks: Ranks, model: str, options: FitOptions, dataset: AnyData, told: Mapping[str, Any]
) -> FitResult:
    make_augmentation(dataset, options)
    make_network(model, dataset, options)  # raises if the network does not fit the data
    state = told["state"]
    handed = None
    if state is not None:
        path = Path(told["run_dir"]) / "checkpoints"
        handed = Checkpoint(path, state["step"], state["parts"], state["counters"], state["meta"])
    options = replace(options, resume=handed is not None, run_dir=told["run_dir"])
    job = FitJob(model, options, dataset.sha256, told["run_dir"], handed=handed)
    if not options.quiet:
        say(f"rank {ranks.rank} of {ranks.world}; rank 0 writes {told['run_dir']}")
    stop = StopRequest()
    with stop.listening(), one_torch_thread(), failures_kept(ranks):
        if told["over"]:
            assert handed is not None
            ranks.wait_for_end()
            return _over(ranks, job, dataset, network_of(handed, model), handed)
        result = run_as_rank(ranks, job, stop)
    return replace(result, stop_signal=stop.signal)


def _over(
    ranks: Ranks, job: FitJob, dataset: AnyData, network: FittedNetwork, last: Checkpoint
) -> FitResult:
    """Return the result of a run that has done all its epochs; rank 0 evaluates it again."""
    result = FitResult(
        model=job.model,
        data=dataset.name,
        seed=job.options.seed,
        replicas=ranks.world,
        epochs=float(job.options.epochs),
        samples=last.step,
        train_iter=int(last.counters["train_iter"]),
        seconds=0.0,
        samples_per_s=0.0,
        train_loss=None,
        test_accuracy=None,
        test_loss=None,
        test_samples=0,
        best_test_accuracy=None,
        parameters=network.weights.vector.size,
        model_sha256=network.model_sha256(),
        data_sha256=job.data_sha256,
        stopped_by="epochs",
        run_dir=Path(job.run_dir),
    )
    return with_network(result, network)
