"""A policy with an LSTM without torch: whole sequences in a handful of compiled calls.

    obs -> [normalise] -> layers, gates by the inputs (FusedNet) -> LSTM, step by step
        -> policy and value (FusedNet) -> loss -> the same way back

    why_not_fused_recurrent  the one rule for which networks go this way
    FusedRecurrent           the face of `RecurrentPolicy`

The bits of an environment do not depend on those beside it: all of a worker's act in one call.
"""

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from muster.errors import OptionError
from muster.nets import lstm_kernels as kernels
from muster.nets.action_head import ActionHead
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.encoders import Flatten
from muster.nets.flat import FlatParameters
from muster.nets.fused_net import FusedNet
from muster.nets.fused_plan import count_parameters, flattened, why_no_chain, why_not_compiled
from muster.nets.policy_net import Array, Floats, Objective, Rollout
from muster.nets.recurrent import LSTM, RecurrentActorCritic, rows_of_sequences
from muster.nets.torch_policy import most_likely

_MOST_ROOMS = 8
"""Numbers of rows whose arrays are kept, per thread: of acting, learning, evaluating and others."""
_RECURRENT = 1
"""Tensors of an LSTM beside those of the layer that reads its inputs."""


def why_not_fused_recurrent(module: nn.Module, flat: FlatParameters) -> str | None:
    """Say what keeps a network with a memory from the compiled path, or None if nothing does.

    The rule: it is a `RecurrentActorCritic` whose encoder only flattens; every parameter is learnt
    and used once.
    """
    if type(module) is not RecurrentActorCritic:
        return f"{type(module).__name__} is not the standard RecurrentActorCritic"
    if type(module.encoder) is not Flatten:
        return f"observations go through {type(module.encoder).__name__}"
    if type(module.lstm) is not LSTM:
        return f"{type(module.lstm).__name__} has no compiled twin"
    before = list(flattened(_before(module)))
    heads = [head for head in (module.policy, module.value) if head is not None]
    reason = why_no_chain(before)
    if reason is not None:
        return reason
    parameters = count_parameters([*before, *heads]) + _RECURRENT + (module.log_std is not None)
    return why_not_compiled(module, flat, parameters)


def _before(module: RecurrentActorCritic) -> nn.Module:
    """Return the layers up to what goes into the gates."""
    return nn.Sequential(module.trunk, module.lstm.input)


