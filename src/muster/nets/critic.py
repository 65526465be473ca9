"""Networks that value an observation together with an action, and ways to run them.

obs, action -> Critic -> values [B, outputs] -> backward: gradient by the weights
                                            -> action_gradient: gradient by the action
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.nets.dropout import SeededDropout
from muster.nets.encoders import Flatten, make_encoder
from muster.nets.flat import FlatParameters
from muster.nets.mlp import linear, make_activation
from muster.nets.numpy_mlp import FastMLP, fast_mlp
from muster.nets.q_network import build_q_network
from muster.nets.registry import Factory
from muster.nets.torch_net import TorchNet

Array = NDArray[np.float32]

_FEATURES = 256
"""What a model of the user's own makes of an observation for a critic."""
_BATCH_NORM_MOMENTUM = 0.01


class Critic(nn.Module):
    """The values of actions in the range -1 to 1.

    Args:
        obs_space: Of one observation.
        action_size: Numbers of one action.
        hidden: Width of each layer after the encoder.
        outputs: Values of each pair: 1, or as many quantiles.
        activation: "relu" or "tanh", after each hidden layer.
        layer_norm: Normalise what each hidden layer puts out, row by row, before the activation.
        dropout: Probability with which a hidden output is left out in training.
        batch_norm: Normalise what goes into each layer, over the rows of a batch.
        model: A network of the user's own that reads observations in place of the encoder.
        seed: Decides the first weights, and what is left out.
    """

    def __init__(
        self,
        obs_space: gym.Space[Any],
        action_size: int,
        hidden: Sequence[int] = (256, 256),
        outputs: int = 1,
        *,
        activation: str = "relu",
        layer_norm: bool = False,
        dropout: float = 0.0,
        batch_norm: bool = False,
        model: str | Factory | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.action_size = action_size
        if model is None:
            self.encoder = make_encoder(obs_space, generator)
            features = int(self.encoder.out_features)  # type: ignore[arg-type]
        else:
            features = _FEATURES
            own = build_q_network(obs_space, features, model=model, seed=seed)
            self.encoder = nn.Sequential(own, make_activation(activation))
        layers: list[nn.Module] = []
        width = features + action_size
        for out in hidden:
            if batch_norm:
                layers.append(nn.BatchNorm1d(width, momentum=_BATCH_NORM_MOMENTUM))
            layers.append(linear(width, out, generator))
            if dropout:
                layers.append(SeededDropout(dropout, generator))
            if layer_norm:
                layers.append(nn.LayerNorm(out))
            layers.append(make_activation(activation))
            width = out
        if batch_norm:
            layers.append(nn.BatchNorm1d(width, momentum=_BATCH_NORM_MOMENTUM))
        head = linear(width, outputs, generator)
        self.layers = nn.Sequential(OrderedDict(trunk=nn.Sequential(*layers), head=head))

    def forward(self, pair: tuple[Any, Tensor]) -> Tensor:
        """Return values [B, outputs] of observations and actions [B, action_size]."""
        obs, action = pair
        values: Tensor = self.layers(torch.cat([self.encoder(obs), action], dim=1))
        return values


class CriticNet:
    """Runs a critic: by hand where that is possible, else by torch.

    Args:
        critic: The network.
        flat: Its parameters.
    """

    def __init__(self, critic: Critic, flat: FlatParameters) -> None:
        self._actions = slice(-critic.action_size, None)
        self._fast: FastMLP | None = None
        if isinstance(critic.encoder, Flatten):
            self._fast = fast_mlp(critic.layers, flat.below("layers"))
        self._net: FastMLP | TorchNet = self._fast or TorchNet(critic, flat)

    def forward(self, obs: Any, action: Array, training: bool = True) -> Array:
        """Return values [B, outputs], and keep what gradients need.

        Args:
            obs: [B, ...], or a dict of such.
            action: [B, action_size].
            training: Whether dropout and batch norm are in training mode.
        """
        return self._net.forward(self._input(obs, action), training)

    def predict(self, obs: Any, action: Array) -> Array:
        """Return values [B, outputs] in evaluation mode."""
        return self._net.predict(self._input(obs, action))

    def backward(self, dvalues: Array, grad: Array) -> None:
        """Write the gradient of sum(dvalues * values) of the last `forward` into a flat vector."""
        self._net.backward(dvalues, grad)

    def action_gradient(self, dvalues: Array) -> Array:
        """Return the gradient of sum(dvalues * values) of the last `forward` by the actions."""
        if self._fast is not None:
            return self._fast.input_gradient(dvalues, self._actions)
        return self._net.input_gradient(dvalues)

    def _input(self, obs: Any, action: Array) -> Any:
        if self._fast is None:
            return obs, action
        return np.concatenate([np.reshape(obs, (len(action), -1)), action], axis=1)
