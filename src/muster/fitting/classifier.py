"""`Classifier`: a network that classifies samples.

images -> Standardize -> network -> outputs -> cross-entropy
"""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from muster.fitting.network import FittedNetwork
from muster.fitting.options import FitOptions
from muster.nets.errors import ModelError
from muster.nets.own_model import built, global_generator_seeded
from muster.nets.registry import get_model, resnet_depth
from muster.nets.resnet import resnet_classifier
from muster.nets.threads import one_torch_thread
from muster.seeding import derive_seed

Array = NDArray[Any]


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


class Classifier(FittedNetwork):
    """A network that classifies samples.

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
        self.shape = shape
        self.classes = classes
        with one_torch_thread():
            network = build_network(model, shape, len(classes), options.norm, options.seed)
        is_image = len(shape) == 3 and model != "mlp"
        module = nn.Sequential()
        module.add_module("standardize", Standardize(*moments, for_images=is_image))
        module.add_module("network", network)
        super().__init__(model, module, options)

    @property
    def meta(self) -> dict[str, Any]:
        """What is needed to build the network again."""
        return {"shape": list(self.shape), "classes": list(self.classes)}

    def losses(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of each sample, and whether its best output is its class."""
        loss = functional.cross_entropy(outputs, labels, reduction="none")
        return loss, outputs.argmax(1) == labels

    def logits(self, samples: Array) -> Array:
        """Return one output for each class, [N, classes], of samples [N, *shape]."""
        return self.computed(samples, len(self.classes))

    def predict(self, samples: Array) -> Array:
        """Return the label of each of N samples."""
        labels: Array = self.logits(samples).argmax(1)
        return labels


def _refuse_dropout(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise ModelError(
                f"the layer {name!r} of the model is {part}",
                "its noise would come from torch's own generator, not from the seed",
                "remove it; --weight-decay and --augment also regularise a network",
            )
