"""Layers of neurons: multilayer perceptrons and the dueling head.

Weights are torch's own: [out, in], uniform within 1 / sqrt(in), drawn from an explicit generator.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from muster.errors import OptionError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def make_activation(name: str) -> nn.Module:
    """Return a new activation layer by its name."""
    if name not in ACTIVATIONS:
        raise OptionError(
            f"activation={name!r} is not known",
            f"there are {', '.join(map(repr, ACTIVATIONS))}; your own model may use any",
            'activation="relu"',
        )
    return ACTIVATIONS[name]()


def draw_weights(layer: nn.Linear | nn.Conv2d, generator: torch.Generator | None) -> None:
    """Initialise a layer that was made on the device "meta" like torch does, from `generator`.

    On "meta" the constructor draws nothing; on other devices it would draw from the global
    generator. (`torch.nn.utils.skip_init` does the same, but imports sympy, which takes half a
    second.)
    """
    bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
    for name in ("weight", "bias"):
        values = torch.empty(getattr(layer, name).shape)
        values.uniform_(-bound, bound, generator=generator)
        setattr(layer, name, nn.Parameter(values))


def linear(in_features: int, out_features: int, generator: torch.Generator | None) -> nn.Linear:
    """Return a Linear layer with weights from `generator`, or from torch's global one if None."""
    layer = nn.Linear(in_features, out_features, device="meta")
    draw_weights(layer, generator)
    return layer


class MLP(nn.Sequential):
    """Linear layers, each followed by an activation; [B, in_features] to [B, hidden[-1]].

    Args:
        in_features: Width of the input.
        hidden: Width of each layer.
        out_features: Width of one more layer, without activation. None: no such layer.
        activation: "relu", "tanh", "gelu" or "silu".
        generator: Draws the initial weights. None: torch's global generator.
        layer_norm: Put a LayerNorm before each activation.
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int] = (64, 64),
        out_features: int | None = None,
        activation: str = "relu",
        generator: torch.Generator | None = None,
        layer_norm: bool = False,
    ) -> None:
        layers: list[nn.Module] = []
        width = in_features
        for out in hidden:
            layers.append(linear(width, out, generator))
            layers += [nn.LayerNorm(out)] if layer_norm else []
            layers.append(make_activation(activation))
            width = out
        if out_features is not None:
            layers.append(linear(width, out_features, generator))
        super().__init__(*layers)


class DuelingHead(nn.Module):
    """Q = V + A - mean(A) (Wang et al. 2016, eq. 9) from two streams side by side.

    The first half of the features is the stream of the value, the second that of the advantages: a
    Linear layer of width 2n before it is a hidden layer of n for each stream.

    Args:
        in_features: Width of both streams together, an even number.
        n_actions: Number of actions.
        generator: Draws the initial weights. None: torch's global generator.
    """

    def __init__(
        self, in_features: int, n_actions: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if in_features % 2:
            raise OptionError(
                f"in_features={in_features} is not possible",
                "one half of the features computes the value, the other the advantages",
                f"in_features={in_features + 1}",
            )
        self.value = linear(in_features // 2, 1, generator)
        self.advantage = linear(in_features // 2, n_actions, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Return Q, [B, n_actions], of features [B, in_features]."""
        value_stream, advantage_stream = features.chunk(2, dim=-1)
        advantage: Tensor = self.advantage(advantage_stream)
        q: Tensor = self.value(value_stream) + advantage - advantage.mean(-1, keepdim=True)
        return q
