"""The job description that every replica of `muster fit` receives."""

from dataclasses import dataclass
from typing import Any

import cloudpickle
import gymnasium as gym

from muster.errors import OptionError
from muster.fitting.augment import Augmentation
from muster.fitting.batches import BatchPlan
from muster.fitting.classifier import Classifier
from muster.fitting.clone import Clone
from muster.fitting.data import DIGITS, Dataset, load_data
from muster.fitting.episodes import EpisodeData
from muster.fitting.errors import DataError
from muster.fitting.network import FittedNetwork
from muster.fitting.options import OF_CLONES, FitOptions
from muster.nets import registry
from muster.recipes.job import load_checkpoint
from muster.recipes.models import load_model
from muster.recipes.own_modules import modules_here
from muster.run import Checkpoint

AnyData = Dataset | EpisodeData


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

    def load_data(self) -> AnyData:
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

    def meta(self, dataset: AnyData, network: FittedNetwork) -> dict[str, Any]:
        """Return the metadata of a checkpoint."""
        return {
            "kind": "fit",
            "model": self.model,
            "data": dataset.name,
            "data_sha256": self.data_sha256,
            "norm": self.options.norm,
            **network.meta,
        }


def read_data(options: FitOptions) -> AnyData:
    """Read the data that the options name."""
    assert options.data is not None
    return load_data(options.data, options.split, options.seed)


def check_same(dataset: AnyData, sha256: object, when: str) -> None:
    """Raise DataError if the data has changed."""
    if dataset.sha256 != sha256:
        raise DataError(
            f"the data of {dataset.name} have changed {when}",
            "a resumed run must use the data that it began with",
            "the old data under --data, or a new run",
        )


def make_network(model: str, dataset: AnyData, options: FitOptions) -> FittedNetwork:
    """Return a network for this data.

    Raises:
        OptionError: An option is of no use with this data.
    """
    if isinstance(dataset, EpisodeData):
        _check_cloning(options, dataset)
        spaces = dataset.obs_space, dataset.action_space
        return Clone(model, *spaces, options, dataset.x_train, dataset.env)
    _refuse_options_of_clones(options, dataset)
    return Classifier(model, dataset.shape, dataset.classes, dataset.moments(), options)


def _check_cloning(options: FitOptions, dataset: EpisodeData) -> None:
    if options.norm != FitOptions.norm:
        raise OptionError(
            f"norm={options.norm} is not possible with recorded episodes",
            "their network is that of muster train, in which a resnet normalises by groups",
            "leave norm out",
        )
    if options.stop_at is not None and isinstance(dataset.action_space, gym.spaces.Box):
        raise OptionError(
            f"stop_at={options.stop_at} is not possible with actions in {dataset.action_space}",
            "it is an accuracy, and such actions are never exactly right",
            "epochs=20",
        )


def _refuse_options_of_clones(options: FitOptions, dataset: Dataset) -> None:
    for name in OF_CLONES:
        value = getattr(options, name)
        if value != getattr(FitOptions, name):
            raise OptionError(
                f"{name}={value} is not possible with {dataset.name}",
                "it is an option of policies, which are cloned from recorded episodes",
                f"leave {name} out",
            )


def make_plan(dataset: AnyData, options: FitOptions) -> BatchPlan:
    """Return how the training set is divided into batches and slots."""
    return BatchPlan(len(dataset.y_train), options.batch_size, options.slots, options.seed)


def make_augmentation(dataset: AnyData, options: FitOptions) -> Augmentation:
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
            "augmentation crops and mirrors images, and its samples are not images"
            if isinstance(dataset, Dataset)
            else "an action that was right for an image may be wrong for its mirror image",
            "augment=none",
        )
    padding = options.padding if asked in ("crop", "both") else 0
    return Augmentation(padding, asked in ("flip", "both"), options.seed)
