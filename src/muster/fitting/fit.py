"""`fit`: from the names of a network and of data to a finished run."""

import os
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.engines.logs import say
from muster.fitting.episodes import EpisodeData
from muster.fitting.job import (
    AnyData,
    FitJob,
    check_same,
    make_augmentation,
    make_network,
    make_plan,
    read_data,
)
from muster.fitting.loading import network_of
from muster.fitting.network import LOSS, SAMPLES, FittedNetwork
from muster.fitting.options import FitOptions
from muster.fitting.program import fit_replicas
from muster.fitting.result import FitResult, best_of, with_network
from muster.fitting.saved import SavedFit, resolve, to_write
from muster.framework import Parallel
from muster.nets import registry
from muster.nets.threads import one_torch_thread
from muster.recipes.failure import keep_failure
from muster.recipes.graceful import StopRequest
from muster.recipes.models import load_model, name_of_model
from muster.recipes.own_code import pickled
from muster.recipes.progress import name_of_terminal
from muster.run import Checkpoint, RunDirectory
from muster.shown import shown


def fit(model: Any = None, data: str | Path | None = None, **options: Any) -> FitResult:
    """Train a network on labelled data or recorded episodes, in a run that can be resumed.

    Args:
        model: Name of the network: `resnet20`, `mlp`, a registered one, `module:Class`, or a class
            or function of (space, classes). Not needed to resume a run.
        data: `digits`, or the path of CIFAR, of folders of images by class, of an `.npz` file, or
            of recorded episodes, whose policy is then cloned.
        **options: Fields of `FitOptions`.
    """
    name = name_of_model(model)
    given = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    if data is not None:
        given["data"] = os.fspath(data)
    model, chosen, saved = resolve(name, given)
    load_model(model)
    dataset = read_data(chosen)
    if saved is not None:
        check_same(dataset, saved.data_sha256, f"since {shown(saved.path)} began")
    if chosen.replicas > 1:  # they import torch while this process does
        Parallel.prepare("muster.fitting.program")
    make_augmentation(dataset, chosen)
    network = make_network(model, dataset, chosen)
    factory = _factory(model, chosen)
    stop = StopRequest()
    with stop.listening(), one_torch_thread(), _opened(model, dataset, chosen, saved) as run:
        start_from = None if saved is None else _to_resume(run, network)
        if saved is not None:
            run.note_start()
        job = FitJob(
            model,
            chosen,
            dataset.sha256,
            str(run.path),
            None if start_from is None else str(start_from.path),
            name_of_terminal(),
            factory,
        )
        samples = 0 if start_from is None else start_from.step
        if not chosen.quiet:
            say(f"run directory: {shown(run.path)}")
        about = dataset.written if isinstance(dataset, EpisodeData) else {}
        run.write_config(to_write(model, chosen, dataset.sha256, saved, samples, about))
        try:
            result = _trained(job, run, stop, dataset, start_from)
        except Exception as error:
            keep_failure(error, run)
            raise
        result = replace(result, stop_signal=stop.signal)
        run.write_result(result.as_json())
    return result


def _opened(
    model: str, dataset: AnyData, options: FitOptions, saved: SavedFit | None
) -> RunDirectory:
    if saved is not None:
        return RunDirectory.open(saved.path, writable=True)
    return RunDirectory.create(options.run_dir, dataset.name, model, options.seed)


def _to_resume(run: RunDirectory, network: FittedNetwork) -> Checkpoint:
    """Load the checkpoint to resume from, and check that it fits."""
    found = run.checkpoints.load()
    network_of(found, network.model)
    return found


def _factory(model: str, options: FitOptions) -> bytes | None:
    """Return what replicas need to build the user's own network."""
    if options.replicas < 2 or registry.is_built_in(model):
        return None
    return pickled(f"the model {model!r:.80}", registry.get_model(model), "replicas=1")


def _trained(
    job: FitJob,
    run: RunDirectory,
    stop: StopRequest,
    dataset: AnyData,
    start_from: Checkpoint | None,
) -> FitResult:
    """Train, or complete a run that has done all its epochs; return the result."""
    updates = job.options.epochs * make_plan(dataset, job.options).batches
    if start_from is not None and int(start_from.counters["train_iter"]) >= updates:
        return _completed(job, run, dataset, start_from)
    run.forget_result()
    result: FitResult
    try:
        with stop.left_to_nodes() if job.replicas else nullcontext():
            result = fit_replicas(job, run, stop)
    except (KeyboardInterrupt, SystemExit):
        left = run.read_result() if job.replicas else None
        found = None if left is None else FitResult.from_json(left)
        if found is None or found.stop_signal is None:
            raise
        result = found
        stop.signal = result.stop_signal
    if job.replicas:
        last = network_of(run.checkpoints.load(), job.model)
        result = with_network(result, last)
    return result


def _completed(job: FitJob, run: RunDirectory, dataset: AnyData, last: Checkpoint) -> FitResult:
    """Return the result of a run that has done all its epochs, after evaluating it again."""
    started = time.monotonic()
    network = network_of(last, job.model)
    found = network.judge_all(dataset.x_test, dataset.y_test)
    epochs = last.counters["train_iter"] / make_plan(dataset, job.options).batches
    result = FitResult(
        model=job.model,
        data=dataset.name,
        seed=job.options.seed,
        replicas=max(1, job.replicas),
        epochs=epochs,
        samples=last.step,
        train_iter=int(last.counters["train_iter"]),
        seconds=time.monotonic() - started,
        samples_per_s=0.0,
        train_loss=None,
        test_accuracy=network.score(found) if network.has_accuracy else None,
        test_loss=float(found[LOSS] / found[SAMPLES]),
        test_samples=int(found[SAMPLES]),
        **best_of(run.best.score(), network),
        parameters=network.weights.vector.size,
        model_sha256=network.model_sha256(),
        data_sha256=job.data_sha256,
        stopped_by="epochs",
        run_dir=run.path,
    )
    return with_network(result, network)
