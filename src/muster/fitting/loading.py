"""Loads a fitted network from a run or a checkpoint."""

from pathlib import Path

import numpy as np

from muster.fitting.classifier import Classifier
from muster.fitting.clone import Clone
from muster.fitting.network import FittedNetwork
from muster.fitting.options import FitOptions
from muster.recipes.clones import no_network_named
from muster.recipes.models import load_model, refuse_code_of_a_file
from muster.run import Checkpoint, CheckpointError, RunDirectory


def load_classifier(path: str | Path, model: str | None = None) -> Classifier:
    """Return the network that a run has fitted, ready to classify.

    Args:
        path: A run directory (its best checkpoint, else the last), or a checkpoint in it.
        model: Needed only if the network is your own code: a file does not decide which code is
            run.

    Raises:
        CheckpointError: It is damaged, or not from `muster fit`.
    """
    run = RunDirectory.open(path)
    found = run.checkpoint or run.best.path()
    network = network_of(run.checkpoints.load(found), model)
    if not isinstance(network, Classifier):
        raise CheckpointError(
            f"{run.path} holds a policy, not a classifier",
            "it was cloned from recorded episodes",
            f"muster.load_policy({str(run.path)!r})",
        )
    return network


def network_of(checkpoint: Checkpoint, model: str | None = None) -> FittedNetwork:
    """Return the network of a checkpoint."""
    meta = checkpoint.meta
    if meta.get("kind") != "fit":
        raise CheckpointError(
            f"{checkpoint.path} is not a network of muster fit",
            f"it is of {meta.get('algo', 'something else')}",
            "muster.load_policy, for what muster train has learnt",
        )
    name = str(meta["model"])
    if model is None:
        refuse_code_of_a_file(name, checkpoint.path)
    load_model(model or name)
    network: FittedNetwork
    if "clone" in meta:
        network = _clone(model or name, checkpoint)
    else:
        shape, classes = tuple(meta["shape"]), tuple(meta["classes"])
        nothing = np.zeros(shape[-1], np.float32), np.ones(shape[-1], np.float32)
        options = FitOptions(norm=str(meta["norm"]))  # type: ignore[arg-type]  # it checks it
        network = Classifier(model or name, shape, classes, nothing, options)
    network.load_parts({"policy": checkpoint.parts["policy"]})
    return network


def _clone(model: str, checkpoint: Checkpoint) -> Clone:
    try:
        return Clone.of_meta(model, dict(checkpoint.meta["clone"]), str(checkpoint.meta["norm"]))
    except (KeyError, TypeError, ValueError) as error:
        raise no_network_named(checkpoint, error) from error
