"""A recurrent policy without torch: whole sequences, of several slots, in few compiled calls.

    obs -> [normalise] -> [layers (FusedNet)] -> LSTM or GRU, step by step, and heads
        -> loss -> the same way back

    why_not_fused_recurrent  the rule for which networks are supported
    FusedRecurrent           implements `RecurrentPolicy`, and `gradients` of several slots at once

The bits of an environment do not depend on the environments beside it: all environments of a worker
act in one call, and are learnt from in one.
"""

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from muster.errors import OptionError
from muster.nets import cell_kernels
from muster.nets import sequence_kernels as kernels
from muster.nets.action_head import ActionHead
from muster.nets.cells import GRU, LSTM
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.encoders import Flatten
from muster.nets.flat import FlatParameters
from muster.nets.fused_net import FusedNet
from muster.nets.fused_plan import count_parameters, flattened, why_no_chain, why_not_compiled
from muster.nets.policy_net import Array, Floats, Objective, Rollout
from muster.nets.recurrent import RecurrentActorCritic, rows_of_sequences
from muster.nets.sequence_back_kernels import backward
from muster.nets.torch_policy import most_likely, write_logp

_MOST_ROOMS = 8
"""Numbers of rows whose arrays are kept, per thread: for acting, learning, evaluation etc."""
_KINDS: dict[type[nn.Module], int] = {LSTM: cell_kernels.LSTM, GRU: cell_kernels.GRU}


def why_not_fused_recurrent(module: nn.Module, flat: FlatParameters) -> str | None:
    """Return why a recurrent network cannot use the compiled path, or None if it can.

    The rule: the module is a `RecurrentActorCritic` whose encoder only flattens; every parameter is
    learnt and used once.
    """
    if type(module) is not RecurrentActorCritic:
        return f"{type(module).__name__} is not the standard RecurrentActorCritic"
    if type(module.encoder) is not Flatten:
        return f"observations go through {type(module.encoder).__name__}"
    if type(module.cell) not in _KINDS:
        return f"{type(module.cell).__name__} has no compiled equivalent"
    before = list(flattened(module.trunk))
    heads = [head for head in (module.policy, module.value) if head is not None]
    reason = why_no_chain([*before, module.cell.input])
    if reason is not None:
        return reason
    own = len(list(module.cell.parameters()))
    parameters = count_parameters([*before, *heads]) + own + (module.log_std is not None)
    return why_not_compiled(module, flat, parameters)


def _places(module: RecurrentActorCritic, flat: FlatParameters) -> NDArray[np.int64]:
    """Return the description of the network for the kernels."""
    cell, at = module.cell, flat.places()
    net = np.full(kernels.PLACES, -1, np.int64)
    net[kernels.KIND] = _KINDS[type(cell)]
    net[kernels.INPUTS], net[kernels.WIDTH] = cell.input.in_features, cell.width
    net[kernels.BY_INPUTS], net[kernels.BIAS] = at[id(cell.input.weight)], at[id(cell.input.bias)]
    net[kernels.RECURRENT] = at[id(cell.recurrent)]
    if isinstance(cell, GRU):
        net[kernels.RECURRENT_BIAS] = at[id(cell.recurrent_bias)]
    net[kernels.OUTPUTS] = module.policy.out_features
    net[kernels.POLICY], net[kernels.POLICY_BIAS] = _linear(module.policy, at)
    if module.value is not None:
        net[kernels.VALUE], net[kernels.VALUE_BIAS] = _linear(module.value, at)
    return net


def _linear(layer: nn.Linear, at: dict[int, int]) -> tuple[int, int]:
    return at[id(layer.weight)], at[id(layer.bias)]


