"""`FittedNetwork`: a network that learns from samples and labels, and all state that changes.

samples -> module -> outputs -> loss of each sample -> gradient of a slot, in a flat row

`Classifier` learns classes; `Clone` learns the actions of recorded episodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.devices import as_tensors
from muster.fitting.data import rows_of
from muster.fitting.options import FitOptions
from muster.nets.adam import Adam
from muster.nets.errors import NonFiniteError
from muster.nets.flat import FlatParameters
from muster.nets.gradient_target import GradientTarget
from muster.nets.sgd import Sgd, decaying
from muster.nets.slot_norm import SlotStatistics
from muster.nets.threads import one_torch_thread

Array = NDArray[Any]

LOSS, CORRECT, SAMPLES = range(3)
"""What a slot counts: the sum of its losses, its correct samples, and its samples."""
CHUNK = 256
"""Samples tested at once, in every process: the last bit of an output may depend on it."""


class FittedNetwork(ABC):
    """A network, its optimiser and its batch statistics.

    Args:
        model: Name of the network.
        module: The network: from samples to outputs.
        options: Options of the run.
    """

    has_accuracy = True
    """Whether a sample is right or wrong; otherwise only the loss says how good a network is."""

    def __init__(self, model: str, module: nn.Module, options: FitOptions) -> None:
        self.model = model
        self.module = module
        self.weights = FlatParameters(self.module)
        self.statistics = SlotStatistics(self.module)
        self.train_iter = 0
        """Number of updates so far."""
        vector = self.weights.vector
        self.optimizer: Sgd | Adam
        if options.optimizer == "sgd":
            self.optimizer = Sgd(vector, options.rate, options.momentum)
        else:
            self.optimizer = Adam(vector, options.rate)
        self._decay = np.float32(options.weight_decay) * decaying(self.weights)
        self._gradient = GradientTarget(self.module, self.weights)

    @property
    @abstractmethod
    def meta(self) -> dict[str, Any]:
        """What is needed to build the network again, besides its name: plain values."""

    @abstractmethod
    def losses(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample [N], and whether the network is right about it [N]."""

    def forward(self, samples: Any) -> Tensor:
        """Return the outputs for samples, as tensors."""
        outputs: Tensor = self.module(samples)
        return outputs

    def score(self, found: Array) -> float:
        """Return how good LOSS, CORRECT and SAMPLES of a test are; more is better."""
        which, sign = (CORRECT, 1.0) if self.has_accuracy else (LOSS, -1.0)
        return sign * float(found[which] / found[SAMPLES])

    def never_decays(self, parameters: set[str]) -> None:
        """Exclude parameters from weight decay: without a gradient they would only shrink."""
        for name in parameters:
            self._decay[self.weights.names_and_slices[name]] = 0.0

    # ---- learning

    def gradient(
        self, samples: Any, labels: Array, batch: int, grad: Array, stats: Array, norms: Array
    ) -> None:
        """Write a slot's contribution to the gradient of a batch's mean loss. Changes no weight.

        Args:
            samples: Samples of the slot.
            labels: Their labels.
            batch: Number of samples of the whole batch.
            grad: Overwritten, float32.
            stats: Overwritten: LOSS, CORRECT, SAMPLES.
            norms: Overwritten: the statistics of the slot's batch norms.
        """
        stats[:] = 0.0
        if not len(labels):
            grad[:] = 0.0
            return
        self.module.train()
        x, y = as_tensors((samples, labels), own=True)
        losses, correct = self.losses(self.forward(x), y)
        loss = losses.sum()
        self._gradient.write([loss], [torch.tensor(1 / batch)], grad)
        stats[:] = _counted(loss.detach(), correct)
        self.statistics.collect(norms)

    def step(self, total: Array, norms: Array, samples: Array, lr: float) -> float:
        """Take one step along a batch's gradient, and return its norm.

        Args:
            total: The sum of all slots' gradients. Changed.
            norms: The statistics of all slots' batch norms.
            samples: Number of samples of each slot.
            lr: Learning rate.

        Raises:
            NonFiniteError: The gradient is NaN or infinite; nothing was changed.
        """
        self.optimizer.lr = lr
        vector = self.weights.vector
        if isinstance(self.optimizer, Adam):  # Loshchilov & Hutter 2019: decoupled weight decay
            kept = 1 - np.float32(lr) * self._decay
            norm = self.optimizer.step(total)
            if np.isfinite(norm):
                vector *= kept
        else:
            total += self._decay * vector
            norm = self.optimizer.step(total)
        if not np.isfinite(norm):
            raise NonFiniteError(
                f"the gradient of update {self.train_iter + 1} is {norm}",
                "the learning rate is too large, or the data has a number that is not finite",
                "a smaller --lr",
            )
        self.statistics.take_over(norms, samples)
        self.train_iter += 1
        return norm

    # ---- testing

    def judge(self, samples: Any, labels: Array) -> Array:
        """Return LOSS, CORRECT and SAMPLES of test samples."""
        losses, correct = self.losses(self._outputs(samples), torch.from_numpy(labels))
        return _counted(losses.sum(), correct)

    def judge_all(self, samples: Any, labels: Array) -> Array:
        """Return the same for any number of samples, chunk by chunk."""
        total = np.zeros(3)
        for start in range(0, len(labels), CHUNK):
            part = slice(start, start + CHUNK)
            total += self.judge(rows_of(samples, part), labels[part])
        return total

    def computed(self, samples: Any, outputs: int) -> Array:
        """Return the outputs [N, outputs] of N samples, chunk by chunk."""
        size = len(next(iter(samples.values())) if isinstance(samples, Mapping) else samples)
        with one_torch_thread():
            parts = [
                self._outputs(rows_of(samples, slice(start, start + CHUNK))).numpy()
                for start in range(0, size, CHUNK)
            ]
        return np.concatenate(parts) if parts else np.zeros((0, outputs), np.float32)

    def _outputs(self, samples: Any) -> Tensor:
        self.statistics.evaluating()
        self.module.eval()
        with torch.no_grad():
            return self.forward(as_tensors(samples, own=True))

    # ---- state

    def state(self) -> list[Array]:
        """Return all arrays that change, not copies: weights, optimiser, running averages."""
        return [self.weights.vector, *_arrays(self.optimizer), self.statistics.running]

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all state that changes, by part, for a checkpoint."""
        self.statistics.evaluating()
        return {
            "policy": dict(self.weights.state_dict()),
            "optimizer": {**self.optimizer.state_dict(), "train_iter": self.train_iter},
        }

    def load_parts(self, parts: Mapping[str, Any]) -> None:
        """Load the result of `parts`, or only its network."""
        self.weights.load_state_dict(dict(parts["policy"]))
        self.statistics.collect(self.statistics.running)
        if "optimizer" in parts:
            saved = dict(parts["optimizer"])
            self.train_iter = int(saved.pop("train_iter"))
            self.optimizer.load_state_dict(saved)

    def become(self, arrays: list[Array], updates: int) -> None:
        """Load the arrays of `state`, after `updates` updates."""
        for mine, other in zip(self.state(), arrays, strict=True):
            mine[:] = other
        self.train_iter = updates
        if isinstance(self.optimizer, Adam):
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "steps": updates})

    def model_sha256(self) -> str:
        """Return a hash of the network's weights and its normalisation statistics."""
        self.statistics.evaluating()
        return self.weights.sha256()


def _arrays(optimizer: Sgd | Adam) -> list[Array]:
    if isinstance(optimizer, Sgd):
        return [optimizer.velocity]
    return [optimizer.mean, optimizer.square]


def _counted(loss: Tensor, correct: Tensor) -> Array:
    """Return LOSS, CORRECT and SAMPLES."""
    return np.array([float(loss), float(correct.sum()), len(correct)])
