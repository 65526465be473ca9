"""A recurrent Q-network, and how it runs over sequences of one episode each.

    obs [, last action] -> encoder -> [layers] -> LSTM or GRU -+-> Q, or advantages -> [B, actions]
                                                               +-> value, if dueling:
                                                                   Q = V + A - mean(A)

Sequences are [B, T, ...] here, each with its own initial state. The gradient may be cut at a step
of each: the steps before it only compute the state (burn-in). If the network reads the last action,
the last number of a state is 1 + the number of that action, so a zero state has none.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.data.obs import map_obs
from muster.devices import as_array, beside
from muster.nets import sequence_kernels as kernels
from muster.nets.action_head import ActionHead
from muster.nets.flat import FlatParameters
from muster.nets.fused_recurrent import FusedRecurrent, why_not_fused_recurrent
from muster.nets.last_action import LastActionInput
from muster.nets.masking import mask_outputs
from muster.nets.policy_net import Floats
from muster.nets.recurrent import RecurrentActorCritic
from muster.nets.threads import one_torch_thread
from muster.nets.torch_net import TorchNet

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class RecurrentQNetwork(nn.Module):
    """Values of actions, from observations and a recurrent state.

    Args:
        obs_space: Space of one observation.
        n_actions: Number of actions.
        hidden: Width of each layer after the encoder; the last one is the recurrent layer.
        activation: "relu", "tanh", "gelu" or "silu", after each layer before that.
        dueling: Separate heads for value and advantages, both on top of the recurrent layer.
        cell: The recurrent layer: "lstm" or "gru".
        seed: Seed of the initial weights.
        last_action: Read the action before each observation, too.
    """

    def __init__(
        self,
        obs_space: gym.Space[Any],
        n_actions: int,
        hidden: Sequence[int] = (64, 64),
        activation: str = "relu",
        dueling: bool = True,
        cell: str = "lstm",
        seed: int = 0,
        last_action: bool = False,
    ) -> None:
        super().__init__()
        self.last_action = LastActionInput(obs_space, n_actions) if last_action else None
        """Makes the input of `steps`; None if it is just observations."""
        with one_torch_thread():  # orthogonal weights involve a matrix product
            self.body = RecurrentActorCritic(
                obs_space if self.last_action is None else self.last_action.space,
                ActionHead.of(gym.spaces.Discrete(n_actions)),
                hidden,
                activation,
                generator=torch.Generator().manual_seed(seed),
                critic=dueling,
                cell=cell,
            )

    def forward(self, obs: Any) -> Tensor:
        """Return Q, [B, actions], of single steps from a zero state."""
        if self.last_action is not None:
            arrays = map_obs(as_array, obs)
            one = next(iter(arrays.values())) if isinstance(arrays, dict) else arrays
            obs = beside(self, self.last_action(arrays, np.full(len(one), -1)))
        return self.steps(obs, None)[0]

    @property
    def state_width(self) -> int:
        """Numbers in the state of one environment, including the last action."""
        return self.body.state_width + (self.last_action is not None)

    def taken_apart(self, state: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """Return copies of the cell's state, and of the last actions [n]; -1 for none."""
        width = self.body.state_width
        cell: Floats = np.array(state[:, :width], np.float32)
        if self.last_action is None:
            return cell, np.full(len(state), -1)
        return cell, state[:, width].astype(np.int64) - 1

    def read(self, obs: Any, action: NDArray[np.int64]) -> Any:
        """Return the input of `steps` for observations and the actions before them."""
        return obs if self.last_action is None else self.last_action(obs, action)

    def steps(
        self,
        obs: Any,
        state: Tensor | None,
        first: Tensor | None = None,
        length: int = 1,
        cut: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return Q [length * B, actions], and the cell's state after the last step.

        The arguments are those of `RecurrentActorCritic.remember`, with the result of `read` as
        observations.
        """
        memory, state = self.body.remember(obs, state, first, length, cut)
        q: Tensor = self.body.policy(memory)
        if self.body.value is not None:
            q = self.body.value(memory) + q - q.mean(1, keepdim=True)
        return mask_outputs(q, obs), state


def make_q_sequences(
    module: RecurrentQNetwork, flat: FlatParameters
) -> "FusedQSequences | TorchQSequences":
    """Return the fastest way to run a network: compiled if possible, otherwise by torch."""
    why = why_not_fused_recurrent(module.body, flat)
    return FusedQSequences(module, flat) if why is None else TorchQSequences(module, flat, why)


class FusedQSequences(FusedRecurrent):
    """A `RecurrentQNetwork` without torch. Call `why_not_fused_recurrent` for its body first.

    Args:
        module: The network.
        flat: The parameters of `module`.
    """

    def __init__(self, module: RecurrentQNetwork, flat: FlatParameters) -> None:
        actions = module.body.policy.out_features
        super().__init__(module.body, flat, ActionHead.of(gym.spaces.Discrete(actions)))
        self._network = module
        self.state_width = module.state_width
        self._kept: tuple[kernels.Room, Floats, Bools] | None = None

    def step(self, obs: Any, state: Floats) -> Floats:
        """Return Q [n, actions] of n observations, and overwrite the cell's part of their states.

        Args:
            obs: [n, ...].
            state: [n, state_width] before the step. The caller writes the last action in it.
        """
        cell, last = self._network.taken_apart(state)
        q = self._combined(*self._run(self._network.read(obs, last), cell, _none_begins(cell)))
        state[:, : cell.shape[1]] = cell
        return q

    def unroll(self, obs: Any, state: Floats, action: Ints) -> Floats:
        """Return Q [B, T, actions] of sequences from given states.

        Args:
            obs: [B, T, ...].
            state: [B, state_width] before the first step.
            action: int64 [B, T - 1], from 0 on: the actions after each observation but the last.
        """
        return self._unroll(obs, state, action)[0]

    def forward(self, obs: Any, state: Floats, action: Ints, cut: Bools) -> Floats:
        """Like `unroll`, and keep the data for `backward`.

        Args:
            obs: See there, like the next two.
            state: See there.
            action: See there.
            cut: [B, T], where the gradient is not propagated further back than this step.
        """
        q, room, outputs = self._unroll(obs, state, action)
        self._kept = room, outputs, np.ascontiguousarray(cut.T).reshape(-1)
        return q

    def backward(self, dq: Floats, grad: Floats) -> None:
        """Write the gradient of sum(dq * q) of the last `forward`; dq is [B, T, actions]."""
        assert self._kept is not None, "forward came before"
        room, outputs, cut = self._kept
        d_outputs = _by_time(dq)
        d_value = d_outputs.sum(axis=1) if self._has_value else np.zeros(len(outputs), np.float32)
        if self._has_value:
            d_outputs = d_outputs - d_outputs.mean(axis=1, keepdims=True)
        self._back(d_outputs, d_value, outputs, cut, room, grad[None])

    def _unroll(self, obs: Any, state: Floats, action: Ints) -> tuple[Floats, kernels.Room, Floats]:
        after, last = self._network.taken_apart(state)
        count, length = obs.shape[:2]
        x = self._before(_by_time(self._network.read(obs, _before_each(last, action))), 1)
        room = self._room(len(x), count)
        room.x[:, 1 : 1 + x.shape[1]] = x
        kernels.forward(self._flat.vector, self._net, room, after, np.zeros(len(x), np.bool_), 1)
        outputs, value = self._read(room)
        q = self._combined(outputs, value).reshape(length, count, -1)
        return np.ascontiguousarray(q.swapaxes(0, 1)), room, outputs

    def _combined(self, outputs: Floats, value: Floats) -> Floats:
        """Return Q from the outputs of the heads."""
        if not self._has_value:
            return outputs
        q: Floats = value[:, None] + outputs - outputs.mean(axis=1, keepdims=True)
        return q


class TorchQSequences(TorchNet):
    """A `RecurrentQNetwork` by torch and autograd; the methods are those of `FusedQSequences`."""

    _module: RecurrentQNetwork

    @property
    def state_width(self) -> int:
        """Numbers in the state of one environment."""
        return self._module.state_width

    def step(self, obs: Any, state: Floats) -> Floats:
        """Return Q [n, actions] of n observations; see `FusedQSequences.step`."""
        cell, last = self._module.taken_apart(state)
        with torch.no_grad():
            seen = self._module.read(obs, last)
            made = self._module.steps(*self._device.stage((seen, cell)))
        found: list[Floats] = self._device.fetch(*made)
        state[:, : cell.shape[1]] = found[1]
        return found[0]

    def unroll(self, obs: Any, state: Floats, action: Ints) -> Floats:
        """Return Q [B, T, actions] of sequences; see `FusedQSequences.unroll`."""
        with torch.no_grad():
            return self._fetched(self._run(obs, state, action, None))

    def forward(  # type: ignore[override]
        self, obs: Any, state: Floats, action: Ints, cut: Bools
    ) -> Floats:
        """Like `unroll`, and keep the data for `backward`; see `FusedQSequences.forward`."""
        with torch.enable_grad():
            self._q = q = self._run(obs, state, action, cut)
        return self._fetched(q)

    def _run(self, obs: Any, state: Floats, action: Ints, cut: Bools | None) -> Tensor:
        count = len(state)
        cell, last = self._module.taken_apart(state)
        seen = self._module.read(obs, _before_each(last, action))
        cuts = None if cut is None else np.ascontiguousarray(cut.T).reshape(-1)
        steps, before, cuts_there = self._device.stage((map_obs(_by_time, seen), cell, cuts))
        one = next(iter(steps.values())) if isinstance(steps, dict) else steps
        length = len(one) // count
        q, _ = self._module.steps(steps, before, None, length, cuts_there)
        return q.view(length, count, -1).transpose(0, 1).contiguous()


def _by_time(x: NDArray[Any]) -> NDArray[Any]:
    """Return sequences [B, T, ...] as rows [T * B, ...]: all first steps, then all second ones."""
    return np.ascontiguousarray(x.swapaxes(0, 1)).reshape(-1, *x.shape[2:])


def _before_each(last: Ints, action: Ints) -> Ints:
    """Return the action before each observation of sequences, [B, T]."""
    return np.concatenate([last[:, None], action], axis=1)


def _none_begins(state: Floats) -> Bools:
    return np.zeros(len(state), np.bool_)
