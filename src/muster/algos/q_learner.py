"""`QLearner`: Q-learning with a network, a replay buffer and a target network.

    act:     obs -> Q -> best action, or a random one with probability epsilon
    update:  batch -> targets (by the target network) -> TD loss -> gradient -> Adam
             every `target_update` updates: weights -> target network

Mnih et al. 2015, with double Q-learning (van Hasselt et al. 2016), dueling streams (Wang et al.
2016), n-step returns and importance weights for prioritised replay (Schaul et al. 2016), each
a switch in `QLearningConfig`. Differences from the papers: Adam instead of RMSProp, and the Huber
loss instead of clipped errors, which has the same gradient. Q-learning algorithms derive from this
class.

One thread may call `update` while others call `act`; these then act on weights that are changing.
"""

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.algos.batches import (
    StagedBatch,
    TransitionBatch,
    column,
    count_rows,
    first_not_finite,
)
from muster.algos.q_config import QLearningConfig
from muster.algos.replay_agent import ReplayAgent
from muster.devices import as_array
from muster.envs.masks import ACTION_MASK, is_masked
from muster.errors import OptionError
from muster.nets import FlatParameters, build_q_network, make_adam, make_net
from muster.nets.registry import Factory
from muster.nets.shares import Shares, SharesInTurn, rows_of_shares
from muster.rl_utils.losses.td import BAD_SHAPES, td_loss
from muster.rl_utils.schedules import line
from muster.seeding import derive_seed, generator

Array = NDArray[Any]


