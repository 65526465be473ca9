"""`Clone`: a policy that learns to do what recorded episodes did (behaviour cloning).

observations -> the policy network of `muster train` -> outputs -> loss of the recorded actions

    Discrete, MultiDiscrete   cross-entropy of each number; masked actions have no probability
    Box                       squared error of the means, or negative log-likelihood (`--loss nll`)

Weights have the names that they have in `muster train`, which can start from them. The value of a
state is not learnt: episodes say what was done, not what it is worth to this policy.
"""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from muster.devices import as_tensors
from muster.envs.space_json import space_from_json, space_to_json
from muster.errors import OptionError
from muster.fitting.network import FittedNetwork
from muster.fitting.options import FitOptions
from muster.nets.action_head import ActionHead
from muster.nets.build_policy import build_policy
from muster.nets.normalizer import ObsNorm
from muster.nets.own_model import two_of
from muster.nets.registry import REMEMBERS
from muster.seeding import derive_seed

Array = NDArray[Any]

_LEAST_LOG_STD = -3.0
"""For `nll`: an expert that always does the same would let the spread, and the loss, fall for
ever, and the gradient of the means grow."""
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
NETWORK = ("hidden", "activation", "shared", "normalize_obs")
"""Options of the network, which a run that starts from a clone must have as well."""


class Clone(FittedNetwork):
    """A policy network that learns recorded actions.

    Args:
        model: Name of the network, as for `muster train`.
        obs_space: Space of one observation.
        action_space: Space of one action.
        options: Options of the run.
        observations: The training set, whose mean and spread `normalize_obs` uses. None: they come
            with the weights.
        env: Id of the environment, for the record.

    Raises:
        OptionError: The network, or the loss, is not possible for these spaces.
    """

    def __init__(
        self,
        model: str,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        options: FitOptions,
        observations: Any = None,
        env: str | None = None,
    ) -> None:
        if model in REMEMBERS:
            raise OptionError(
                f'model="{model}" is not possible with recorded episodes',
                "it has a memory, and steps are learnt one by one here",
                'model="mlp"',
            )
        self.obs_space = obs_space
        self.action_space = action_space
        self.head = ActionHead.of(action_space)
        self.env = env
        self._options = options
        self._loss = _loss_of(self.head, options.loss)
        self.has_accuracy = not self.head.gaussian
        module = build_policy(
            obs_space,
            self.head,
            options.hidden,
            options.shared,
            options.activation,
            options.normalize_obs,
            model=model,
            seed=derive_seed(options.seed, "network"),
        )
        norm = getattr(module, "normalizer", None)
        if observations is not None and isinstance(norm, ObsNorm):
            _learn_moments(norm, observations)
        super().__init__(model, module, options)
        self.never_decays(self._unused())

    @property
    def meta(self) -> dict[str, Any]:
        """What is needed to build the network again."""
        options = self._options
        return {
            "clone": {
                "hidden": list(options.hidden),
                "activation": options.activation,
                "shared": options.shared,
                "normalize_obs": options.normalize_obs,
                "loss": self._loss,
                "env": self.env,
                "obs_space": space_to_json(self.obs_space),
                "action_space": space_to_json(self.action_space),
            }
        }

    @classmethod
    def of_meta(cls, model: str, meta: dict[str, Any], norm: str) -> "Clone":
        """Build the network of a checkpoint, with other weights; the reverse of `meta`.

        Raises:
            ValueError: It is not what `meta` returned.
        """
        names = ("obs_space", "action_space")
        seen, done = (space_from_json(meta.get(name)) for name in names)
        chosen = {name: meta[name] for name in (*NETWORK, "loss") if name in meta}
        chosen["hidden"] = tuple(chosen.get("hidden", ()))
        chosen["loss"] = "auto" if chosen.get("loss") == "cross_entropy" else chosen.get("loss")
        options = FitOptions(norm=norm, **chosen)  # type: ignore[arg-type]  # it checks it
        return cls(model, seen, done, options, env=meta.get("env"))

    def forward(self, samples: Any) -> Tensor:
        """Return the outputs for the actions of observations, [B, K]."""
        outputs: Tensor = self.module(samples)[0]
        return outputs

    def losses(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample, and whether all numbers of its action are right."""
        if not self.head.gaussian:
            return self._of_categories(outputs, labels)
        mean, log_std = outputs.chunk(2, dim=1)
        wrong = torch.zeros(len(labels), dtype=torch.bool)
        if self._loss == "mse":
            return (mean - labels).square().mean(1), wrong
        log_std = log_std.clamp(min=_LEAST_LOG_STD)
        distance = (labels - mean) * torch.exp(-log_std)
        return (0.5 * distance.square() + log_std + _HALF_LOG_2PI).sum(1), wrong

    def act(self, obs: Any) -> Array:
        """Return the most likely action for each of N observations, [N, width]."""
        outputs = self.computed(obs, self.head.outputs)
        if self.head.gaussian:
            return outputs[:, : self.head.width]
        parts = np.split(outputs, np.cumsum(self.head.sizes)[:-1], axis=1)
        return np.stack([part.argmax(1) for part in parts], axis=1)

    def _of_categories(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        parts = torch.split(outputs, list(self.head.sizes), dim=1)
        total, right = torch.zeros(len(labels)), torch.ones(len(labels), dtype=torch.bool)
        for number, part in enumerate(parts):
            wanted = labels[:, number]
            total = total + functional.cross_entropy(part, wanted, reduction="none")
            right = right & (part.argmax(1) == wanted)
        return total, right

    def _unused(self) -> set[str]:
        """Return the parameters that the loss does not depend on: those of the value."""
        named = dict(self.module.named_parameters())
        kind = torch.float32 if self.head.gaussian else torch.int64
        labels = torch.zeros((2, self.head.width), dtype=kind)
        obs = as_tensors(two_of(self.obs_space))
        loss = self.losses(self.forward(obs), labels)[0].sum()
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {name for name, grad in zip(named, found, strict=True) if grad is None}


def _loss_of(head: ActionHead, asked: str) -> str:
    if head.gaussian:
        return "mse" if asked == "auto" else asked
    if asked != "auto":
        raise OptionError(
            f"loss={asked} is not possible with these actions",
            "they are categories, which are learnt by cross-entropy",
            "loss=auto",
        )
    return "cross_entropy"


def _learn_moments(norm: ObsNorm, observations: Any) -> None:
    """Set the statistics of a normaliser to those of all observations."""
    for key, part in zip(norm.keys, norm.norms, strict=True):
        rows = observations if key is None else observations[key]
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        mean = flat.mean(0)
        part.merge(float(len(flat)), mean, np.square(flat - mean).sum(0))
