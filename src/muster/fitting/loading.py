"""Loads a fitted network from a run or a checkpoint."""

from pathlib import Path

import numpy as np

from muster.fitting.classifier import Classifier
from muster.fitting.options import FitOptions
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
    checkpoint = run.checkpoints.load(found)
    return classifier_of(checkpoint, model)


def classifier_of(checkpoint: Checkpoint, model: str | None = None) -> Classifier:
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
    shape, classes = tuple(meta["shape"]), tuple(meta["classes"])
    nothing = np.zeros(shape[-1], np.float32), np.ones(shape[-1], np.float32)
    options = FitOptions(norm=str(meta["norm"]))  # type: ignore[arg-type]  # it checks it
    classifier = Classifier(model or name, shape, classes, nothing, options)
    classifier.load_parts({"policy": checkpoint.parts["policy"]})
    return classifier
