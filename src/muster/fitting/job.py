"""The job description that every replica of `muster fit` receives."""

from dataclasses import dataclass
from typing import Any

import cloudpickle

from muster.fitting.augment import Augmentation
from muster.fitting.batches import BatchPlan
from muster.fitting.classifier import Classifier
from muster.fitting.data import DIGITS, Dataset, load_data
from muster.fitting.errors import DataError
from muster.fitting.options import FitOptions
from muster.nets import registry
from muster.recipes.job import load_checkpoint
from muster.recipes.models import load_model
from muster.recipes.own_modules import modules_here
from muster.run import Checkpoint


@dataclass(frozen=True)
class FitJob:
    """What to train, on which data, and where to write the results."""

    model: str
    options: FitOptions
    data_sha256: str
    run_dir: str
    start_from: str | None = None
    """The checkpoint to resume from."""
    terminal: str | None = None
    """The device on which to show progress; None if standard error is not a terminal."""
    factory: bytes | None = None
    """Builds the user's own network, for nodes that cannot import it."""

    @property
    def replicas(self) -> int:
        """Number of processes to start; 0 to train in this process."""
        return 0 if self.options.replicas < 2 else self.options.replicas

    def arrive(self) -> None:
        """Register the network in this process."""
        if self.factory is not None and not registry.is_registered(self.model):
            with modules_here():
                registry.register_model(self.model, cloudpickle.loads(self.factory))
        load_model(self.model)

    def load_data(self) -> Dataset:
        """Read the data, which must be the same that the command read.

        Raises:
            DataError: The data has changed.
        """
        dataset = read_data(self.options)
        check_same(dataset, self.data_sha256, "since the run began")
        return dataset

    def checkpoint(self) -> Checkpoint | None:
        """Load the checkpoint to resume from, if any."""
        return None if self.start_from is None else load_checkpoint(self.start_from)

    def meta(self, dataset: Dataset) -> dict[str, Any]:
        """Return the metadata of a checkpoint."""
        return {
            "kind": "fit",
            "model": self.model,
            "data": dataset.name,
            "data_sha256": self.data_sha256,
            "norm": self.options.norm,
            "shape": list(dataset.shape),
            "classes": list(dataset.classes),
        }


def read_data(options: FitOptions) -> Dataset:
    """Read the data that the options name."""
    assert options.data is not None
    return load_data(options.data, options.split, options.seed)


def check_same(dataset: Dataset, sha256: object, when: str) -> None:
    """Raise DataError if the data has changed."""
    if dataset.sha256 != sha256:
        raise DataError(
            f"the data of {dataset.name} have changed {when}",
            "a resumed run must use the data that it began with",
            "the old data under --data, or a new run",
        )


def make_classifier(model: str, dataset: Dataset, options: FitOptions) -> Classifier:
    """Return a network for this data."""
    return Classifier(model, dataset.shape, dataset.classes, dataset.moments(), options)


def make_plan(dataset: Dataset, options: FitOptions) -> BatchPlan:
    """Return how the training set is divided into batches and slots."""
    return BatchPlan(len(dataset.y_train), options.batch_size, options.slots, options.seed)


def make_augmentation(dataset: Dataset, options: FitOptions) -> Augmentation:
    """Return the random changes of training images.

    Raises:
        DataError: Augmentation was requested, but samples are not images.
    """
    asked = options.augment
    if asked == "auto":
        asked = "both" if dataset.is_images and dataset.name != DIGITS else "none"
    if asked != "none" and not dataset.is_images:
        raise DataError(
            f"augment={asked} is not possible with {dataset.name}",
            "augmentation crops and mirrors images, and its samples are not images",
            "augment=none",
        )
    padding = options.padding if asked in ("crop", "both") else 0
    return Augmentation(padding, asked in ("flip", "both"), options.seed)