class FusedRecurrent:
    """A network with a memory, see `RecurrentPolicy`. Ask `why_not_fused_recurrent` before.

    Args:
        module: The network.
        flat: Its parameters.
        head: What the outputs mean.
        objective: What is made of them. None: a `ClippedObjective`.
    """

    row_exact = True
    by_torch = None
    """It is compiled."""

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
        self._before = FusedNet(flat, [_before(module)])
        heads = [each for each in (module.policy, module.value) if each is not None]
        self._width = module.lstm.width
        self._after = FusedNet(flat, heads, beside=self._width)
        places = flat.places()
        at = places[id(module.lstm.recurrent)]
        self._recurrent = slice(at, at + 4 * self._width**2)
        self._means = module.policy.out_features
        self._log_std = slice(0, 0)
        if module.log_std is not None:
            at = places[id(module.log_std)]
            self._log_std = slice(at, at + self._means)
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
        """Draw an action for each of n environments, see `RecurrentPolicy.act`."""
        outputs, values = self._steps(obs, state, first)
        self._objective.draw(outputs, noise, action, logp)
        value[:] = values

    def best(self, obs: Any, state: Floats, first: NDArray[np.bool_]) -> Array:
        """Return the most likely actions, [n, width]; overwrite the state as `act` does."""
        return most_likely(self._head, self._steps(obs, state, first)[0])

    def values(self, obs: Any, value: Floats, state: Floats, first: NDArray[np.bool_]) -> None:
        """Write the value of each of n observations. The state stays as it is."""
        value[:] = self._steps(obs, state.copy(), first)[1]

    def gradient(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of the loss over some sequences, see `RecurrentPolicy.gradient`."""
        steps, state, first = rows_of_sequences(rollout, rows)
        obs = np.take(rollout.obs, steps, axis=0)
        outputs, value = self._steps(obs, state, first)
        d_outputs, d_value = np.empty_like(outputs), np.empty_like(value)
        stats[:] = 0
        wrong = self._objective.loss(
            outputs, value, rollout, steps, terms, d_outputs, d_value, stats
        )
        if wrong >= 0:
            raise OptionError(
                f"row {steps[wrong]} cannot be learnt from",
                f"there are {len(rollout.logp)} rows; or its action is none of {self._head}",
                "rows within the rollout, and actions as `act` wrote them",
            )
        self._back(d_outputs, d_value, outputs, first, len(rows), grad)

    def _steps(self, obs: Any, state: Floats, first: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return outputs [T * S, K] and values [T * S] of S sequences; overwrite their state."""
        if self._module.normalizer is not None:
            with torch.no_grad():
                obs = self._module.normalizer(torch.from_numpy(np.asarray(obs))).numpy()
        gates = self._before.forward(obs)
        count, width = len(gates), self._width
        room = self._room(count, len(state))
        room["gates"][:, : 4 * width] = gates
        weight = self._flat.vector[self._recurrent]
        kernels.forward(
            weight,
            room["turned"],
            state,
            np.ascontiguousarray(first),
            room["gates"],
            room["h_before"],
            room["cell_before"],
            room["h"],
            room["cell"],
        )
        made = self._after.forward(np.zeros((count, 0), np.float32), room["h"][:, :width])
        outputs = made[:, : self._means]
        if self._log_std.stop:
            log_std = np.broadcast_to(self._flat.vector[self._log_std], outputs.shape)
            outputs = np.concatenate([outputs, log_std], axis=1)
        if self._module.value is None:
            return np.ascontiguousarray(outputs), outputs.max(axis=1)
        return np.ascontiguousarray(outputs), np.ascontiguousarray(made[:, -1])

    def _back(
        self,
        d_outputs: Floats,
        d_value: Floats,
        outputs: Floats,
        first: NDArray[np.bool_],
        sequences: int,
        grad: Floats,
    ) -> None:
        """Write the gradient of all parameters, from derivatives by outputs and values."""
        means = d_outputs[:, : self._means]
        if self._log_std.stop:
            grad[self._log_std] = d_outputs[:, self._means :].sum(axis=0)
        if self._module.value is None:
            d_made = means.copy()
            d_made[np.arange(len(outputs)), outputs.argmax(axis=1)] += d_value
        else:
            d_made = np.concatenate([means, d_value[:, None]], axis=1)
        room, width = self._room(len(outputs), sequences), self._width
        d_h = self._after.input_gradient(d_made, grad)
        kernels.backward(
            self._flat.vector[self._recurrent],
            room["padded"],
            np.ascontiguousarray(first),
            room["gates"],
            room["h_before"],
            room["cell_before"],
            room["cell"],
            d_h,
            room["d_h_after"],
            room["d_cell"],
            room["by_weight"],
            grad[self._recurrent],
        )
        self._before.backward(np.ascontiguousarray(room["gates"][:, : 4 * width]), grad)

    def _room(self, rows: int, sequences: int) -> dict[str, Floats]:
        """Return the arrays of this thread for so many rows."""
        rooms: dict[tuple[int, int], dict[str, Floats]] = self._local.__dict__.setdefault(
            "rooms", {}
        )
        room = rooms.get((rows, sequences))
        if room is None:
            if len(rooms) >= _MOST_ROOMS:
                rooms.clear()
            width, h_row, four = (
                self._width,
                kernels.wide(self._width),
                kernels.wide(4 * self._width),
            )
            shapes = {
                "gates": (rows, four),
                "h_before": (rows, h_row),
                "cell_before": (rows, width),
                "h": (rows, h_row),
                "cell": (rows, width),
                "d_h_after": (sequences, h_row),
                "d_cell": (sequences, width),
                "turned": (width * four,),
                "padded": (4 * width * h_row,),
                "by_weight": (4 * width * h_row,),
            }
            room = rooms[rows, sequences] = {
                name: np.zeros(shape, np.float32) for name, shape in shapes.items()
            }
        return room
