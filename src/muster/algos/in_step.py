"""The interface of an agent that learns in step with its rollouts, as workers use it.

act        the agent's network fills the columns action, logp and value of one step
prepare    rewards and values of a slot -> its columns advantage and target
gradient   some rows of a slot -> a flat gradient and sums of metrics; changes no weight
step       the sum of all slots' gradients -> the optimiser
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.data.slots import Slots
from muster.nets import Adam, DeviceAdam, FlatParameters
from muster.nets.action_head import ActionHead
from muster.nets.normalizer import ObsNorm
from muster.nets.policy_net import Rollout

Array = NDArray[Any]


class InStepAgent(Protocol):
    """A policy of which every member of a team has a copy with the same weights."""

    cfg: Any
    """An `InStepConfig`."""
    obs_space: gym.Space[Any]
    action_space: gym.Space[Any]
    head: ActionHead
    """How the network's outputs are interpreted."""
    model: Any
    """The torch module that learns."""
    net: Any
    """Acts: a `PolicyNet` or a `RecurrentPolicy`."""
    weights: FlatParameters
    adam: Adam | DeviceAdam
    state_width: int
    """Numbers in the recurrent state of one environment; 0 if the network is not recurrent."""
    train_iter: int
    """Updates so far."""
    lr: Callable[[int], float]
    """Maps environment steps to the learning rate."""
    stats: tuple[str, ...]
    """Names of the metrics that `gradient` sums."""
    watched: str
    """The metric of `stats` that `learnt_enough` tests."""

    @property
    def normalizer(self) -> ObsNorm | None:
        """The normaliser of observations (mean 0, standard deviation 1), if there is one."""

    @property
    def standardizes(self) -> bool:
        """Whether the column advantage is normalised (mean 0, std 1) over all slots."""

    def noise(
        self, rng: np.random.Generator, shape: tuple[int, ...], env_step: int
    ) -> NDArray[np.float32]:
        """Return the random numbers of actions of this shape, [*shape, width], for the network.

        Args:
            rng: The generator.
            shape: Shape of the actions.
            env_step: Environment steps before them, where exploration depends on it.
        """

    def to_env(self, action: Array) -> Array:
        """Return actions in the form that environments accept."""

    def prepare(self, slots: Slots, reward: Array, columns: slice) -> None:
        """Fill the columns advantage and target of some environments.

        Args:
            slots: A rollout.
            reward: Scaled rewards of all its environments.
            columns: The environments, as columns of the rollout.
        """

    def terms(self, env_step: int, rows: int) -> Any:
        """Return the coefficients of the loss at a step, for minibatches of `rows` rows."""

    def gradient(self, rollout: Rollout, rows: Array, terms: Any, out: Array, stats: Array) -> None:
        """Write the gradient of the loss over some rows, and the sums of their metrics."""

    def gradients(
        self, rollout: Rollout, rows: Array, terms: Any, out: Array, stats: Array
    ) -> None:
        """Write the gradients of several slots, each bitwise equal to the result of `gradient`.

        Args:
            rollout: All rows.
            rows: [slots, rows of each].
            terms: The coefficients of the loss.
            out: [slots, weights], overwritten.
            stats: [slots, metrics], overwritten.
        """

    def learnt_enough(self, watched: float) -> bool:
        """Whether to stop learning from a rollout, given the mean of `watched` over an epoch."""

    def step(self, grad: NDArray[np.float32]) -> float:
        """Move the weights against a gradient, and return its norm before clipping."""

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Load parts of another agent's state."""

    def load_policy(self, weights: dict[str, Any]) -> None:
        """Use the weights of another agent of this class (its part `policy`) from now on."""

    def twin(self) -> "InStepAgent":
        """Return another agent with the same network and the same weights."""
