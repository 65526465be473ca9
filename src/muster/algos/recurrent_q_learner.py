"""`RecurrentQLearner`: Q-learning with a recurrent network, from sequences of steps.

    actor:    obs, state -> Q, next state -> best action, or a random one
              the state before each step -> replay
    learner:  sequences -> both networks unroll them from their stored states; the first steps are
              burn-in -> n-step targets -> TD loss -> gradient -> Adam
              a mix of the largest and the mean of a sequence's errors -> its priority

The agent keeps a state for each environment, and clears it when an episode begins. Evaluation and
exploration have separate states. Algorithms list this class before the Q-learner that they derive
from.
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
    """A recurrent Q-network that acts and learns.

    Args:
        cfg: The algorithm's options: a `QLearningConfig` that is also a `SequenceConfig`.
        obs_space: Space of one observation.
        action_space: Space of one action; must be Discrete.
        seed: Seed of the initial weights and of all exploration.
        model: Must be None: `cfg.model` names the recurrent layer.
    """

    cfg: Any
    remembers = True
    """Actions depend on earlier observations, so callers pass `first`."""

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
        """The state for the next action: `_acting` or `_exploring`."""
        self._before = self._no_memory()
        """The recurrent state before the last exploring step."""

    def act(
        self, obs: Any, epsilon: Any = 0.0, first: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return an action for each of N observations; see `QLearner.act`.

        Args:
            obs: [N, ...], or a dict of such arrays.
            epsilon: Probability of a random action, one number or [N].
            first: bool [N], True where an episode begins. The state is cleared when N changes.
        """
        self._memory = self._acting = self._begun(self._acting, obs, first)
        return self._choose(obs, epsilon)

    def explore(
        self, obs: Any, epsilon: Any = None, first: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Return the best actions, or random ones with probability `epsilon`; see `act`."""
        self._memory = self._exploring = self._begun(self._exploring, obs, first)
        self._before = self._memory.copy()
        return self._choose(obs, self.epsilon(math.inf) if epsilon is None else epsilon)

    def forget(self) -> None:
        """Clear the recurrent state."""
        self._acting, self._exploring = self._no_memory(), self._no_memory()

    def write(self, rows: dict[str, Array]) -> None:
        """Write the recurrent state before the last step."""
        rows[STATE][:] = self._before

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all mutable state; `exploration` includes the state of exploring."""
        parts = super().parts()
        return {
            **parts,
            "exploration": {"rng": parts["exploration"], "memory": self._exploring.copy()},
        }

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Load parts that `parts` returned; see `QLearner.load_parts`."""
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
        """Return a state for each environment, zero where an episode begins."""
        size = count_rows(obs, self.obs_space)
        if len(memory) != size:
            memory = np.zeros((size, self.cfg.state_width), np.float32)
        elif first is not None:
            memory[first] = 0
        return memory

    def _choose(self, obs: Any, epsilon: Any) -> NDArray[np.int64]:
        # An array, unless greedy: the state must advance even if all actions are random.
        if np.any(epsilon):
            epsilon = np.broadcast_to(epsilon, (len(self._memory),))
        action = QLearner.act(self, obs, epsilon if np.ndim(epsilon) else 0.0)
        if self.cfg.last_action:
            self._memory[:, -1] = 1 + action - self._first_action
        return action

    def values(self, obs: Any) -> Array:
        """Return Q, [N, actions], and advance the recurrent state in use."""
        return self._step(obs, self._memory)

    def _step(self, obs: Any, memory: Floats) -> Floats:
        """Return Q of observations, and overwrite the recurrent state with the next one."""
        q: Floats = self._net.step(obs, memory)
        return q

    def _scaled(self, x: Array) -> Array:
        """Return returns on the scale of the network's outputs."""
        return x

    def _unscaled(self, y: Array) -> Array:
        """Return the network's outputs on the scale of returns."""
        return y

    def _one_of(self, batches: SequenceBatch, k: int | slice) -> SequenceBatch:
        return batches.part(k)

    def _samples(self, batch: Any) -> int:
        return int(np.count_nonzero(batch.learn))

    def _loss(self, batch: Any) -> tuple[Array, Array, list[float]]:
        """Return q [B, L + 1, actions], the gradient of the loss w.r.t. q, and means over steps."""
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
