"""An `ActorCritic` without torch: each method is one compiled call.

    why_not_fused  the rule for which networks are supported
    FusedPolicy    implements `PolicyNet`, with the kernels of `fused_kernels`

For a network with two layers of 64, torch spends most of its time on bookkeeping: a gradient over
64 rows takes 900 us with torch, and 70 us here.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.errors import OptionError
from muster.nets import fused_kernels as kernels
from muster.nets import fused_layers as shape
from muster.nets.action_head import ActionHead, no_such_action
from muster.nets.actor_critic import ActorCritic
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.encoders import Flatten
from muster.nets.flat import FlatParameters, aligned
from muster.nets.fused_plan import (
    Plan,
    PlanBuilder,
    count_parameters,
    why_no_chain,
    why_not_compiled,
)
from muster.nets.mlp import MLP
from muster.nets.normalizer import ObsNorm
from muster.nets.policy_net import STATS, Array, Floats, LossTerms, Objective, Rollout
from muster.nets.q_objective import QObjective
from muster.nets.row_encoder import RowEncoder, mask_of, take_rows, why_no_rows
from muster.nets.tile import FUSED


def why_not_fused(
    module: nn.Module, flat: FlatParameters, objective: Objective | None = None
) -> str | None:
    """Return why a network cannot use the compiled path, or None if it can.

    The rule: the module is an `ActorCritic` that reads numbers and categories, no images,
    optionally with an `ObsNorm`. Its Linear layers may have any width and a LayerNorm, and end with
    Tanh, ReLU, GELU, SiLU or nothing. Every parameter is learnt and used once. Then the
    hand-written gradient is the whole gradient. The kernels must contain the objective.
    """
    if objective is not None and not isinstance(objective, ClippedObjective | QObjective):
        return f"{type(objective).__name__} has no compiled loss"
    if not FUSED:
        return "numba cannot compile here, or has no directory for compiled code"
    if type(module) is not ActorCritic:
        return f"{type(module).__name__} is not the standard ActorCritic"
    reason = why_no_rows(module.encoder)
    if reason is not None:
        return reason
    if module.normalizer is not None and type(module.normalizer) is not ObsNorm:
        return f"observations are normalised by {type(module.normalizer).__name__}"
    if module.normalizer is not None and type(module.encoder) is not Flatten:
        return "observations of several parts are normalised"
    if (module.value is None) is not isinstance(objective, QObjective):
        return "only a policy has a separate critic"
    nets = _nets(module)
    for net in nets:
        if type(net) is not MLP:
            return f"{type(net).__name__} has no compiled equivalent"
        reason = why_no_chain(net)
        if reason is not None:
            return reason
    for net in nets[1:]:
        if not len(net) or type(net[-1]) is not nn.Linear:
            return "the policy or the value does not end with a Linear layer"
    parameters = sum(map(count_parameters, nets)) + (module.log_std is not None)
    return why_not_compiled(module, flat, parameters)


def _nets(module: ActorCritic) -> list[MLP]:
    nets = [module.trunk, module.policy, module.value]
    return [net for net in nets if net is not None]


def _plan_of(
    module: ActorCritic, flat: FlatParameters, head: ActionHead, is_q: bool
) -> tuple[Plan, NDArray[np.int64]]:
    """Return the plan of the kernels, and their `ends`."""
    builder = PlanBuilder(int(module.encoder.out_features), flat)  # type: ignore[arg-type]
    trunk = builder.add(module.trunk)
    ends = np.zeros(7, np.int64)
    ends[kernels.POLICY] = builder.add(module.policy, trunk, outputs=head.outputs)
    ends[kernels.VALUE] = -1 if module.value is None else builder.add(module.value, trunk)
    ends[kernels.WIDTH], ends[kernels.GAUSSIAN] = head.width, head.gaussian
    if module.log_std is not None:
        ends[kernels.LOG_STD] = builder.places[id(module.log_std)]
    ends[kernels.ROWS] = builder.room(2 * shape.BLOCK * shape.padded(head.outputs))
    ends[kernels.Q] = is_q
    return builder.done(), ends


class FusedPolicy:
    """A network that acts and learns, see `PolicyNet`. Call `why_not_fused` first.

    Arrays must be C-contiguous, with the dtypes of `PolicyNet`; for others numba would compile
    again. Observations of other dtypes are copied to float32 first, which costs time and gives the
    same result as torch.

    It reads parameters and normaliser in place, so it is never out of date. Several threads may use
    it: each has its own temporary arrays.

    Args:
        module: The network.
        flat: The parameters of `module`.
        head: How the outputs are interpreted.
        objective: Turns outputs into actions and a loss. None: a `ClippedObjective`.
    """

    row_exact = True
    by_torch = None
    """The network is compiled."""

    def __init__(
        self,
        module: ActorCritic,
        flat: FlatParameters,
        head: ActionHead,
        objective: Objective | None = None,
    ) -> None:
        reason = why_not_fused(module, flat, objective)
        if reason is not None:
            raise OptionError(
                f"the network cannot be compiled: {reason}",
                "FusedPolicy computes networks of one kind only",
                "TorchPolicy(module, flat, head), which takes any other network",
            )
        last: Any = module.policy[-1]
        if last.out_features != (head.width if head.gaussian else head.outputs):
            raise OptionError(
                f"the network's {last.out_features} outputs do not fit {head}",
                "the network was made for actions of another kind",
                "use the head that ActorCritic was made with",
            )
        self._flat = flat
        self._head = head
        self._is_q = isinstance(objective, QObjective)
        self._sums = np.zeros(len(STATS))
        self._plan, ends = _plan_of(module, flat, head, self._is_q)
        offset = factor = np.zeros(0, np.float32)
        if module.normalizer is not None and module.normalizer.keys:
            norm = module.normalizer.parts[0]
            offset, factor = norm.offset.numpy(), norm.factor.numpy()  # type: ignore[operator]
        sizes = np.array(head.sizes, np.int64)
        self._network = (self._plan.layers, self._plan.plan, ends, sizes, offset, factor)
        self._encode = RowEncoder(module.encoder)
        self._all_legal = np.zeros((0, 0), np.float32)
        self._floats = np.zeros(0, np.float32)
        self._noise = np.zeros((0, head.width), np.float32)
        self._action = np.zeros((0, head.width), head.dtype)
        self._local = threading.local()

    def act(self, obs: Any, noise: Floats, action: Array, logp: Floats, value: Floats) -> None:
        """Sample an action for each of n observations, see `PolicyNet.act`."""
        rows, mask = self._read(obs)
        self._act(kernels.SAMPLE, rows, mask, noise, action, logp, value)

    def best(self, obs: Any) -> Array:
        """Return the most likely action for each observation, [n, width]."""
        rows, mask = self._read(obs)
        action: Array = np.empty((len(rows), self._head.width), self._head.dtype)
        self._act(kernels.BEST, rows, mask, self._noise, action, self._floats, self._floats)
        return action

    def values(self, obs: Any, value: Floats) -> None:
        """Write the value of each of n observations."""
        rows, mask = self._read(obs)
        self._act(kernels.VALUES, rows, mask, self._noise, self._action, self._floats, value)

    def evaluate_actions(self, obs: Any, action: Array, logp: Floats, value: Floats) -> None:
        """Write log-probabilities of actions, and values, see `PolicyNet.evaluate_actions`."""
        rows, mask = self._read(obs)
        self._act(kernels.GIVEN, rows, mask, self._noise, action, logp, value)

    def gradient(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of the loss over some rows, see `PolicyNet.gradient`."""
        if self._is_q:
            self._write(rollout, rows, LossTerms(terms.scale, 0, 0, 0, 0), grad, self._sums)
            stats[:3] = self._sums[:3]
            stats[3] = terms.scale * terms.epsilon * len(rows)
        else:
            self._write(rollout, rows, terms, grad, stats)

    def _write(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: LossTerms,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        obs, action, logp, value, advantage, target = rollout[:6]
        taken = self._encode.copies  # otherwise rows are read in place
        obs = take_rows(obs, rows) if taken else obs
        bad = kernels.gradient(
            self._flat.vector,
            *self._network,
            *self._work(),
            *self._read(obs),
            taken,
            action,
            logp,
            value,
            advantage,
            target,
            rows,
            *map(float, terms),
            grad,
            stats,
        )
        if bad == kernels.BAD_SHAPES:
            shapes = [
                np.shape(x) for x in (logp, action, logp, value, advantage, target, grad, stats)
            ]
            raise OptionError(
                f"arrays of shapes {shapes} do not fit the network",
                "the fields of a rollout have one row each per step, a gradient is as long as the "
                "flat vector, and there are five sums",
                "rollout arrays [T * N, ...], grad = aligned(flat.vector.size)",
            )
        if bad >= 0:
            raise OptionError(
                f"row {rows[bad]} cannot be learnt from",
                f"there are {len(rollout.logp)} rows; or its action is not one of {self._head}",
                "rows within the rollout, and actions as `act` wrote them",
            )

    def _act(
        self,
        task: int,
        obs: Floats,
        mask: Floats,
        noise: Floats,
        action: Array,
        logp: Floats,
        value: Floats,
    ) -> None:
        kept, work = self._work()
        network = (self._flat.vector, *self._network)
        bad = kernels.act(*network, kept, work, task, obs, mask, noise, action, logp, value)
        if bad >= 0:
            raise no_such_action(action[bad], self._head)
        if bad != -1:
            shapes = [np.shape(x) for x in (obs, noise, action, logp, value)]
            raise OptionError(
                f"arrays of shapes {shapes} do not fit the network",
                f"it reads [n, {self._plan.plan[shape.N_INPUTS]}] observations, and writes "
                f"[n, {self._head.width}] actions",
                "one row for each observation in all of them; obs[None] for a single one",
            )

    def _read(self, obs: Any) -> tuple[Floats, Floats]:
        """Return observations as rows of floats, and which actions are legal in each row."""
        if not self._encode.copies:  # the common case, at every step: few calls
            rows: Floats = np.ascontiguousarray(obs, np.float32)
            return rows if rows.ndim == 2 else rows.reshape(len(rows), -1), self._all_legal
        mask = mask_of(obs, self._head.outputs)
        return self._encode(obs), self._all_legal if mask is None else mask

    def _work(self) -> tuple[Floats, Floats]:
        try:
            work: tuple[Floats, Floats] = self._local.work
        except AttributeError:
            work = self._local.work = aligned(self._plan.kept), aligned(self._plan.work)
        return work
