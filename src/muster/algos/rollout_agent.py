"""`RolloutAgent`: the base class of agents that learn in step with their rollouts.

    act:      obs -> network -> outputs -> action, its log-probability, the value
    prepare:  rewards, values -> advantages, targets                 (of one slot)
    gradient: rows of a rollout -> loss -> gradient                  (by `net`, slot by slot)
    step:     sum of the slots' gradients -> norm clipped -> Adam

`muster.workers` has the code around an agent: rollouts, slots, and which worker computes what. An
algorithm defines its network, its objective (how outputs become actions and a loss), and the
coefficients of its loss.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.algos.batches import count_rows
from muster.algos.network_config import NetworkConfig
from muster.data.slots import Slots
from muster.devices import as_array, networks_on
from muster.errors import OptionError
from muster.nets import FlatParameters, NonFiniteError, make_adam
from muster.nets.action_head import ActionHead
from muster.nets.build_policy import make_policy_net
from muster.nets.normalizer import ObsNorm
from muster.nets.policy_net import Objective, Rollout
from muster.nets.registry import Factory
from muster.rl_utils.gae import gae
from muster.rl_utils.schedules import line
from muster.seeding import derive_seed, generator

Array = NDArray[Any]

PARTS = frozenset({"policy", "optimizer", "exploration", "counters"})
"""The parts of an agent's state."""
ADAM_EPS = 1e-5


