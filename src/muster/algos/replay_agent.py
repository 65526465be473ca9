"""`ReplayAgent`: the base class of agents that learn from replay, and the API of their program.

explore    observations -> actions that collect experience
update     a batch of transitions -> one step of every optimiser
parts      all mutable state, for checkpoints
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.algos.batches import BatchSlice, TransitionBatch
from muster.data.schema import Column
from muster.devices import as_array
from muster.errors import OptionError
from muster.nets import FlatParameters, NonFiniteError
from muster.nets.own_model import first_of_two_modes
from muster.nets.shares import Shares
from muster.rl_utils import get_epsilon_greedy_fn

Array = NDArray[Any]

_NO_CHANGE = "the weights were not changed"


class ReplayAgent(ABC):
    """Acts and learns. A subclass implements the abstract methods.

    Args:
        cfg: A `ReplayConfig`.
        obs_space: Space of one observation.
        action_space: Space of one action.
    """

    PARTS: ClassVar[frozenset[str]]
    """Names of the parts of the agent's state; `policy` is one of them."""
    weights: FlatParameters
    """Weights of the network that acts."""
    shares: Shares
    """Computes the gradients of a batch, share by share."""
    threads = 1
    """Threads that learning uses at once."""
    passes_of_sample = 3.0
    """Cost of learning from one sample, in forward passes of the acting network: one, plus twice
    that for backward."""
    by_torch: str | None = None
    """The reason why torch runs a network (slower); None if all are compiled, or if unknown."""
    epsilon: Callable[[float], float]
    """Maps environment steps to the probability of a random action."""

    def __init__(self, cfg: Any, obs_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        cfg.check_actions(action_space)
        self.cfg = cfg
        self.obs_space = obs_space
        self.action_space = action_space
        self.train_iter = 0
        """Updates so far."""
        self.td_error: Array = np.zeros(0, np.float32)
        """Basis of priorities: q - target of the last update, [B], or of the last
        `update_many`, [K, B]."""
        self.beta = get_epsilon_greedy_fn(cfg.beta_start, cfg.beta_end, cfg.horizon, "linear")
        """Maps environment steps to the exponent of the importance weights (prioritised replay)."""

    @property
    def schema(self) -> tuple[Column, ...]:
        """Extra columns that the agent writes when it explores."""
        columns: tuple[Column, ...] = self.cfg.schema
        return columns

    def epsilon_of(self, env_step: float, envs: range, total: int) -> float | Array:
        """Return the probability of a random action: one number, or one for each environment.

        Args:
            env_step: Environment steps so far.
            envs: The environments, numbered over all actors.
            total: Number of environments of all actors.
        """
        return self.epsilon(env_step)

    @abstractmethod
    def act(self, obs: Any) -> Array:
        """Return the best action for each of N observations."""

    @abstractmethod
    def explore(self, obs: Any, epsilon: Any = None) -> Array:
        """Return exploring actions for N observations.

        Args:
            obs: [N, ...], or a dict of such arrays.
            epsilon: Probability of a uniformly random action, one number or [N]; by default the
                value at the end of training.
        """

    @abstractmethod
    def update(self, batch: TransitionBatch) -> dict[str, float]:
        """Take one gradient step, set `td_error`, and return metrics."""

    def cut_batches(self, shares: Shares) -> None:
        """Divide every batch into `shares.members` shares, which `shares` computes.

        Raises:
            OptionError: The agent does not support it, or a network has layers that mix rows or
                draw random numbers.
        """
        raise OptionError(
            f"learners=... is not possible with {type(self).__name__}",
            "it does not define how to divide a batch into shares",
            "learners=None, or implement its cut_batches",
        )

    def random_state(self) -> Any:
        """Return the state of a generator that both updates and acting draw from; None without one.

        An agent that returns a state also needs `load_random_state`, for replicas.
        """
        return None

    @abstractmethod
    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all mutable state, as plain values and NumPy arrays, part by part."""

    @abstractmethod
    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Load parts that `parts` returned, at least `policy`."""

    def update_many(self, batches: TransitionBatch) -> dict[str, float]:
        """Take K gradient steps, with the same bits as K calls of `update`.

        The targets of the K batches are therefore not computed at once, although the target network
        may be unchanged: where torch runs a network, BLAS may round a row of a large product
        differently from the same row of a small one.

        Args:
            batches: Arrays with leading shape [K, B].

        Returns:
            The mean of each metric of `update`, over the updates that returned it.
        """
        count = len(batches.action)
        if not count:
            raise OptionError(
                "update_many got no batch", "there is nothing to learn from", "count=1"
            )
        found: dict[str, list[float]] = {}
        errors = np.empty(batches.weight.shape, np.float32)
        for k in range(count):
            for name, value in self.update(self._one_of(batches, k)).items():
                found.setdefault(name, []).append(value)
            errors[k] = self.td_error
        self.td_error = errors
        return {name: math.fsum(values) / len(values) for name, values in found.items()}

    def load_policy(self, weights: dict[str, Any]) -> None:
        """Use the weights of another agent of this class (its part `policy`) from now on."""
        self.weights.load_state_dict(weights)

    def get_attribute(self, name: str) -> Any:
        """Return a setting of the config, or else an attribute of the agent, by name."""
        return getattr(self.cfg if hasattr(self.cfg, name) else self, name)

    def state_dict(self) -> dict[str, Any]:
        """Return all parts of the state; see `parts`."""
        return self.parts()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned, with all its parts."""
        absent = sorted(self.PARTS - state.keys())
        if absent:
            raise OptionError(
                f"the agent's state has no {', '.join(absent)}",
                "learning continues exactly as before only with all parts",
                "agent.load_parts(state), which loads the parts that exist",
            )
        self.load_parts(state)

    def policy_sha256(self) -> str:
        """Return a hash over the names, shapes and bytes of the policy's weights."""
        return self.weights.sha256()

    @staticmethod
    def _check_can_be_cut(*modules: nn.Module) -> None:
        """Reject networks whose result for a row depends on the other rows computed with it."""
        for module in modules:
            name = first_of_two_modes(module)
            if name is not None:
                raise OptionError(
                    f"learners=... is not possible with the layer {name}",
                    "it mixes rows or draws random numbers, so a batch cannot be divided into "
                    "shares",
                    "learners=None, or a network without dropout and batch norm",
                )

    def _one_of(self, batches: Any, k: int | slice) -> Any:
        """Return batch k of several, or some rows of one batch."""
        return BatchSlice(batches, k)

    def _check_parts(self, parts: Mapping[str, Any]) -> None:
        if "policy" not in parts or not parts.keys() <= self.PARTS:
            raise OptionError(
                f"the parts {sorted(parts)} are not those of a {type(self).__name__} agent",
                f"it has {sorted(self.PARTS)}, and needs 'policy'",
                'agent.load_parts({"policy": ...})',
            )

    def _gradient_not_finite(
        self, weights: FlatParameters, grad: Any, changed: str = _NO_CHANGE
    ) -> NonFiniteError:
        grad = as_array(grad)
        first = int(np.flatnonzero(~np.isfinite(grad))[0])
        what = f"the gradient of {weights.name_at(first)!r} is {grad[first]}"
        return self._not_finite(what, changed=changed)

    def _not_finite(self, what: str, cause: str = "", changed: str = _NO_CHANGE) -> NonFiniteError:
        return NonFiniteError(
            f"{what} in update {self.train_iter + 1}" + (f": {cause}" if cause else ""),
            f"either the environment returned such a number, or learning diverged; {changed}",
            f"{self.cfg.gentler()}, or smaller rewards",
        )
