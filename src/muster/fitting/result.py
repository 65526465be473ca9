"""The result of a run of `muster fit`."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.fitting.network import FittedNetwork


@dataclass(frozen=True)
class FitResult:
    """The result of a run: `result.json`, and the network itself."""

    model: str
    data: str
    seed: int
    replicas: int
    epochs: float
    """Passes over the training set, in total."""
    samples: int
    """Samples learned from, in total."""
    train_iter: int
    seconds: float
    """Duration of training in this command, including evaluations."""
    samples_per_s: float
    train_loss: float | None
    """Mean over the last epoch, as far as it went."""
    test_accuracy: float | None
    """Of the final weights; None if a signal or the time limit ended the run unevaluated, or if
    labels are actions in a Box, which are never exactly right."""
    test_loss: float | None
    test_samples: int
    """Size of the test set; each sample counts once."""
    best_test_accuracy: float | None
    """Of the weights in checkpoints/best, if there is an accuracy."""
    parameters: int
    model_sha256: str
    """Of the final weights and the normalisation statistics."""
    data_sha256: str
    stopped_by: str
    """`epochs`, `target`, `time` or `signal`."""
    run_dir: Path
    stop_signal: int | None = None
    """The signal that stopped the run, if one did."""
    replacements: int = 0
    """How many times a replica was replaced, because it had died or hung."""
    best_test_loss: float | None = None
    """Of the weights in checkpoints/best, if there is no accuracy to choose them by."""
    classifier: Any = field(default=None, repr=False)
    """Classifies samples: `classifier.predict(images)`. None after cloning."""
    clone: Any = field(default=None, repr=False)
    """The cloned policy: `clone.act(observations)`. `muster.load_policy(run_dir)` is one with its
    environment."""

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "FitResult | None":
        """Return the result that was written to `result.json`; None if it is not such a result."""
        try:
            return cls(**{**saved, "run_dir": Path(saved["run_dir"])})
        except (KeyError, TypeError):
            return None

    def as_json(self) -> dict[str, Any]:
        """Return the content of `result.json`."""
        live = ("classifier", "clone")
        shown = {name: value for name, value in self.__dict__.items() if name not in live}
        return {**shown, "run_dir": str(self.run_dir)}


def with_network(result: FitResult, network: "FittedNetwork") -> FitResult:
    """Return the result with its network, as what it is: a classifier or a policy."""
    from muster.fitting.clone import Clone

    if isinstance(network, Clone):
        return replace(result, clone=network)
    return replace(result, classifier=network)


def best_of(score: float | None, network: "FittedNetwork") -> dict[str, Any]:
    """Return the fields of a result that say how good `checkpoints/best` is."""
    if network.has_accuracy or score is None:
        return {"best_test_accuracy": score}
    return {"best_test_accuracy": None, "best_test_loss": -score}
