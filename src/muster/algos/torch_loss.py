"""A base class for algorithms in step whose loss is written in torch, as one method.

    rollout -> rows -> network -> outputs, value -> loss (yours, row by row) -> autograd -> gradient

Acting, slots, workers, checkpoints and metrics are those of every agent in step.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muster.algos.actor_critic import ActorCriticAgent
from muster.errors import TaskError
from muster.nets.action_head import ActionHead
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.policy_net import Array, Floats, Objective, Rollout

_LOG_SPREAD = 0.5 * math.log(2 * math.pi)


class RolloutRows(NamedTuple):
    """Experience: m steps of a rollout, as tensors."""

    action: Tensor
    """[m, width], as the policy sampled it."""
    logp: Tensor
    """[m], log-probability of the action under the policy that sampled it."""
    value: Tensor
    """[m], value estimates of the network that acted."""
    advantage: Tensor
    """[m], from `prepare`; mean 0 and standard deviation 1 with `normalize_advantage`."""
    target: Tensor
    """[m], target of the value: the lambda-return."""
    env_step: int
    """Environment steps before the rollout."""


class TorchLossAgent(ActorCriticAgent):
    """An `ActorCriticAgent` whose loss is defined by its method `loss`."""

    stats: tuple[str, ...] = ("loss",)
    """Names of the metrics that `loss` also returns."""

    @property
    def watched(self) -> str:  # type: ignore[override]
        """Required by the interface but unused: no metric ends the epochs early."""
        return self.stats[0]

    @abstractmethod
    def loss(
        self, outputs: Tensor, value: Tensor, rows: RolloutRows
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the loss of each row [m], and for each of `stats` a tensor [m].

        muster averages each tensor over the minibatch. Several workers may compute its rows, so a
        loss that mixes rows would depend on their number.

        Args:
            outputs: [m, K], of the network that learns. `log_prob` and `entropy` read them.
            value: [m], of the same network.
            rows: The experience.
        """

    def log_prob(self, outputs: Tensor, action: Tensor) -> Tensor:
        """Return the log-probability [m] of actions [m, width] under outputs [m, K]."""
        if self.head.gaussian:
            mean, log_std = outputs.chunk(2, dim=1)
            distance = (action - mean) * (-log_std).exp()
            return -(0.5 * distance**2 + log_std + _LOG_SPREAD).sum(1)
        parts = zip(self._logits(outputs), action.unbind(1), strict=True)
        return torch.stack(
            [logp.gather(1, chosen[:, None])[:, 0] for logp, chosen in parts], dim=1
        ).sum(1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Return the entropy [m] of the policy under outputs [m, K]."""
        if self.head.gaussian:
            _, log_std = outputs.chunk(2, dim=1)
            return (log_std + _LOG_SPREAD + 0.5).sum(1)
        logits = self._logits(outputs)
        return torch.stack([-(each.exp() * each).sum(1) for each in logits], dim=1).sum(1)

    def objective(self) -> Objective:
        """Return the objective: the action distribution and the loss."""
        return _TorchObjective(self.head, self)

    def terms(self, env_step: int, rows: int) -> tuple[float, int]:
        """Return the weight of one row, and the step."""
        return 1 / rows, env_step

    def _logits(self, outputs: Tensor) -> list[Tensor]:
        """Return the log-probabilities of the categories of each number of an action."""
        parts = torch.split(outputs, list(self.head.sizes), dim=1)
        return [each.log_softmax(1) for each in parts]


class _TorchObjective:
    """Differentiates an agent's `loss` w.r.t. outputs and values; does not know the network."""

    def __init__(self, head: ActionHead, agent: TorchLossAgent) -> None:
        self._head = head
        self._agent = agent
        self._policy = ClippedObjective(head)

    def draw(self, outputs: Floats, noise: Floats, action: Array, logp: Floats) -> None:
        self._policy.draw(outputs, noise, action, logp)

    def loss(
        self,
        outputs: Floats,
        value: Floats,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: tuple[float, int],
        d_outputs: Floats,
        d_value: Floats,
        stats: NDArray[np.float64],
    ) -> int:
        outside = (rows < 0) | (rows >= len(rollout.logp))
        if outside.any():
            return int(outside.argmax())
        scale, env_step = terms
        batch = RolloutRows(
            _taken(rollout.action, rows),
            _taken(rollout.logp, rows),
            _taken(rollout.value, rows),
            _taken(rollout.advantage, rows),
            _taken(rollout.target, rows),
            env_step,
        )
        made = torch.from_numpy(outputs).requires_grad_()
        worth = torch.from_numpy(value).requires_grad_()
        with torch.enable_grad():
            losses, metrics = self._agent.loss(made, worth, batch)
            self._check(losses, metrics, len(rows))
            losses.backward(torch.full_like(losses, scale))  # type: ignore[no-untyped-call]
        for found, out in ((made.grad, d_outputs), (worth.grad, d_value)):
            out[:] = 0 if found is None else found.numpy()
        for place, metric in enumerate(metrics):
            stats[place] += scale * float(metric.detach().double().sum())
        return -1

    def _check(self, losses: Any, metrics: Any, count: int) -> None:
        """Raise TaskError unless there is one number for each row."""
        named = {"the loss": losses, **dict(zip(self._agent.stats, metrics, strict=False))}
        shapes = {name: tuple(getattr(x, "shape", ())) for name, x in named.items()}
        wrong = [f"{name} has shape {shape}" for name, shape in shapes.items() if shape != (count,)]
        if len(metrics) != len(self._agent.stats):
            wrong.append(f"there are {len(metrics)} metrics for stats={self._agent.stats}")
        if wrong:
            raise TaskError(
                f"{type(self._agent).__name__}.loss returned a wrong result: {wrong[0]}",
                f"it must return a loss for each of {count} rows, and such a tensor for each of "
                "stats",
                "return loss, (policy_loss, value_loss), each of shape [m], not their means",
            )


def _taken(column: Array, rows: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.take(column, rows, axis=0))
