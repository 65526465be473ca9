"""SAC: an actor that maximises reward plus entropy, and critics that estimate its values.

    act:     obs -> mean, log_std -> tanh of mean, or of a draw -> scaled to the bounds of the space
    update:  batch -> actor's actions in the next observations -> lowest of the target critics
             -> targets -> every critic's loss -> its gradient -> Adam
             actor's actions in the observations -> critics -> actor's loss -> Adam
             entropy of these actions -> temperature -> Adam
             critics -> target critics, by `tau`

Haarnoja et al. 2018, with a learnt temperature. Switches of `SACConfig` turn it into REDQ (Chen et
al. 2021: many critics, the target uses a random subset), DroQ (Hiraoka et al. 2022: dropout and
layer norm), TQC (Kuznetsov et al. 2020: quantiles, the target ignores the highest) or CrossQ (Bhatt
et al. 2024: batch norm instead of target networks).

A batch is divided into shares of rows, one per thread if there are enough cores. The gradients of
the shares are summed in order, so the bits are the same for any number of threads.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.algos import sac_kernels as kernels
from muster.algos.batches import (
    BatchSlice,
    StagedBatch,
    TransitionBatch,
    column,
    count_rows,
    first_not_finite,
)
from muster.algos.critics import Critics, LearntShare
from muster.algos.replay_agent import ReplayAgent
from muster.algos.sac_config import SACConfig
from muster.container import whole_cores
from muster.errors import OptionError
from muster.nets import Adam, FlatParameters, build_q_network, make_adam, make_net
from muster.nets.flops import count_products
from muster.nets.fused_net import FusedNet
from muster.nets.registry import Factory
from muster.nets.shares import Shares, SideBySide, rows_of_shares
from muster.rl_utils.losses import squashed_gaussian
from muster.seeding import derive_seed, generator

Array = NDArray[np.float32]

__all__ = ["SAC", "SACConfig"]

MOST_SHARES = 4
SHARE = 128
"""Smallest number of rows worth a thread of its own."""
_CRITICS_CHANGED = "the critics have learnt from this batch, the policy was not changed"


class SAC(ReplayAgent):
    """An actor and critics that learn from replay.

    Args:
        cfg: The algorithm's options.
        obs_space: Space of one observation.
        action_space: Space of one action; must be a Box with finite bounds.
        seed: Seed of the initial weights and of all random numbers.
        model: A class or function of (obs_space, n_outputs) that builds your own network, used by
            the actor, and by the critics to encode observations.
    """

    PARTS = frozenset({"policy", "critics", "optimizer", "exploration", "counters"})

    def __init__(
        self,
        cfg: SACConfig,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        super().__init__(cfg, obs_space, action_space)
        assert isinstance(action_space, gym.spaces.Box)
        self.cfg: SACConfig = cfg
        self._middle = ((action_space.high + action_space.low) / 2).astype(np.float32).reshape(-1)
        self._half = ((action_space.high - action_space.low) / 2).astype(np.float32).reshape(-1)
        self._size = math.prod(action_space.shape)
        own = cfg.model if model is None else model
        self.model = build_q_network(
            obs_space,
            2 * self._size,
            cfg.hidden,
            model=own,
            activation=cfg.activation,
            seed=derive_seed(seed, "network"),
        )
        """The torch module of the actor. Its parameters are always up to date."""
        self.weights = FlatParameters(self.model)
        self.critics = Critics(cfg, obs_space, self._size, own, derive_seed(seed, "critics"))
        self._net = make_net(self.model, self.weights, releases_lock=True)
        self.by_torch = self._net.by_torch or self.critics.by_torch
        compiled = isinstance(self._net, FusedNet) and self.critics.compiled is not None
        most = min(MOST_SHARES, cfg.batch_size // SHARE) if compiled else 1
        self._in_one_call = compiled and not cfg.quantiles
        self._least_rows = SHARE
        self.shares: Shares = SideBySide(max(1, most), whole_cores())
        self._grads = [self.weights.new_gradient() for _ in range(self.shares.members)]
        betas = cfg.adam_beta1, 0.999
        self._adam = make_adam(self.weights, cfg.lr_actor, betas)
        self._log_temperature = np.full(
            1, math.log(cfg.temperature) if cfg.temperature else -math.inf, np.float32
        )
        self._adam_temperature = Adam(self._log_temperature, cfg.lr_temperature, betas)
        self._target_entropy = (
            -float(self._size) if cfg.target_entropy is None else cfg.target_entropy
        )
        self.threads = self.shares.threads
        self.passes_of_sample = self._count_passes()
        self._rng = generator(seed, "explore")
        self._rng_updates = generator(seed, "updates")

    @property
    def temperature(self) -> float:
        """The weight of one unit of entropy relative to reward."""
        return math.exp(self._log_temperature[0])

    def epsilon(self, env_step: float) -> float:
        """Return the probability of a random action: 1 until learning starts, then 0."""
        return 1.0 if env_step < self.cfg.learning_starts else 0.0

    def act(self, obs: Any) -> Array:
        """Return the mode of the policy for each of N observations, [N, ...]."""
        count_rows(obs, self.obs_space)
        return self._to_env(squashed_gaussian.best(self._net.predict(obs)))

    def explore(self, obs: Any, epsilon: float | None = None) -> Array:
        """Return an action sampled from the policy for each of N observations, [N, ...].

        Args:
            obs: [N, ...], or a dict of such arrays.
            epsilon: Probability of a uniformly random action instead; 0 if not given.
        """
        rows = count_rows(obs, self.obs_space)
        at_random = self._rng.random(rows) < (epsilon or 0.0)
        action = self._rng.uniform(-1, 1, (rows, self._size)).astype(np.float32)
        noise = self._rng.standard_normal((rows, self._size), np.float32)
        if not at_random.all():
            drawn = squashed_gaussian.draw(self._net.predict(obs), noise).action
            action = np.where(at_random[:, None], action, drawn)
        return self._to_env(action)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # detected and named
    def update(self, batch: TransitionBatch) -> dict[str, float]:
        """Take one gradient step for the critics, the policy and the temperature.

        Raises:
            NonFiniteError: A loss or a gradient is NaN or infinite. If it is the policy's, the
                critics have already learnt from this batch, because the policy's gradient comes
                from the critics after their step; otherwise nothing was changed.

        Returns:
            `critic_loss`, `q_mean` and `td_error_mean` as means over critics, and `temperature`; if
            the policy learns in this update, also `actor_loss` and `entropy`.
        """
        size = len(batch.action)
        reward, discount, weight = (
            column(name, getattr(batch, name), np.float32, size)
            for name in ("reward", "discount", "weight")
        )
        there = StagedBatch(batch, self.weights.device, self._from_env(batch.action))
        temperature = np.float32(self.temperature)
        noise = self._noise(size)
        looked_at = self.critics.draw_looked_at(self._rng_updates)
        shares = self._shares(size)
        self.critics.begin(len(shares))

        def learn(k: int) -> LearntShare:
            rows = shares[k]
            mine = BatchSlice(there, rows)
            if self._in_one_call:
                return self._learn_critics_at_once(
                    k, size, mine, mine.action, noise[rows], reward[rows], discount[rows],
                    weight[rows], temperature, looked_at,
                )  # fmt: skip
            following = squashed_gaussian.draw(self._net.predict(mine.next_obs), noise[rows])
            entropy = discount[rows] * temperature * following.logp
            return self.critics.learn(
                k, size, mine.obs, mine.action, mine.next_obs, following.action,
                reward[rows] - entropy, discount[rows], weight[rows], looked_at,
            )  # fmt: skip

        found = [LearntShare(*each) for each in self.shares(learn, len(shares), self.critics.grads)]
        loss = math.fsum(each.loss for each in found)
        self.td_error = np.concatenate([each.td_error for each in found])
        if not math.isfinite(loss):
            cause = first_not_finite(batch) or "networks or targets are not finite"
            raise self._not_finite(f"the loss is {loss}", cause)
        bad = self.critics.step()
        if bad is not None:
            raise self._gradient_not_finite(self.critics.weights, bad)
        metrics = {
            "critic_loss": loss,
            "q_mean": math.fsum(each.value_sum for each in found) / size,
            "td_error_mean": float(np.abs(self.td_error).mean()),
        }
        if self.train_iter % self.cfg.policy_every == 0:
            metrics |= self._learn_policy(there, shares, temperature)
        self.critics.follow()
        self.train_iter += 1
        return {**metrics, "temperature": self.temperature}

    def cut_batches(self, shares: Shares) -> None:
        """Divide every batch into `shares.members` shares, which `shares` computes.

        Raises:
            OptionError: The critics have layers that mix rows or draw random numbers.
        """
        self._check_can_be_cut(self.model, self.critics.module)
        self._least_rows = 1
        self.shares = shares
        self._grads = [self.weights.new_gradient() for _ in range(shares.members)]
        self.threads = shares.threads

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return a copy of all mutable state, as plain values and NumPy arrays, part by part.

        `policy` alone is enough to act; learning also needs the other parts.
        """
        return {
            "policy": dict(self.weights.state_dict()),
            "critics": self.critics.state_dict(),
            "optimizer": {
                "actor": self._adam.state_dict(),
                "temperature": self._adam_temperature.state_dict(),
                "log_temperature": self._log_temperature.copy(),
            },
            "exploration": {
                "explore": copy.deepcopy(dict(self._rng.bit_generator.state)),
                "updates": copy.deepcopy(dict(self._rng_updates.bit_generator.state)),
            },
            "counters": {"train_iter": self.train_iter},
        }

    def load_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Load parts that `parts` returned.

        Args:
            parts: Must contain `policy`. Parts that are missing stay unchanged.
        """
        self._check_parts(parts)
        self.weights.load_state_dict(parts["policy"])
        if "critics" in parts:
            self.critics.load_state_dict(parts["critics"])
        if "optimizer" in parts:
            self._adam.load_state_dict(parts["optimizer"]["actor"])
            self._adam_temperature.load_state_dict(parts["optimizer"]["temperature"])
            self._log_temperature[:] = parts["optimizer"]["log_temperature"]
        if "exploration" in parts:
            self._rng.bit_generator.state = parts["exploration"]["explore"]
            self._rng_updates.bit_generator.state = parts["exploration"]["updates"]
        if "counters" in parts:
            self.train_iter = int(parts["counters"]["train_iter"])

    def _learn_policy(
        self, batch: TransitionBatch, shares: list[slice], temperature: np.float32
    ) -> dict[str, float]:
        """Take one gradient step for the actor, and one for the temperature."""
        size = len(batch.action)
        noise = self._noise(size)

        def learn(k: int) -> tuple[float, float]:
            rows = shares[k]
            obs = BatchSlice(batch, rows).obs
            if self._in_one_call:
                return self._learn_policy_at_once(k, size, obs, noise[rows], temperature)
            drawn = squashed_gaussian.draw(self._net.forward(obs), noise[rows])
            q, by_action = self.critics.judge(obs, drawn.action)
            by_logp = np.full(len(q), temperature / np.float32(size), np.float32)
            by_outputs = squashed_gaussian.backward(drawn, by_action / np.float32(-size), by_logp)
            self._net.backward(by_outputs, self._grads[k])
            loss = np.sum(temperature * drawn.logp - q, dtype=np.float64)
            return float(loss), float(np.sum(drawn.logp, dtype=np.float64))

        found = self.shares(learn, len(shares), self._grads)
        loss = math.fsum(each for each, _ in found) / size
        if not math.isfinite(loss):
            raise self._not_finite(f"the actor's loss is {loss}", changed=_CRITICS_CHANGED)
        if not math.isfinite(self._adam.step(self._grads[0])):
            raise self._gradient_not_finite(self.weights, self._grads[0], _CRITICS_CHANGED)
        entropy = -math.fsum(logp for _, logp in found) / size
        if self.cfg.auto_temperature:
            # The loss is log_temperature * (entropy - target): excess entropy lowers the
            # temperature.
            self._adam_temperature.step(np.full(1, entropy - self._target_entropy, np.float32))
        return {"actor_loss": loss, "entropy": entropy}

    def _learn_critics_at_once(
        self,
        k: int,
        size: int,
        mine: BatchSlice,
        action: Array,
        noise: Array,
        reward: Array,
        discount: Array,
        weight: Array,
        temperature: np.float32,
        looked_at: NDArray[np.int64],
    ) -> LearntShare:
        """Compute share k of the critics' update like `Critics.learn`, in one compiled call."""
        policy, (critics, target) = self._compiled()
        rows = len(action)
        values = np.empty((rows, self.cfg.critics), np.float32)
        td_error = np.empty(rows, np.float32)
        loss = kernels.of_critics(
            policy.network(), policy.room(rows), target.network(), target.room(rows),
            critics.network(), critics.room(rows), critics.rows(mine.obs), action,
            critics.rows(mine.next_obs), noise, reward, discount, weight, temperature, size,
            looked_at, values, td_error, self.critics.grads[k],
        )  # fmt: skip
        value_sum = float(np.sum(values, dtype=np.float64)) / self.cfg.critics
        return LearntShare(loss, td_error, value_sum)

    def _learn_policy_at_once(
        self, k: int, size: int, obs: Any, noise: Array, temperature: np.float32
    ) -> tuple[float, float]:
        """Return the sums of loss and logp of share k, and write its gradient, in one call."""
        policy, (critics, _) = self._compiled()
        rows = len(noise)
        loss, logp = kernels.of_policy(
            policy.network(), policy.room(rows), critics.network(), critics.room(rows),
            critics.rows(obs), noise, temperature, size, self.critics.takes_lowest, self._grads[k],
        )  # fmt: skip
        return loss, logp

    def _compiled(self) -> tuple[FusedNet, tuple[FusedNet, FusedNet]]:
        compiled = self.critics.compiled
        assert isinstance(self._net, FusedNet) and compiled is not None
        return self._net, compiled

    def _shares(self, size: int) -> list[slice]:
        """Return the rows of each share of a batch."""
        return rows_of_shares(size, min(self.shares.members, size // self._least_rows))

    def _count_passes(self) -> float:
        """Return the cost of one sample in forward passes of the policy.

        The policy: one forward pass on the next observation, and forward and backward on this one.
        Each critic: one forward pass on the next observation, forward and backward for the action
        taken, and forward and half of backward for the action that the policy would take.
        """
        mine = sum(each.flops for each in count_products(self.model, self.obs_space))
        return 4 + 6 * self.cfg.critics * self.critics.flops / max(1, mine)

    def _noise(self, rows: int) -> Array:
        return self._rng_updates.standard_normal((rows, self._size), np.float32)

    def _to_env(self, action: Array) -> Array:
        scaled = self._middle + self._half * action
        space = self.action_space
        shaped = scaled.reshape((len(action), *(space.shape or ())))
        return np.clip(shaped, space.low, space.high).astype(space.dtype)  # type: ignore[attr-defined]

    def _from_env(self, action: Any) -> Array:
        flat = np.asarray(action, np.float32)
        if flat.shape[1:] != self.action_space.shape:
            raise OptionError(
                f"action of the batch has shape {flat.shape}",
                f"an action of {self.action_space} has {self.action_space.shape}",
                "store the actions that explore() returned",
            )
        # A number with equal bounds has only one value: return 0 for it, not 0 / 0.
        width = np.where(self._half > 0, self._half, np.float32(1))
        unscaled = (flat.reshape(len(flat), -1) - self._middle) / width
        return np.ascontiguousarray(unscaled, np.float32)