class RolloutAgent(ABC):
    """A network that acts and learns: an `InStepAgent`.

    Args:
        cfg: The algorithm's options.
        obs_space: Space of one observation.
        action_space: Space of one action.
        seed: Seed of the initial weights and of the random numbers of `explore`.
        model: A class or function of (obs_space, outputs) that builds the torch module. None: the
            model of the config.
    """

    stats: tuple[str, ...]
    """Names of the metrics that `gradient` sums."""
    watched: str
    """The metric of `stats` that `learnt_enough` tests."""
    threads = 1
    """Threads that learning uses at once, in one process."""
    passes_of_sample = 3.0
    """Cost of learning from one sample, in forward passes: one, plus twice that for backward."""

    def __init__(
        self,
        cfg: NetworkConfig,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        self.cfg = cfg
        self._factory = model
        self.obs_space = obs_space
        self.action_space = action_space
        self.head = ActionHead.of(action_space)
        """How the network's outputs are interpreted."""
        self.model = self.build(cfg.model if model is None else model, derive_seed(seed, "network"))
        """The torch module that learns. Its parameters are always up to date."""
        self.weights = FlatParameters(self.model)
        """The parameters of `model` as one vector."""
        self.net: Any = make_policy_net(
            self.model,
            self.weights,
            self.head,
            self.objective(),
            bf16=cfg.bf16,
            compiled=cfg.compile,
        )
        """The fastest way to run `model`: a `PolicyNet` or a `RecurrentPolicy`."""
        self.state_width: int = getattr(self.net, "state_width", 0)
        """Numbers in the recurrent state of one environment; 0 if the network is not recurrent."""
        self.adam = make_adam(self.weights, cfg.lr, eps=ADAM_EPS)
        self.train_iter = 0
        """Updates so far."""
        self.lr: Callable[[int], float] = line(cfg.lr, cfg.lr_end, cfg.horizon)
        """Maps environment steps to the learning rate."""
        self._rng = generator(seed, "explore")
        self._low, self._high = _bounds(action_space)
        self._state = np.zeros((0, self.state_width), np.float32)

    @abstractmethod
    def build(self, model: str | Factory | None, seed: int) -> nn.Module:
        """Return the network: a module from observations to (outputs, value).

        Args:
            model: The requested network; None for the standard one.
            seed: Seed of the initial weights.
        """

    @abstractmethod
    def objective(self) -> Objective:
        """Return the objective, which turns the network's outputs into actions and a loss."""

    @property
    @abstractmethod
    def decay(self) -> float:
        """Lambda of advantages and targets: 0 trusts only the values, 1 only the rewards."""

    @property
    def by_torch(self) -> str | None:
        """The reason why torch runs the network, which is slower; None if it is compiled."""
        why: str | None = self.net.by_torch
        return why

    @property
    def normalizer(self) -> ObsNorm | None:
        """The normaliser of observations (mean 0, standard deviation 1), if there is one."""
        found: ObsNorm | None = getattr(self.model, "normalizer", None)
        return found

    @property
    def remembers(self) -> bool:
        """Whether the network is recurrent, so that `act` and `explore` need `first`."""
        return self.state_width > 0

    def act(self, obs: Any, first: NDArray[np.bool_] | None = None) -> Array:
        """Return the most likely action for each of N observations.

        Args:
            obs: [N, ...], or a dict of such arrays.
            first: bool [N], True where an episode begins, for a recurrent network. The recurrent
                state is cleared when N changes.
        """
        memory = self._memory(count_rows(obs, self.obs_space), first)
        return self.to_env(self.net.best(obs, *memory))

    def explore(self, obs: Any, first: NDArray[np.bool_] | None = None) -> Array:
        """Return exploring actions, as at the end of training, for N observations; see `act`."""
        size = count_rows(obs, self.obs_space)
        memory = self._memory(size, first)
        action: Array = np.empty((size, self.head.width), self.head.dtype)
        logp, value = np.empty(size, np.float32), np.empty(size, np.float32)
        noise = self.noise(self._rng, (size,), self.cfg.horizon)
        self.net.act(obs, noise, action, logp, value, *memory)
        return self.to_env(action)

    def forget(self) -> None:
        """Clear the recurrent state."""
        self._state = np.zeros((0, self.state_width), np.float32)

    def noise(
        self, rng: np.random.Generator, shape: tuple[int, ...], env_step: int
    ) -> NDArray[np.float32]:
        """Return the random numbers of actions of this shape, [*shape, width], for `net.act`."""
        draw = rng.standard_normal if self.head.gaussian else rng.random
        return draw((*shape, self.head.width), np.float32)

    def to_env(self, action: Array) -> Array:
        """Return actions [..., width] as environments accept them: shaped, and clipped to a Box."""
        shaped = action.reshape(*action.shape[:-1], *(self.action_space.shape or ()))
        if self._low is None:
            return shaped
        return np.clip(shaped, self._low, self._high)

    @property
    def standardizes(self) -> bool:
        """Whether advantages are normalised (mean 0, standard deviation 1) over all slots."""
        return False

    def prepare(self, slots: Slots, reward: Array, columns: slice) -> None:
        """Fill the columns advantage and target of some environments, as lambda-returns.

        Args:
            slots: A rollout.
            reward: Scaled rewards of all its environments.
            columns: The environments, as columns of the rollout.
        """
        gae(
            reward,
            slots.value,
            slots.terminated,
            slots.truncated,
            slots.final_value,
            self.cfg.gamma,
            self.decay,
            slots.advantage,
            columns.start,
            columns.stop,
        )
        advantage, value = slots.advantage[:, columns], slots.value[: len(reward), columns]
        np.add(advantage, value, out=slots.target[:, columns])

    def gradient(self, rollout: Rollout, rows: Array, terms: Any, out: Array, stats: Array) -> None:
        """Write the gradient of the loss over some rows, and the sums of their metrics."""
        self.net.gradient(rollout, rows, terms, out, stats)

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
        together = getattr(self.net, "gradients", None)
        if together is not None:
            together(rollout, rows, terms, out, stats)
            return
        for mine, grad, sums in zip(rows, out, stats, strict=True):
            self.gradient(rollout, mine, terms, grad, sums)

    def learnt_enough(self, watched: float) -> bool:
        """Whether to stop learning from a rollout, given the mean of `watched` over an epoch."""
        return False

    @abstractmethod
    def terms(self, env_step: int, rows: int) -> Any:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole minibatch.
        """

    def step(self, grad: Any) -> float:
        """Move the weights against a gradient, and return its norm before clipping.

        Args:
            grad: An array, or an object that `weights.new_gradient` made.

        Raises:
            NonFiniteError: The gradient is NaN or infinite; nothing was changed.
        """
        norm = self.adam.step(grad, self.cfg.max_grad_norm)
        if not math.isfinite(norm):
            grad = as_array(grad)
            first = int(np.flatnonzero(~np.isfinite(grad))[0])
            raise NonFiniteError(
                f"the gradient of {self.weights.name_at(first)!r} is {grad[first]} "
                f"in update {self.train_iter + 1}",
                "either the environment returned such a number, or learning diverged; the weights "
                "were not changed",
                f"lr={self.cfg.lr / 10:g}, max_grad_norm=0.5, or smaller rewards",
            )
        self.train_iter += 1
        return norm

    def use_gradient(self, gradient: NDArray[np.float32], env_step: int) -> float:
        """Apply a gradient with `step`, at the learning rate of the schedule at `env_step`."""
        self.adam.lr = self.lr(env_step)
        return self.step(gradient)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all mutable state, as plain values and NumPy arrays, part by part.

        `policy` alone is enough to act; learning also needs the other parts.
        """
        return {
            "policy": self.policy(),
            "optimizer": self.adam.state_dict(),
            "exploration": copy.deepcopy(dict(self._rng.bit_generator.state)),
            "counters": {"train_iter": self.train_iter},
        }

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Load parts that `parts` returned; parts that are missing stay unchanged."""
        if "policy" not in parts or not parts.keys() <= PARTS:
            raise OptionError(
                f"the parts {sorted(parts)} are not the parts of this agent",
                f"it has {sorted(PARTS)}, and needs 'policy'",
                'agent.load_parts({"policy": ...})',
            )
        self.weights.load_state_dict(parts["policy"])
        if "optimizer" in parts:
            self.adam.load_state_dict(parts["optimizer"])
        if "exploration" in parts:
            self._rng.bit_generator.state = parts["exploration"]
        if "counters" in parts:
            self.train_iter = int(parts["counters"]["train_iter"])

    def policy(self) -> dict[str, Any]:
        """Return a copy of the weights that another agent needs to act like this one."""
        return dict(self.weights.state_dict())

    def load_policy(self, weights: dict[str, Any]) -> None:
        """Load the weights that `policy` of another agent returned."""
        self.weights.load_state_dict(weights)

    def twin(self) -> Self:
        """Return another agent with the same network and the same weights."""
        with networks_on(self.weights.device):
            other = type(self)(self.cfg, self.obs_space, self.action_space, model=self._factory)
        other.weights.copy_from(self.weights)
        return other

    def policy_sha256(self) -> str:
        """Return a hash over the names, shapes and bytes of the policy's weights."""
        return self.weights.sha256()

    def _memory(self, size: int, first: NDArray[np.bool_] | None) -> tuple[Array, ...]:
        """Return the extra inputs of a recurrent network: its state, and where episodes begin."""
        if not self.remembers:
            return ()
        if len(self._state) != size:
            self._state = np.zeros((size, self.state_width), np.float32)
        return self._state, np.zeros(size, np.bool_) if first is None else first


def _bounds(space: gym.Space[Any]) -> tuple[Array | None, Array | None]:
    """Return the bounds that actions are clipped to; None without bounds."""
    if not isinstance(space, gym.spaces.Box):
        return None, None
    if not (np.isfinite(space.low).any() or np.isfinite(space.high).any()):
        return None, None
    return space.low, space.high
