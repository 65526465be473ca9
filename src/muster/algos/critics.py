"""The critics of a policy: their number, their update, and their judgement of its actions."""

import copy
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muster.algos.sac_config import SACConfig
from muster.nets import FlatParameters, make_adam
from muster.nets.critic import Critic, CriticGroup, make_critic_net
from muster.nets.flops import count_products
from muster.nets.fused_net import FusedNet
from muster.nets.registry import Factory
from muster.nets.torch_net import TorchNet
from muster.rl_utils.losses.critics import quantile_loss, squared_loss
from muster.seeding import derive_seed

Array = NDArray[np.float32]


class LearntShare(NamedTuple):
    """The contribution of some rows of a batch to the metrics of an update."""

    loss: float
    """Contribution to the critics' loss."""
    td_error: Array
    """[B], value - target, averaged over critics."""
    value_sum: float
    """Sum over rows of the critics' mean value."""


class Critics:
    """Critics that learn the same function from different initial weights, with target networks.

    All of them form one network with several outputs, so one call computes them. A batch may be
    processed in shares of rows (`muster.nets.shares`); each share writes its gradient to its own
    array.

    Args:
        cfg: The algorithm's options.
        obs_space: Space of one observation.
        action_size: Numbers in one action, each from -1 to 1.
        model: Your own network to encode observations.
        seed: Seed of the initial weights.
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
        members = [
            Critic(
                obs_space,
                action_size,
                cfg.hidden,
                cfg.quantiles or 1,
                activation=cfg.activation,
                layer_norm=cfg.layer_norm,
                dropout=cfg.dropout,
                batch_norm=cfg.batch_norm,
                model=model,
                seed=derive_seed(seed, k),
            )
            for k in range(cfg.critics)
        ]
        self.module = CriticGroup(members)
        """The torch module of all critics. Its parameters are always up to date."""
        target = copy.deepcopy(self.module)
        self.weights = FlatParameters(self.module)
        self.adam = make_adam(self.weights, cfg.lr_critic, (cfg.adam_beta1, 0.999))
        self._net = make_critic_net(self.module, self.weights)
        self.by_torch = self._net.by_torch
        """The reason why torch runs them, which is slower; None if they are compiled."""
        self._target_weights: FlatParameters | None = None
        self._target: FusedNet | TorchNet | None = None
        if not cfg.batch_norm:
            self._target_weights = FlatParameters(target)
            self._target = make_critic_net(target, self._target_weights)
        self.takes_lowest = not cfg.quantiles and cfg.target_critics == cfg.critics
        """Whether the policy's loss uses the lowest critic; otherwise it uses their mean."""
        self.grads: list[Any] = []
        """One gradient for each share of a batch."""
        pair = gym.spaces.Tuple([obs_space, gym.spaces.Box(-1, 1, (action_size,), np.float32)])
        self.flops = sum(each.flops for each in count_products(members[0], pair))
        """FLOPs of one critic for one observation and action."""

    @property
    def compiled(self) -> tuple[FusedNet, FusedNet] | None:
        """The critics and their targets, if they are compiled.

        Then a batch may be processed in shares: no layer mixes rows, and threads share no memory
        that they write.
        """
        if isinstance(self._net, FusedNet) and isinstance(self._target, FusedNet):
            return self._net, self._target
        return None

    def begin(self, shares: int) -> None:
        """Allocate the gradients of `shares` shares of a batch."""
        while len(self.grads) < shares:
            self.grads.append(self.weights.new_gradient())
        del self.grads[shares:]

    def learn(
        self,
        share: int,
        rows: int,
        obs: Any,
        action: Array,
        next_obs: Any,
        next_action: Array,
        reward: Array,
        discount: Array,
        weight: Array,
        looked_at: NDArray[np.int64],
    ) -> LearntShare:
        """Compute the gradient of a share of a batch.

        Args:
            share: Number of the share.
            rows: Rows in the whole batch.
            obs: [B, ...], or a dict of such arrays.
            action: [B, A], the actions taken.
            next_obs: Like `obs`, after these actions.
            next_action: [B, A], the policy's actions in `next_obs`.
            reward: [B], including the entropy term of `next_action`.
            discount: [B], the factor of the next value.
            weight: [B], importance weights.
            looked_at: The critics that the target uses.
        """
        values, after = self._values(obs, action, next_obs, next_action)
        target = reward[:, None] + discount[:, None] * self._after(after, looked_at)
        if self._cfg.quantiles:
            found = quantile_loss(values, target, weight, rows)
        else:
            found = squared_loss(values, target[:, 0], weight, rows)
        by_values = found.dvalues.reshape(len(values), -1)
        if self._target_weights is None:  # the second half of the rows of `_values` has no loss
            by_values = np.concatenate([by_values, np.zeros_like(by_values)])
        self._net.backward(by_values, self.grads[share])
        each = values.shape[1] * values.shape[2]
        value_sum = float(np.sum(values, dtype=np.float64)) / each
        return LearntShare(found.loss, found.td_error, value_sum)

    def step(self) -> Any:
        """Apply the critics' gradient, the sum of all shares in `grads[0]`, with Adam.

        If the gradient is not finite, change nothing and return it; otherwise return None.
        """
        total = self.grads[0]
        return None if np.isfinite(self.adam.step(total)) else total

    def judge(self, obs: Any, action: Array) -> tuple[Array, Array]:
        """Return the values [B] that the policy's loss uses, and their gradient w.r.t. the actions.

        The value is the lowest of all critics where the target takes the lowest of all, else the
        mean.
        """
        cfg = self._cfg
        # Batch norm uses its running means here: these rows contain the policy's actions only.
        values = self._by_critic(self._net.forward(obs, action, training=not cfg.batch_norm))
        means = values.mean(axis=2) if cfg.quantiles else values[:, :, 0]
        if self.takes_lowest:
            lowest = means.argmin(axis=1)
            q = np.take_along_axis(means, lowest[:, None], axis=1)[:, 0]
            shares: Array = (lowest[:, None] == np.arange(cfg.critics)).astype(np.float32)
        else:
            q = means.mean(axis=1)
            shares = np.full(means.shape, 1 / cfg.critics, np.float32)
        outputs = values.shape[2]
        by_values: Array = np.repeat(shares / np.float32(outputs), outputs, axis=1)
        return q, self._net.input_gradient(by_values)

    def follow(self) -> None:
        """Move the target networks towards the critics, by `tau`."""
        if self._target_weights is not None:
            self._target_weights.copy_from(self.weights, self._cfg.tau)

    def draw_looked_at(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the critics that the target of this update uses."""
        cfg = self._cfg
        if cfg.target_critics == cfg.critics:
            return np.arange(cfg.critics)
        return np.sort(rng.choice(cfg.critics, cfg.target_critics, replace=False))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all mutable state, critic by critic."""
        adam = self.adam.state_dict()
        states: dict[str, Any] = {}
        for k, at in enumerate(self._places()):
            states[str(k)] = {
                "critic": _of_member(self.weights.state_dict(), k),
                "adam": {**adam, "mean": adam["mean"][at], "square": adam["square"][at]},
            }
            if self._target_weights is not None:
                states[str(k)]["target"] = _of_member(self._target_weights.state_dict(), k)
        return states

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        each = [state[str(k)] for k in range(self._cfg.critics)]
        self.weights.load_state_dict(_of_group([one["critic"] for one in each]))
        if self._target_weights is not None:
            self._target_weights.load_state_dict(_of_group([one["target"] for one in each]))
        adam = dict(each[0]["adam"])
        for name in ("mean", "square"):
            adam[name] = np.concatenate([one["adam"][name] for one in each])
        self.adam.load_state_dict(adam)

    def _values(
        self, obs: Any, action: Any, next_obs: Any, next_action: Any
    ) -> tuple[Array, Array]:
        """Return the values of the actions taken, to be learnt, and of the next actions."""
        if self._target is None:
            # Batch norm must see both together: each alone has a different mean and variance.
            device = self.weights.device
            if not device.is_host:
                given = obs, action, next_obs, next_action
                obs, action, next_obs, next_action = device.stage(given)
            both = self._net.forward(_joined(obs, next_obs), _joined(action, next_action))
            mine, theirs = np.split(self._by_critic(both), 2)
            return mine, theirs
        # As in DroQ, targets use dropout if the critics do.
        of = self._target.forward if self._cfg.dropout else self._target.predict
        theirs = of(next_obs, next_action)
        return self._by_critic(self._net.forward(obs, action)), self._by_critic(theirs)

    def _after(self, values: Array, looked_at: NDArray[np.int64]) -> Array:
        """Return the next values [B, 1], or quantiles [B, K], of values [B, critics, outputs]."""
        cfg = self._cfg
        if cfg.quantiles:
            # Pool the quantiles of all critics, and keep the lowest.
            merged = np.sort(values.reshape(len(values), -1), axis=1)
            return merged[:, : cfg.critics * (cfg.quantiles - cfg.drop_quantiles)]
        lowest: Array = values[:, looked_at].min(axis=1)
        return lowest

    def _by_critic(self, values: Array) -> Array:
        """Return values [B, critics * outputs] as [B, critics, outputs]."""
        return values.reshape(len(values), self._cfg.critics, self._cfg.quantiles or 1)

    def _places(self) -> list[slice]:
        """Return the slice of each critic's weights; they are stored one after the other."""
        size = self.weights.vector.size // self._cfg.critics
        return [slice(k * size, (k + 1) * size) for k in range(self._cfg.critics)]


def _of_member(state: Any, member: int) -> dict[str, Any]:
    start = f"members.{member}."
    return {name[len(start) :]: x for name, x in state.items() if name.startswith(start)}


def _of_group(states: list[dict[str, Any]]) -> dict[str, Any]:
    return {f"members.{k}.{name}": x for k, state in enumerate(states) for name, x in state.items()}


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: _joined(part, other[key]) for key, part in one.items()}
    if isinstance(one, Tensor):
        return torch.cat([one, other])
    return np.concatenate([one, other])