class QLearner(ReplayAgent):
    """A Q-network that acts and learns.

    Args:
        cfg: The algorithm's options.
        obs_space: Space of one observation.
        action_space: Space of one action; must be Discrete.
        seed: Seed of the initial weights and of all exploration. The global generators of torch and
            NumPy are neither used nor changed.
        model: A class or function of (obs_space, n_actions) that builds the torch module from
            observations to Q [B, n_actions]. None: the model of the config.
    """

    PARTS = frozenset({"policy", "target", "optimizer", "exploration", "counters"})

    def __init__(
        self,
        cfg: QLearningConfig,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        super().__init__(cfg, obs_space, action_space)
        assert isinstance(action_space, gym.spaces.Discrete)
        self.epsilon = self.schedule()
        self._n_actions = int(action_space.n)
        self.model = self._build(
            cfg.model if model is None else model, derive_seed(seed, "network")
        )
        """The torch module that learns. Its parameters are always up to date."""
        self._first_action = int(action_space.start)
        self._rng = generator(seed, "explore")
        target = copy.deepcopy(self.model)
        self.weights = FlatParameters(self.model)
        self._target_weights = FlatParameters(target)
        self._net: Any = self._runner(self.model, self.weights)
        self.by_torch = self._net.by_torch
        self._target: Any = self._runner(self._target_weights.module, self._target_weights)
        self.shares: Shares = SharesInTurn(1)
        self._grads = [self.weights.new_gradient()]
        self._adam = make_adam(self.weights, cfg.lr)
        self._lr = line(cfg.lr, cfg.lr_end, cfg.horizon)

    def act(self, obs: Any, epsilon: Any = 0.0) -> NDArray[np.int64]:
        """Return an action for each of N observations, int64 [N].

        Args:
            obs: [N, ...], or a dict of such arrays.
            epsilon: Probability of a random action, one number or [N]; the number 0 is greedy and
                draws no random numbers.
        """
        size = count_rows(obs, self.obs_space)
        one_each = isinstance(epsilon, np.ndarray)
        if not one_each and epsilon <= 0:
            return self._best(obs) + self._first_action
        whether, which = self._rng.random((2, size))
        action = self._random(which, obs)
        if one_each or epsilon < 1:
            action = np.where(whether < epsilon, action, self._best(obs))
        return action + self._first_action

    def explore(self, obs: Any, epsilon: Any = None) -> NDArray[np.int64]:
        """Return the best actions, or random ones with probability `epsilon`; see `act`."""
        return self.act(obs, self.epsilon(math.inf) if epsilon is None else epsilon)

    @np.errstate(over="ignore", invalid="ignore")  # non-finite values are detected and named
    def update(self, batch: TransitionBatch) -> dict[str, float]:
        """Take one gradient step, and change the target network when it is due.

        Raises:
            NonFiniteError: The loss or the gradient is NaN or infinite; nothing was changed.

        Returns:
            `loss`; `q_mean`, the mean Q of the actions taken; `td_error_mean`, the mean absolute
            error; `grad_norm`, before clipping. The errors themselves are in `td_error`.
        """
        metrics = self._differentiate(batch)
        return {**metrics, "grad_norm": self._descend()}

    @np.errstate(over="ignore", invalid="ignore")
    def gradient(self, batch: TransitionBatch) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the gradient that `update` would use, by parameter, without changing any weight.

        For learners that do not own their weights, such as one that sums the gradients of several.

        Raises:
            NonFiniteError: The loss is NaN or infinite.

        Returns:
            A copy of the gradient of each parameter; the metrics of `update` except `grad_norm`.
        """
        metrics = self._differentiate(batch)
        shapes = {name: each.shape for name, each in self.model.named_parameters()}
        found = as_array(self._grads[0])
        gradient = {
            name: found[at].reshape(shapes[name]).copy()
            for name, at in self.weights.names_and_slices.items()
        }
        return gradient, metrics

    @np.errstate(over="ignore", invalid="ignore")
    def apply_gradient(self, gradient: Mapping[str, Array]) -> float:
        """Apply a gradient, returned by `gradient` of this or another agent, like `update` does.

        Raises:
            NonFiniteError: The gradient is NaN or infinite; nothing was changed.

        Returns:
            The norm of the gradient before clipping.
        """
        places = self.weights.names_and_slices
        wanted = {name: at.stop - at.start for name, at in places.items()}
        given = {name: np.size(each) for name, each in gradient.items()}
        if given != wanted:
            raise OptionError(
                f"the gradient has numbers for {given}",
                f"the network's parameters are {wanted}",
                "agent.apply_gradient(other.gradient(batch)[0]), with the gradient of an agent of "
                "the same kind",
            )
        given_all = np.concatenate([np.ravel(gradient[name]) for name in places])
        self._grads[0][:] = self.weights.device.stage(given_all.astype(np.float32))
        return self._descend()

    def follow(self, weights: dict[str, Any], train_iter: int) -> None:
        """Load weights that other learners also changed, after `train_iter` updates in all.

        The target network changes when `train_iter` passes a multiple of `target_update`.
        """
        passed = train_iter // self.cfg.target_update - self.train_iter // self.cfg.target_update
        self.load_policy(weights)
        self.train_iter = train_iter
        if passed > 0:
            self._target_weights.copy_from(self.weights, 1 - (1 - self.cfg.tau) ** passed)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all mutable state, as plain values and NumPy arrays, part by part.

        `policy` alone is enough to act; learning also needs the other parts.
        """
        return {
            "policy": dict(self.weights.state_dict()),
            "target": dict(self._target_weights.state_dict()),
            "optimizer": self._adam.state_dict(),
            "exploration": copy.deepcopy(dict(self._rng.bit_generator.state)),
            "counters": {"train_iter": self.train_iter},
        }

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Load parts that `parts` returned.

        Args:
            parts: Must contain `policy`. Without `target`, the target network becomes a copy of
                `policy`. Other parts that are missing stay unchanged.
        """
        self._check_parts(parts)
        self.weights.load_state_dict(parts["policy"])
        self._target_weights.load_state_dict(parts.get("target", parts["policy"]))
        if "optimizer" in parts:
            self._adam.load_state_dict(parts["optimizer"])
        if "exploration" in parts:
            self._rng.bit_generator.state = parts["exploration"]
        if "counters" in parts:
            self.train_iter = int(parts["counters"]["train_iter"])

    def cut_batches(self, shares: Shares) -> None:
        """Divide every batch into `shares.members` shares, which `shares` computes.

        Raises:
            OptionError: The network has layers that mix rows or draw random numbers.
        """
        self._check_can_be_cut(self.model)
        self.shares = shares
        self._grads = [self.weights.new_gradient() for _ in range(shares.members)]

    @abstractmethod
    def schedule(self) -> Callable[[float], float]:
        """Return the schedule: environment steps to the probability of a random action."""

    @property
    def outputs(self) -> int:
        """Outputs of the network per observation."""
        return self._n_actions

    def values(self, obs: Any) -> Array:
        """Return Q, [N, actions]."""
        q: Array = self._net.predict(obs)
        return q

    def _build(self, model: str | Factory | None, seed: int) -> nn.Module:
        """Return the network; `model` is the requested one, None for the standard one."""
        return build_q_network(
            self.obs_space,
            self.outputs,
            self.cfg.hidden,
            self.cfg.dueling,
            model,
            activation=self.cfg.activation,
            seed=seed,
        )

    def _runner(self, module: nn.Module, weights: FlatParameters) -> Any:
        """Return the fastest way to run the network."""
        return make_net(module, weights)

    def _random(self, which: Array, obs: Any) -> NDArray[np.int64]:
        """Return a uniformly random legal action for each number in [0, 1)."""
        if not is_masked(self.obs_space):
            return (which * self._n_actions).astype(np.int64)
        legal = np.asarray(obs[ACTION_MASK]) != 0
        wanted = (which * legal.sum(axis=1)).astype(np.int64)  # counts legal actions from 0
        found: NDArray[np.int64] = (legal.cumsum(axis=1) == wanted[:, None] + 1).argmax(axis=1)
        return found

    def _best(self, obs: Any) -> NDArray[np.int64]:
        best: NDArray[np.int64] = self.values(obs).argmax(axis=1)
        return best

    def _differentiate(self, batch: TransitionBatch) -> dict[str, float]:
        """Compute the gradient of a batch, into `_grads[0]`."""
        self._begin_update()
        rows, size = rows_of_shares(len(batch.weight), self.shares.members), self._samples(batch)

        def learn(share: int) -> tuple[int, float, float, float, Array, str]:
            part = batch if len(rows) == 1 else self._one_of(batch, rows[share])
            q, dq, (loss, q_mean, td_error_mean) = self._loss(part)
            samples = self._samples(part)
            if samples != size:  # the loss is a mean over the whole batch
                dq *= np.float32(samples / size)
            self._net.backward(dq, self._grads[share])
            cause = "" if math.isfinite(loss) else self._cause(part, q)
            return samples, loss, q_mean, td_error_mean, self.td_error, cause

        found = self.shares(learn, len(rows), self._grads)
        means = found[0][1:4]
        if len(found) > 1:
            self.td_error = np.concatenate([each[4] for each in found])
            means = tuple(math.fsum(each[0] * each[k] for each in found) / size for k in (1, 2, 3))
        if not math.isfinite(means[0]):
            in_share = next(each[5] for each in found if each[5])
            cause = first_not_finite(batch) or in_share  # names the row in the whole batch
            raise self._not_finite(f"the loss is {means[0]}", cause)
        return dict(zip(("loss", "q_mean", "td_error_mean"), means, strict=True))

    def _begin_update(self) -> None:
        """Draw the random numbers that all shares of a batch have in common."""

    def _samples(self, batch: Any) -> int:
        """Return the number of samples over which the loss of a batch is averaged."""
        return len(batch.weight)

    def _descend(self) -> float:
        """Apply `_grads[0]` with Adam, and return its norm."""
        cfg = self.cfg
        # Steps derived from updates: their ratio is the same everywhere, but steps arrive in larger
        # blocks.
        steps = cfg.learning_starts + float(self.train_iter / cfg.updates_per_step_exactly())
        self._adam.lr = self._lr(steps)
        norm = self._adam.step(self._grads[0], cfg.max_grad_norm)
        if not math.isfinite(norm):
            raise self._gradient_not_finite(self.weights, self._grads[0])
        self.train_iter += 1
        if self.train_iter % self.cfg.target_update == 0:
            self._target_weights.copy_from(self.weights, self.cfg.tau)
        return norm

    def _loss(self, batch: TransitionBatch) -> tuple[Array, Array, list[float]]:
        """Return q, the gradient of the loss w.r.t. q, and the batch means; set `td_error`."""
        action, reward, discount, weight = self._columns(batch)
        there = StagedBatch(batch, self.weights.device)
        next_q = self._target.predict(there.next_obs)
        choose_by = self._net.predict(there.next_obs) if self.cfg.double else next_q
        q = self._net.forward(there.obs)
        dq, self.td_error, sums = self._td(q, action, reward, discount, next_q, choose_by, weight)
        return q, dq, sums

    def _columns(self, batch: TransitionBatch) -> tuple[Array, Array, Array, Array]:
        """Return actions counted from 0, rewards, discounts and weights, [B] each."""
        size = len(batch.action)
        action = column("action", batch.action, np.int64, size)
        if self._first_action:
            action = action - self._first_action
        reward, discount, weight = (
            column(name, getattr(batch, name), np.float32, size)
            for name in ("reward", "discount", "weight")
        )
        return action, reward, discount, weight

    def _td(
        self,
        q: Array,
        action: Array,
        reward: Array,
        discount: Array,
        next_q: Array,
        choose_by: Array,
        weight: Array,
    ) -> tuple[Array, Array, list[float]]:
        """Return the gradient of the loss w.r.t. q, the errors [B], and the batch means."""
        dq, td_error, sums = np.empty_like(q), np.empty(len(action), np.float32), np.empty(3)
        problem = td_loss(
            q,
            action,
            reward,
            discount,
            next_q,
            choose_by,
            weight,
            self.cfg.huber,
            dq,
            td_error,
            sums,
        )
        if problem == BAD_SHAPES:
            raise OptionError(
                f"a batch has {len(action)} actions, {len(q)} observations and {len(next_q)} next "
                "ones",
                "each row is one transition",
                "agent.update(buffer.sample(batch_size))",
            )
        if problem >= 0:
            raise self._no_action(action, problem)
        return dq, td_error, sums.tolist()

    def _no_action(self, action: Array, row: int) -> OptionError:
        first = self._first_action
        return OptionError(
            f"action[{row}] is {action[row] + first}",
            f"the actions are {first} to {first + self._n_actions - 1}",
            "store the actions that act() returned",
        )

    def _cause(self, batch: TransitionBatch, q: Array) -> str:
        """Name the cause of a NaN or infinite loss: a value in the data, or else a network."""
        in_data = first_not_finite(batch)
        if in_data is not None:
            return in_data
        if not np.isfinite(q).all():
            return "the network's output is not finite, though all observations are"
        if not np.isfinite(self.td_error).all():
            return "the target network's output is not finite, though all observations are"
        return "the errors are too large to be squared"
