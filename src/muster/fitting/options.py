"""The options of `muster fit`. Imports nothing slow."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from muster.algos.options import (
    MOST_LR,
    Activation,
    check_choice,
    check_flag,
    check_number,
    check_text,
    check_whole,
    check_widths,
    refuse_together,
)
from muster.errors import OptionError
from muster.recipes.options import MOST_SEED

Optimizer = Literal["sgd", "adam"]
Schedule = Literal["constant", "step", "cosine"]
Augment = Literal["auto", "none", "crop", "flip", "both"]
NormName = Literal["batch", "group", "none"]
Loss = Literal["auto", "mse", "nll"]
OF_CLONES = ("loss", "hidden", "activation", "shared", "normalize_obs")
"""Options that only recorded episodes can have."""
MOST_REPLICAS = 256
MOST_SLOTS = 256
_LR = {"sgd": 0.1, "adam": 1e-3}


@dataclass(frozen=True)
class FitOptions:
    """Train a network on labelled data, on one process or on several with the same result."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = frozenset(
        {"seed", "batch_size", "slots", "norm", "optimizer", "split", *OF_CLONES}
    )
    """Options that define a run: a resumed run may not change them."""
    OF_THE_COMMAND: ClassVar[frozenset[str]] = frozenset({"run_dir", "resume", "quiet"})
    """Options that belong to one command, not to the run."""

    data: str | None = None
    """digits; or a path: CIFAR, folders of images by class, an .npz file, recorded episodes."""
    epochs: int = 20
    """Passes over the training set, in total."""
    batch_size: int = 64
    """Samples of one update, over all replicas."""
    replicas: int = 1
    """Processes that compute gradients. 0 or 1: this one. Any number gives the same bits."""
    slots: int = 4
    """Shares that a batch is divided into, for any --replicas; batch norm is over one share."""
    optimizer: Optimizer = "sgd"
    """sgd, with momentum; or adam."""
    lr: float | None = None
    """Learning rate. None: 0.1 for sgd, 0.001 for adam."""
    momentum: float = 0.9
    """For sgd: how much of the last step is kept."""
    weight_decay: float = 2e-4
    """Share by which weights shrink, times the learning rate; excludes biases and norms."""
    schedule: Schedule = "cosine"
    """How the learning rate falls: constant, step (at --drop-at), or cosine, to 0."""
    horizon: int | None = None
    """Epochs that the schedule is planned for. None: --epochs of the run's first command."""
    drop_at: tuple[int, ...] = ()
    """With --schedule step: epochs after which the rate drops. Empty: half, three quarters."""
    drop_by: float = 0.1
    """With --schedule step: the factor by which the rate drops."""
    warmup: float = 0.0
    """Epochs over which the learning rate rises linearly from 0."""
    augment: Augment = "auto"
    """Change training images at random. auto: both crop and flip, but none for digits."""
    padding: int = 4
    """Black pixels around an image, from which a crop of the old size is taken."""
    norm: NormName = "batch"
    """For a resnet: batch, over the images of a slot; group, within an image; none."""
    split: float = 0.2
    """Share used as test set: of the episodes, or of a folder of images without a folder test."""
    loss: Loss = "auto"
    """For actions in a Box: mse, squared error (auto), or nll, negative log-likelihood."""
    hidden: tuple[int, ...] = (64, 64)
    """For episodes: width of each hidden layer of the policy, as for muster train."""
    activation: Activation = "tanh"
    """For episodes: activation after each hidden layer, as for muster train."""
    shared: bool = False
    """For episodes: share hidden layers between policy and value, as for muster train."""
    normalize_obs: bool = False
    """For episodes: normalise observations by the training set, as part of the policy."""
    eval_every: int = 1
    """Epochs from one evaluation to the next; 0 for only at the end."""
    checkpoint_every: int = 1
    """Epochs from one checkpoint to the next; 0 for only at the end."""
    stop_at: float | None = None
    """Stop when the test accuracy is this or more, from 0 to 1."""
    seconds: float | None = None
    """Stop after so many seconds of this command."""
    seed: int = 0
    """Determines everything random. The same seed gives the same network."""
    run_dir: str | None = None
    """Directory of the run. None: a new one under runs/."""
    resume: bool = False
    """Resume the run in --run-dir, with its own settings: other options given are changes."""
    quiet: bool = False
    """Print only the result."""

    def __post_init__(self) -> None:
        for name in ("data", "run_dir"):
            check_text(name, getattr(self, name))
        check_whole("epochs", self.epochs, high=10**6)
        check_whole("batch_size", self.batch_size, low=2, high=10**6)
        check_whole("replicas", self.replicas, low=0, high=MOST_REPLICAS)
        check_whole("slots", self.slots, high=MOST_SLOTS)
        self._check_shares()
        for name, choices in (
            ("optimizer", Optimizer),
            ("schedule", Schedule),
            ("augment", Augment),
            ("norm", NormName),
            ("loss", Loss),
            ("activation", Activation),
        ):
            check_choice(name, getattr(self, name), choices)
        if self.lr is not None:
            check_number("lr", self.lr, high=MOST_LR, high_too=True, example=0.1)
        check_number("momentum", self.momentum, high=1, low_too=True, example=0.9)
        check_number("weight_decay", self.weight_decay, high=1, low_too=True, example=1e-4)
        check_number("drop_by", self.drop_by, high=1, example=0.1)
        check_number("warmup", self.warmup, high=10**6, low_too=True, example=5)
        check_number("split", self.split, high=1, example=0.2)
        check_whole("padding", self.padding, high=1_000)
        for name in ("eval_every", "checkpoint_every"):
            check_whole(name, getattr(self, name), low=0, high=10**6)
        check_whole("seed", self.seed, low=0, high=MOST_SEED)
        check_widths("hidden", self.hidden)
        for name in ("resume", "quiet", "shared", "normalize_obs"):
            check_flag(name, getattr(self, name))
        if self.horizon is not None:
            check_whole("horizon", self.horizon, high=10**6)
        if self.stop_at is not None:
            check_number("stop_at", self.stop_at, high=1, high_too=True, example=0.97)
        if self.seconds is not None:
            check_number("seconds", self.seconds, example=60)
        self._check_drops()

    def _check_shares(self) -> None:
        if self.replicas > self.slots:
            raise OptionError(
                f"replicas={self.replicas} is not possible with slots={self.slots}",
                "a replica computes at least one slot of each batch",
                f"replicas={self.slots}, or slots={self.replicas} for a new run",
            )
        if 2 * self.slots > self.batch_size:
            raise OptionError(
                f"slots={self.slots} is not possible with batch_size={self.batch_size}",
                "a slot has two samples or more: batch norm is over its samples",
                f"batch_size={2 * self.slots}",
            )

    def _check_drops(self) -> None:
        if not isinstance(self.drop_at, tuple | list):
            raise OptionError(
                f"drop_at={self.drop_at!r:.60} is not possible",
                "it holds the epochs after which the learning rate drops",
                "drop_at=(10, 15)",
            )
        for epoch in self.drop_at:
            check_whole("drop_at", epoch, high=10**6)
        if self.drop_at and self.schedule != "step":
            why = "only the schedule step drops at epochs"
            refuse_together(
                f"drop_at={self.drop_at}", f"schedule={self.schedule}", why, "schedule=step"
            )

    @property
    def rate(self) -> float:
        """The learning rate, before its schedule."""
        return _LR[self.optimizer] if self.lr is None else self.lr

    @property
    def planned(self) -> int:
        """Epochs that the schedule is planned for."""
        return self.epochs if self.horizon is None else self.horizon
