"""`Classifier`: a network that classifies samples, and all state that changes while it learns.

images -> Standardize -> network -> outputs -> cross-entropy -> gradient of a slot, in a flat row
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from muster.devices import as_tensors
from muster.fitting.options import FitOptions
from muster.nets.adam import Adam
from muster.nets.errors import ModelError, NonFiniteError
from muster.nets.flat import FlatParameters
from muster.nets.gradient_target import GradientTarget
from muster.nets.own_model import built, global_generator_seeded
from muster.nets.registry import get_model, resnet_depth
from muster.nets.resnet import resnet_classifier
from muster.nets.sgd import Sgd, decaying
from muster.nets.slot_norm import SlotStatistics
from muster.nets.threads import one_torch_thread
from muster.seeding import derive_seed

Array = NDArray[Any]

LOSS, CORRECT, SAMPLES = range(3)
"""What a slot counts: the sum of its losses, its correct samples, and its samples."""
CHUNK = 256
"""Samples tested at once, in every process: the last bit of an output may depend on it."""


class Standardize(nn.Module):
    """Standardises samples to mean 0 and spread 1 of the training set, as the network expects.

    Networks of images divide their input by 255, so this multiplies by 255.

    Args:
        mean: Mean of each channel or number.
        spread: Spread of each channel or number.
        for_images: Whether the network divides by 255.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, mean: Array, spread: Array, for_images: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(mean.copy()))
        self.register_buffer("spread", torch.from_numpy(spread.copy()))
        self._scale = 255.0 if for_images else 1.0

    def forward(self, samples: Tensor) -> Tensor:
        """Return float32 of the same shape."""
        return (samples.float() - self.mean) / self.spread * self._scale


def build_network(
    model: str, shape: tuple[int, ...], classes: int, norm: Any, seed: int
) -> nn.Module:
    """Return a module from samples [B, *shape] to one output for each class.

    Args:
        model: A name that `muster.nets.registry` knows.
        shape: Shape of one sample: an image (height, width, channels), or a vector.
        classes: Number of classes.
        norm: The norm of a resnet.
        seed: The only source of the initial weights.

    Raises:
        ModelError: The network cannot read such samples.
    """
    is_image = len(shape) == 3
    depth = resnet_depth(model)
    if depth is not None and is_image:
        generator = torch.Generator().manual_seed(derive_seed(seed, "fit", "weights"))
        return resnet_classifier(shape, depth, classes, norm, generator)
    # The standard encoder of this space flattens it; a uint8 space would get convolutions.
    flat = not is_image or model == "mlp"
    space = (
        gym.spaces.Box(-np.inf, np.inf, shape) if flat else gym.spaces.Box(0, 255, shape, np.uint8)
    )
    with global_generator_seeded(derive_seed(seed, "fit", "weights")):
        module = built(get_model(model), space, classes)
        with torch.no_grad():
            made = module.eval()(torch.zeros(2, *shape))
    if not isinstance(made, Tensor) or tuple(made.shape) != (2, classes):
        got = f"a tensor of shape {tuple(made.shape)}" if isinstance(made, Tensor) else repr(made)
        raise ModelError(
            f"the model makes {got:.120} out of two samples, not one of shape {(2, classes)}",
            "a classifier has one output for each class, and rows are samples",
            f"end it with torch.nn.Linear(..., {classes})",
        )
    _refuse_dropout(module)
    return module


class Classifier:
    """A network, its optimiser and its batch statistics.

    Args:
        model: Name of the network.
        shape: Shape of one sample.
        classes: The name of each output's class.
        moments: Mean and spread of the training set.
        options: Options of the run.
    """

    def __init__(
        self,
        model: str,
        shape: tuple[int, ...],
        classes: tuple[str, ...],
        moments: tuple[Array, Array],
        options: FitOptions,
    ) -> None:
        self.model = model
        self.shape = shape
        self.classes = classes
        with one_torch_thread():
            network = build_network(model, shape, len(classes), options.norm, options.seed)
        is_image = len(shape) == 3 and model != "mlp"
        self.module = nn.Sequential()
        self.module.add_module("standardize", Standardize(*moments, for_images=is_image))
        self.module.add_module("network", network)
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

    # ---- learning

    def gradient(
        self, samples: Array, labels: Array, batch: int, grad: Array, stats: Array, norms: Array
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
        outputs = self.module(x)
        loss = functional.cross_entropy(outputs, y, reduction="sum")
        self._gradient.write([loss], [torch.tensor(1 / batch)], grad)
        stats[:] = _judged(outputs.detach(), y)
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

    # ---- classifying

    def judge(self, samples: Array, labels: Array) -> Array:
        """Return LOSS, CORRECT and SAMPLES of test samples."""
        return _judged(self._outputs(samples), torch.from_numpy(labels))

    def judge_all(self, samples: Array, labels: Array) -> Array:
        """Return the same for any number of samples, chunk by chunk."""
        total = np.zeros(3)
        for start in range(0, len(labels), CHUNK):
            part = slice(start, start + CHUNK)
            total += self.judge(samples[part], labels[part])
        return total

    def logits(self, samples: Array) -> Array:
        """Return one output for each class, [N, classes], of samples [N, *shape]."""
        with one_torch_thread():
            parts = [
                self._outputs(samples[start : start + CHUNK]).numpy()
                for start in range(0, len(samples), CHUNK)
            ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.classes)), np.float32)

    def predict(self, samples: Array) -> Array:
        """Return the label of each of N samples."""
        labels: Array = self.logits(samples).argmax(1)
        return labels

    def _outputs(self, samples: Array) -> Tensor:
        self.statistics.evaluating()
        self.module.eval()
        with torch.no_grad():
            outputs: Tensor = self.module(as_tensors(samples, own=True))
        return outputs

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


def _judged(outputs: Tensor, labels: Tensor) -> Array:
    """Return LOSS, CORRECT and SAMPLES."""
    loss = functional.cross_entropy(outputs, labels, reduction="sum")
    correct = (outputs.argmax(1) == labels).sum()
    return np.array([float(loss), float(correct), len(labels)])


def _refuse_dropout(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise ModelError(
                f"the layer {name!r} of the model is {part}",
                "its noise would come from torch's own generator, not from the seed",
                "remove it; --weight-decay and --augment also regularise a network",
            )
