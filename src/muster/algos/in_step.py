"""What workers ask of an agent that learns in step with its rollouts.

act        the agent's network fills the columns action, logp and value of one step
prepare    rewards and values of a slot -> its columns advantage and target
gradient   some rows of a slot -> a flat row and sums of metrics; no weight is changed
step       the sum of all slots' rows -> the optimiser
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
    """A policy that all members of a team have, each with the same weights."""

    cfg: Any
    """An `InStepConfig`."""
    obs_space: gym.Space[Any]
    action_space: gym.Space[Any]
    head: ActionHead
    """What the network's outputs mean."""
    model: Any
    """The torch module that learns."""
    net: Any
    """What acts: a `PolicyNet`, or a `RecurrentPolicy`."""
    weights: FlatParameters
    adam: Adam | DeviceAdam
    state_width: int
    """Numbers that the network remembers of each environment; 0 if it is not recurrent."""
    train_iter: int
    """Updates so far."""
    lr: Callable[[int], float]
    """From environment steps to the learning rate."""
    stats: tuple[str, ...]
    """What `gradient` sums up, by name."""
    watched: str
    """That one of them by which `learnt_enough` decides."""

    @property
    def normalizer(self) -> ObsNorm | None:
        """What brings observations to mean 0 and spread 1, if they are."""

    @property
    def standardizes(self) -> bool:
        """Whether the column advantage is brought to mean 0 and spread 1 over all slots."""

    def noise(
        self, rng: np.random.Generator, shape: tuple[int, ...], env_step: int
    ) -> NDArray[np.float32]:
        """Return random numbers for so many actions, [*shape, width], as the network takes them.

        Args:
            rng: Draws them.
            shape: How many.
            env_step: Environment steps before them, where exploration depends on it.
        """

    def to_env(self, action: Array) -> Array:
        """Return actions as environments take them."""

    def prepare(self, slots: Slots, reward: Array, columns: slice) -> None:
        """Fill the columns advantage and target of some environments.

        Args:
            slots: A rollout.
            reward: Of all its environments, scaled.
            columns: Which environments.
        """

    def terms(self, env_step: int, rows: int) -> Any:
        """Return the numbers of the loss at a step, for minibatches of so many rows."""

    def gradient(self, rollout: Rollout, rows: Array, terms: Any, out: Array, stats: Array) -> None:
        """Write the gradient of some rows' loss, and the sums of their metrics."""

    def gradients(
        self, rollout: Rollout, rows: Array, terms: Any, out: Array, stats: Array
    ) -> None:
        """Write the gradients of several slots, each with the bits that `gradient` gives it.

        Args:
            rollout: All rows.
            rows: [slots, rows of each].
            terms: The numbers of the loss.
            out: [slots, weights], is overwritten.
            stats: [slots, metrics], is overwritten.
        """

    def learnt_enough(self, watched: float) -> bool:
        """Whether to stop learning from a rollout, by the mean of `watched` over an epoch."""

    def step(self, grad: NDArray[np.float32]) -> float:
        """Move the weights against a gradient, and return its norm before it was clipped."""

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Take over parts of another agent's state."""

    def load_policy(self, weights: dict[str, Any]) -> None:
        """Act on these weights, the part `policy` of another agent like this, from now on."""

    def twin(self) -> "InStepAgent":
        """Return another agent with the same network and the same weights."""
