"""`RecurrentQLearner`: Q-learning with a network that remembers, from sequences of steps.

    actor:    obs, state -> Q, next state -> best action, or a random one
              the state before each step -> replay
    learner:  sequences -> unrolled from their stored states by both networks; the first steps are
              burn-in -> n-step targets -> TD loss -> gradient -> Adam
              a mix of the largest and the mean of a sequence's errors -> its priority

Who acts keeps a state for each environment, and begins anew with each episode. Evaluating and
exploring have states of their own. Algorithms put it before the Q-learner that they derive from.
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.algos.batches import count_rows
from muster.algos.q_learner import QLearner
from muster.data.batch import SequenceBatch
from muster.data.schema import STATE
from muster.errors import OptionError
from muster.nets import FlatParameters
from muster.nets.recurrent_q import RecurrentQNetwork, make_q_sequences
from muster.nets.registry import Factory

Array = NDArray[Any]
Floats = NDArray[np.float32]


class RecurrentQLearner(QLearner):
    """A Q-network with a memory that acts and learns.

    Args:
        cfg: The algorithm's options: a `QLearningConfig` that is a `SequenceConfig`, too.
        obs_space: Space of one observation.
        action_space: Space of one action; must be Discrete.
        seed: Seed of the initial weights and of all exploration.
        model: Has to be None: what remembers is `cfg.model`.
    """

    cfg: Any
    remembers = True
    """What it does depends on what it saw before: it is told of new episodes."""

    def __init__(
        self,
        cfg: Any,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        super().__init__(cfg, obs_space, action_space, seed, model)
        self._acting = self._no_memory()
        self._exploring = self._no_memory()
        self._memory = self._acting
        """What the next action is chosen with: one of the two."""
        self._before = self._no_memory()
        """What was remembered before the last step of exploring."""

    def act(
        self, obs: Any, epsilon: Any = 0.0, first: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return an action for each of N observations; see `QLearner.act`.

        Args:
            obs: [N, ...], or a dict of such arrays.
            epsilon: Probability of a random action, one number or [N].
            first: bool [N], whose episode begins here. It forgets everything when N changes.
        """
        self._memory = self._acting = self._begun(self._acting, obs, first)
        return self._choose(obs, epsilon)

    def explore(
        self, obs: Any, epsilon: Any = None, first: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return the best actions, and random ones as often as `epsilon` says; see `act`."""
        self._memory = self._exploring = self._begun(self._exploring, obs, first)
        self._before = self._memory.copy()
        return self._choose(obs, self.epsilon(math.inf) if epsilon is None else epsilon)

    def forget(self) -> None:
        """Clear the recurrent state."""
        self._acting, self._exploring = self._no_memory(), self._no_memory()

    def write(self, rows: dict[str, Array]) -> None:
        """Write what was remembered before the last step."""
        rows[STATE][:] = self._before

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all that changes; what exploring remembers is part of exploration."""
        parts = super().parts()
        return {
            **parts,
            "exploration": {"rng": parts["exploration"], "memory": self._exploring.copy()},
        }

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Take over what `parts` returned, or some of it; see `QLearner.load_parts`."""
        if "exploration" in parts:
            self._exploring = np.array(parts["exploration"]["memory"], np.float32)
            parts = {**parts, "exploration": parts["exploration"]["rng"]}
        super().load_parts(parts)

    def _build(self, model: str | Factory | None, seed: int) -> nn.Module:
        cfg = self.cfg
        if not isinstance(model, str):
            raise OptionError(
                f"model={model!r} is not possible with {cfg.NAME} and a memory",
                "it stores the state of its own network, and unrolls it from there",
                f"model=None, and {type(cfg).__name__}(model='gru') for another cell",
            )
        return RecurrentQNetwork(
            self.obs_space,
            self._n_actions,
            cfg.hidden,
            cfg.activation,
            cfg.dueling,
            model,
            seed,
            cfg.last_action,
        )

    def _runner(self, module: nn.Module, weights: FlatParameters) -> Any:
        assert isinstance(module, RecurrentQNetwork)
        return make_q_sequences(module, weights)

    def _no_memory(self) -> Floats:
        return np.zeros((0, self.cfg.state_width), np.float32)

    def _begun(self, memory: Floats, obs: Any, first: NDArray[np.bool_] | None) -> Floats:
        """Return a memory for as many environments, empty where an episode begins."""
        size = count_rows(obs, self.obs_space)
        if len(memory) != size:
            memory = np.zeros((size, self.cfg.state_width), np.float32)
        elif first is not None:
            memory[first] = 0
        return memory

    def _choose(self, obs: Any, epsilon: Any) -> NDArray[np.int64]:
        # One for each, unless it is greedy: the memory goes on also where all actions are random.
        if np.any(epsilon):
            epsilon = np.broadcast_to(epsilon, (len(self._memory),))
        action = QLearner.act(self, obs, epsilon if np.ndim(epsilon) else 0.0)
        if self.cfg.last_action:
            self._memory[:, -1] = 1 + action - self._first_action
        return action

    def values(self, obs: Any) -> Array:
        """Return Q, [N, actions], and go on to the next state of whoever acts."""
        return self._step(obs, self._memory)

    def _step(self, obs: Any, memory: Floats) -> Floats:
        """Return Q of observations, and overwrite what is remembered."""
        q: Floats = self._net.step(obs, memory)
        return q

    def _scaled(self, x: Array) -> Array:
        """Return what the network says of returns."""
        return x

    def _unscaled(self, y: Array) -> Array:
        """Return the returns that the network's values stand for."""
        return y

    def _one_of(self, batches: SequenceBatch, k: int | slice) -> SequenceBatch:
        return batches.part(k)

    def _samples(self, batch: Any) -> int:
        return int(np.count_nonzero(batch.learn))

    def _loss(self, batch: Any) -> tuple[Array, Array, list[float]]:
        """Return q [B, L + 1, actions], the loss's gradient by it, and the means over its steps."""
        learn = batch.learn
        state = batch.columns[STATE][:, 0]
        done = batch.action - self._first_action
        cut = np.zeros((len(learn), learn.shape[1] + 1), np.bool_)
        cut[np.arange(len(learn)), learn.argmax(axis=1)] = True
        q = self._net.forward(batch.obs, state, done, cut)
        next_q = self._target.unroll(batch.obs, state, done)
        row, step = np.nonzero(learn)
        ahead = batch.ahead[row, step]
        best = (q if self.cfg.double else next_q)[row, ahead].argmax(axis=1)
        follows = self._unscaled(next_q[row, ahead, best])
        target = self._scaled(batch.reward[row, step] + batch.discount[row, step] * follows)
        mine, none = np.ascontiguousarray(q[row, step]), np.zeros(len(row), np.float32)
        weight = np.ascontiguousarray(batch.weight[row], np.float32)
        by_mine, error, sums = self._td(
            mine, done[row, step], target.astype(np.float32), none, mine, mine, weight
        )
        dq, errors = np.zeros_like(q), np.zeros(learn.shape, np.float32)
        dq[row, step], errors[row, step] = by_mine, error
        self.td_error = self.cfg.unit.priority(errors, learn)
        return q, dq, sums
