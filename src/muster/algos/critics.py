"""Critics of a policy: how many there are, what they learn, and what they say of its actions."""

import copy
import math
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.algos.sac_config import SACConfig
from muster.container import whole_cores
from muster.nets import Adam, FlatParameters
from muster.nets.critic import Critic, CriticNet
from muster.nets.flat import aligned
from muster.nets.flops import count_products
from muster.nets.registry import Factory
from muster.nets.side_by_side import SideBySide
from muster.rl_utils.losses.critics import CriticLoss, quantile_loss, squared_loss
from muster.seeding import derive_seed

Array = NDArray[np.float32]


class Critics:
    """Some critics that learn the same from other first weights, each with its target network.

    Args:
        cfg: How they learn.
        obs_space: Of one observation.
        action_size: Numbers of one action, each from -1 to 1.
        model: A network of the user's own that reads observations.
        seed: Decides the first weights.
    """

    def __init__(
        self,
        cfg: SACConfig,
        obs_space: gym.Space[Any],
        action_size: int,
        model: str | Factory | None,
        seed: int,
    ) -> None:
        self._cfg = cfg
        self._members = [
            _Member(cfg, obs_space, action_size, model, derive_seed(seed, k))
            for k in range(cfg.critics)
        ]
        self._all = SideBySide(cfg.critics, whole_cores())
        self.threads = self._all.threads
        """Critics that compute at once."""
        pair = gym.spaces.Tuple([obs_space, gym.spaces.Box(-1, 1, (action_size,), np.float32)])
        products = count_products(self._members[0].weights.module, pair)
        self.flops = sum(each.flops for each in products)
        """Of one critic, for one observation and action."""
        self.td_error: Array = np.zeros(0, np.float32)
        """Mean over critics of value - target, [B], of the last `learn`."""

    def learn(
        self,
        obs: Any,
        action: Array,
        next_obs: Any,
        next_action: Array,
        reward: Array,
        discount: Array,
        weight: Array,
        rng: np.random.Generator,
    ) -> dict[str, float]:
        """Compute every critic's gradient, and return means of metrics over critics.

        Args:
            obs: [B, ...], or a dict of such.
            action: [B, A], what was done.
            next_obs: Like `obs`, after that.
            next_action: [B, A], what the policy would do there.
            reward: [B], with the entropy that comes with `next_action`.
            discount: [B], what the value after it counts.
            weight: [B], importance.
            rng: Draws the critics that the target looks at.
        """
        pairs = (obs, action), (next_obs, next_action)
        values = self._all(lambda k: self._members[k].values(*pairs))
        target = reward[:, None] + discount[:, None] * self._target([v[1] for v in values], rng)
        losses = self._all(lambda k: self._members[k].differentiate(target, weight))
        count = len(losses)
        self.td_error = np.mean([each.td_error for each in losses], axis=0)
        return {
            "critic_loss": math.fsum(each.loss for each in losses) / count,
            "q_mean": math.fsum(float(v[0].mean()) for v in values) / count,
            "td_error_mean": float(np.abs(self.td_error).mean()),
        }

    def step(self) -> tuple[FlatParameters, Array] | None:
        """Move every critic against its gradient; or none, and return one that is not finite."""
        for member in self._members:
            if not np.isfinite(member.grad).all():
                return member.weights, member.grad
        self._all(lambda k: self._members[k].adam.step(self._members[k].grad))
        return None

    def judge(self, obs: Any, action: Array) -> tuple[Array, Array]:
        """Return what the policy is told of actions: their value [B], and its gradient by them.

        That is the lowest of all critics where the target takes the lowest of all, else the mean.
        """
        values = [v.mean(axis=1) for v in self._all(lambda k: self._members[k].value(obs, action))]
        stacked = np.stack(values)
        cfg = self._cfg
        if cfg.quantiles or cfg.target_critics < cfg.critics:
            q = stacked.mean(axis=0)
            shares = np.full(stacked.shape, 1 / cfg.critics, np.float32)
        else:
            lowest = stacked.argmin(axis=0)
            q = np.take_along_axis(stacked, lowest[None], axis=0)[0]
            shares = (lowest == np.arange(cfg.critics)[:, None]).astype(np.float32)
        by_action = self._all(lambda k: self._members[k].action_gradient(shares[k]))
        total = by_action[0]
        for each in by_action[1:]:
            total = total + each
        return q, total

    def follow(self) -> None:
        """Move the target networks a little towards the critics."""
        self._all(lambda k: self._members[k].follow(self._cfg.tau))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all that changes."""
        return {str(k): member.state_dict() for k, member in enumerate(self._members)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        for k, member in enumerate(self._members):
            member.load_state_dict(state[str(k)])

    def _target(self, next_values: list[Array], rng: np.random.Generator) -> Array:
        """Return what comes after, [B, 1], or [B, K] quantiles."""
        cfg = self._cfg
        if cfg.quantiles:
            # Of the quantiles of all critics together, the lowest count.
            merged = np.sort(np.concatenate(next_values, axis=1), axis=1)
            return merged[:, : cfg.critics * (cfg.quantiles - cfg.drop_quantiles)]
        if cfg.target_critics < cfg.critics:
            some = rng.choice(cfg.critics, cfg.target_critics, replace=False)
            next_values = [next_values[k] for k in sorted(some)]
        lowest: Array = np.min(next_values, axis=0)
        return lowest


class _Member:
    """One critic, its target network and its optimiser."""

    def __init__(
        self,
        cfg: SACConfig,
        obs_space: gym.Space[Any],
        action_size: int,
        model: str | Factory | None,
        seed: int,
    ) -> None:
        self._cfg = cfg
        critic = Critic(
            obs_space,
            action_size,
            cfg.hidden,
            cfg.quantiles or 1,
            activation=cfg.activation,
            layer_norm=cfg.layer_norm,
            dropout=cfg.dropout,
            batch_norm=cfg.batch_norm,
            model=model,
            seed=seed,
        )
        self.weights = FlatParameters(critic)
        self.grad = aligned(self.weights.vector.size)
        self.adam = Adam(self.weights.vector, cfg.lr_critic, (cfg.adam_beta1, 0.999))
        self._net = CriticNet(critic, self.weights)
        self._target_weights: FlatParameters | None = None
        if not cfg.batch_norm:
            target = copy.deepcopy(critic)
            self._target_weights = FlatParameters(target)
            self._target = CriticNet(target, self._target_weights)
        self._values: Array = np.zeros((0, 1), np.float32)

    def values(self, pair: tuple[Any, Array], following: tuple[Any, Array]) -> tuple[Array, Array]:
        """Return values of what was done, to be learnt, and of what follows."""
        if self._target_weights is None:
            # Batch norm has to see both: each alone has another mean and spread.
            both = self._net.forward(_joined(pair[0], following[0]), _joined(pair[1], following[1]))
            self._values = both
            mine, theirs = np.split(both, 2)
            return mine, theirs
        # Targets have dropout too where critics do (DroQ).
        of = self._target.forward if self._cfg.dropout else self._target.predict
        theirs = of(*following)
        self._values = self._net.forward(*pair)
        return self._values, theirs

    def differentiate(self, target: Array, weight: Array) -> CriticLoss:
        """Compute the gradient of the last values' loss."""
        rows = len(target)
        values = self._values[:rows]
        if self._cfg.quantiles:
            found = quantile_loss(values, target, weight)
        else:
            found = squared_loss(values, target[:, 0], weight)
        by_values = found.dvalues
        if len(self._values) > rows:
            by_values = np.concatenate([by_values, np.zeros_like(by_values)])
        self._net.backward(by_values, self.grad)
        return found

    def value(self, obs: Any, action: Array) -> Array:
        """Return values of what the policy would do."""
        # Batch norm goes by its running means here: these rows are of the policy alone.
        self._values = self._net.forward(obs, action, training=not self._cfg.batch_norm)
        return self._values

    def action_gradient(self, share: Array) -> Array:
        """Return the gradient by the actions of the last `value`, where a row counts so much."""
        outputs = self._values.shape[1]
        by_values = np.repeat(share[:, None] / np.float32(outputs), outputs, axis=1)
        return self._net.action_gradient(by_values)

    def follow(self, tau: float) -> None:
        """Move the target network a little towards this one."""
        if self._target_weights is not None:
            self._target_weights.copy_from(self.weights, tau)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all that changes."""
        state = {"critic": dict(self.weights.state_dict()), "adam": self.adam.state_dict()}
        if self._target_weights is not None:
            state["target"] = dict(self._target_weights.state_dict())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.weights.load_state_dict(state["critic"])
        self.adam.load_state_dict(state["adam"])
        if self._target_weights is not None:
            self._target_weights.load_state_dict(state["target"])


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: _joined(part, other[key]) for key, part in one.items()}
    return np.concatenate([one, other])