class FusedRecurrent:
    """A recurrent network, see `RecurrentPolicy`. Call `why_not_fused_recurrent` first.

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
        module: RecurrentActorCritic,
        flat: FlatParameters,
        head: ActionHead,
        objective: Objective | None = None,
    ) -> None:
        self._module = module
        self._flat = flat
        self._head = head
        self._objective = objective or ClippedObjective(head)
        self._net = _places(module, flat)
        self._trunks: list[FusedNet] = []
        self._has_value = module.value is not None
        self._log_std = slice(0, 0)
        if module.log_std is not None:
            at = flat.places()[id(module.log_std)]
            self._log_std = slice(at, at + module.policy.out_features)
        self.state_width = module.state_width
        self._local = threading.local()

    def act(
        self,
        obs: Any,
        noise: Floats,
        action: Array,
        logp: Floats,
        value: Floats,
        state: Floats,
        first: NDArray[np.bool_],
    ) -> None:
        """Sample an action for each of n environments, see `RecurrentPolicy.act`."""
        outputs, value[:] = self._run(obs, state, first)
        self._objective.draw(outputs, noise, action, logp)

    def best(self, obs: Any, state: Floats, first: NDArray[np.bool_]) -> Array:
        """Return the most likely actions, [n, width]; overwrite the state as `act` does."""
        return most_likely(self._head, self._run(obs, state, first)[0])

    def values(self, obs: Any, value: Floats, state: Floats, first: NDArray[np.bool_]) -> None:
        """Write the value of each of n observations. The state stays unchanged."""
        value[:] = self._run(obs, state.copy(), first)[1]

    def evaluate_actions(
        self,
        obs: Any,
        action: Array,
        logp: Floats,
        value: Floats,
        state: Floats,
        first: NDArray[np.bool_],
    ) -> None:
        """Write log-probabilities of actions, and values, see `RecurrentPolicy`."""
        outputs, value[:] = self._run(obs, state, first)
        write_logp(self._head, outputs, action, logp)

    def gradient(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of the loss over some sequences, see `RecurrentPolicy.gradient`."""
        self.gradients(rollout, rows[None], terms, grad[None], stats[None])

    def gradients(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grads: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of each of several slots, bitwise equal to the result of `gradient`.

        Args:
            rollout: See `RecurrentPolicy.gradient`.
            rows: [slots, sequences], see there.
            terms: See there.
            grads: [slots, size of the flat vector], overwritten.
            stats: [slots, metrics], overwritten.
        """
        slots, count = rows.shape
        steps, state, first = rows_of_sequences(rollout, rows.reshape(-1))
        # Slot by slot, and within a slot step by step.
        steps = np.ascontiguousarray(steps.reshape(-1, slots, count).swapaxes(0, 1))
        first = np.take(rollout.first, steps)  # type: ignore[arg-type]  # not None here
        x = self._before(np.take(rollout.obs, steps.reshape(-1), axis=0), slots)
        room = self._room(steps.size, rows.size)
        room.x[:, 1 : 1 + x.shape[1]] = x
        kernels.forward(self._flat.vector, self._net, room, state, first.reshape(-1), slots)
        outputs, value = self._read(room)
        d_outputs, d_value = np.empty_like(outputs), np.empty_like(value)
        stats[:] = 0
        size = steps[0].size
        for slot in range(slots):
            mine = slice(slot * size, (slot + 1) * size)
            wrong = self._objective.loss(
                outputs[mine], value[mine], rollout, steps[slot].reshape(-1), terms,
                d_outputs[mine], d_value[mine], stats[slot],
            )  # fmt: skip
            if wrong >= 0:
                raise OptionError(
                    f"row {steps[slot].reshape(-1)[wrong]} cannot be learnt from",
                    f"there are {len(rollout.logp)} rows; or its action is not one of {self._head}",
                    "rows within the rollout, and actions as `act` wrote them",
                )
        self._back(d_outputs, d_value, outputs, first.reshape(-1), room, grads)

    def _run(self, obs: Any, state: Floats, first: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return outputs [length * n, K] and values of n sequences; overwrite their state [n, W].

        Rows are the first steps of all sequences, then the second steps, and so on.
        """
        x = self._before(obs, 0)
        room = self._room(len(x), len(state))
        room.x[:, 1 : 1 + x.shape[1]] = x
        kernels.forward(self._flat.vector, self._net, room, state, np.ascontiguousarray(first), 1)
        return self._read(room)

    def _before(self, obs: Any, slots: int) -> Floats:
        """Return the input of the cells for observations [n, ...].

        Args:
            obs: Slot by slot, in equal numbers.
            slots: Number of slots with a backward pass; 0 for no backward pass.
        """
        obs = np.asarray(obs)
        if self._module.normalizer is not None:
            with torch.no_grad():
                obs = self._module.normalizer(torch.from_numpy(obs)).numpy()
        if not len(self._module.trunk):
            rows: Floats = obs.reshape(len(obs), -1)
            return rows
        while len(self._trunks) < max(slots, 1):
            self._trunks.append(FusedNet(self._flat, [self._module.trunk]))
        if not slots:
            return self._trunks[0].predict(obs)
        parts = zip(self._trunks, np.split(obs, slots), strict=False)
        return np.concatenate([trunk.forward(part) for trunk, part in parts])

    def _read(self, room: kernels.Room) -> tuple[Floats, Floats]:
        """Return outputs [n, K] and values [n] from the results of `kernels.forward`."""
        policy = int(self._has_value)
        outputs = room.made[:, policy : policy + self._net[kernels.OUTPUTS]]
        if self._log_std.stop:
            log_std = np.broadcast_to(self._flat.vector[self._log_std], outputs.shape)
            outputs = np.concatenate([outputs, log_std], axis=1)
        outputs = np.ascontiguousarray(outputs)
        return outputs, room.made[:, 0].copy() if self._has_value else outputs.max(axis=1)

    def _back(
        self,
        d_outputs: Floats,
        d_value: Floats,
        outputs: Floats,
        first: NDArray[np.bool_],
        room: kernels.Room,
        grads: Floats,
    ) -> None:
        """Write the gradients of all parameters, from derivatives w.r.t. outputs and values."""
        slots, count, policy = len(grads), self._net[kernels.OUTPUTS], int(self._has_value)
        if self._log_std.stop:
            by_slot = d_outputs[:, count:].reshape(slots, -1, count)
            for grad, mine in zip(grads, by_slot, strict=True):
                grad[self._log_std] = mine.sum(axis=0)
        room.made[:, policy : policy + count] = d_outputs[:, :count]
        if self._has_value:
            room.made[:, 0] = d_value
        else:
            room.made[np.arange(len(outputs)), outputs.argmax(axis=1)] += d_value
        inputs = int(self._net[kernels.INPUTS]) if len(self._module.trunk) else 0
        d_x = np.empty((len(outputs), inputs), np.float32)
        backward(self._flat.vector, self._net, room, first, slots, grads, d_x)
        if inputs:
            parts = zip(self._trunks, np.split(d_x, slots), grads, strict=False)
            for trunk, part, grad in parts:
                trunk.backward(part, grad)

    def _room(self, rows: int, sequences: int) -> kernels.Room:
        """Return this thread's arrays for this many rows."""
        rooms: dict[tuple[int, int], kernels.Room] = self._local.__dict__.setdefault("rooms", {})
        room = rooms.get((rows, sequences))
        if room is None:
            if len(rooms) >= _MOST_ROOMS:
                rooms.clear()
            room = rooms[rows, sequences] = kernels.make_room(self._net, rows, sequences)
        return room
