"""A Q-network with a memory, and how it is run over sequences of one episode each.

    obs -> encoder -> [layers] -> LSTM or GRU -+-> Q, or advantages -> [B, actions]
                                               +-> value, if dueling: Q = V + A - mean(A)

Sequences are [B, T, ...] here, each from a state of its own. The gradient may be cut at a step of
each: what lies before it only makes the state (burn-in).
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.data.obs import map_obs
from muster.nets import sequence_kernels as kernels
from muster.nets.action_head import ActionHead
from muster.nets.flat import FlatParameters
from muster.nets.fused_recurrent import FusedRecurrent, why_not_fused_recurrent
from muster.nets.masking import mask_outputs
from muster.nets.policy_net import Floats
from muster.nets.q_network import as_tensors
from muster.nets.recurrent import RecurrentActorCritic
from muster.nets.threads import one_torch_thread
from muster.nets.torch_net import TorchNet

Bools = NDArray[np.bool_]


class RecurrentQNetwork(nn.Module):
    """Values of actions, from what is seen and remembered.

    Args:
        obs_space: Of one observation.
        n_actions: How many actions there are.
        hidden: Width of each layer after the encoder; the last one is what remembers.
        activation: "relu", "tanh", "gelu" or "silu", after each layer before that.
        dueling: Heads for the value and for advantages, both on what remembers.
        cell: "lstm" or "gru": what remembers.
        seed: Decides the first weights, alone.
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
    ) -> None:
        super().__init__()
        with one_torch_thread():  # orthogonal weights come out of a product
            self.body = RecurrentActorCritic(
                obs_space,
                ActionHead.of(gym.spaces.Discrete(n_actions)),
                hidden,
                activation,
                generator=torch.Generator().manual_seed(seed),
                critic=dueling,
                cell=cell,
            )

    def forward(self, obs: Any) -> Tensor:
        """Return Q, [B, actions], of single steps from no memory."""
        return self.steps(obs, None)[0]

    def steps(
        self,
        obs: Any,
        state: Tensor | None,
        first: Tensor | None = None,
        length: int = 1,
        cut: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return Q [length * B, actions], and the state after the last step.

        The arguments are those of `RecurrentActorCritic.remember`.
        """
        memory, state = self.body.remember(obs, state, first, length, cut)
        q: Tensor = self.body.policy(memory)
        if self.body.value is not None:
            q = self.body.value(memory) + q - q.mean(1, keepdim=True)
        return mask_outputs(q, obs), state


def make_q_sequences(
    module: RecurrentQNetwork, flat: FlatParameters
) -> "FusedQSequences | TorchQSequences":
    """Return the fastest way to run a network: compiled where that is possible, else by torch."""
    why = why_not_fused_recurrent(module.body, flat)
    return FusedQSequences(module, flat) if why is None else TorchQSequences(module, flat, why)


class FusedQSequences(FusedRecurrent):
    """A `RecurrentQNetwork` without torch. Ask `why_not_fused_recurrent` of its body before.

    Args:
        module: The network.
        flat: Its parameters.
    """

    def __init__(self, module: RecurrentQNetwork, flat: FlatParameters) -> None:
        actions = module.body.policy.out_features
        super().__init__(module.body, flat, ActionHead.of(gym.spaces.Discrete(actions)))
        self._kept: tuple[kernels.Room, Floats, Bools] | None = None

    def step(self, obs: Any, state: Floats, first: Bools) -> Floats:
        """Return Q [n, actions] of n observations, and overwrite their state.

        Args:
            obs: [n, ...].
            state: [n, state_width] before the step.
            first: [n], whose episode begins here: its state counts as zero.
        """
        return self._combined(*self._run(obs, state, first))

    def unroll(self, obs: Any, state: Floats) -> Floats:
        """Return Q [B, T, actions] of sequences [B, T, ...] from states [B, state_width]."""
        return self._unroll(obs, state)[0]

    def forward(self, obs: Any, state: Floats, cut: Bools) -> Floats:
        """Do as `unroll`, and keep what `backward` needs.

        Args:
            obs: [B, T, ...].
            state: [B, state_width] before the first step.
            cut: [B, T], where the gradient goes back no further than to this step.
        """
        q, room, outputs = self._unroll(obs, state)
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

    def _unroll(self, obs: Any, state: Floats) -> tuple[Floats, kernels.Room, Floats]:
        count, length = obs.shape[:2]
        x = self._before(_by_time(obs), 1)
        room = self._room(len(x), count)
        room.x[:, 1 : 1 + x.shape[1]] = x
        after = np.array(state, np.float32)  # a copy: it is overwritten
        kernels.forward(self._flat.vector, self._net, room, after, np.zeros(len(x), np.bool_), 1)
        outputs, value = self._read(room)
        q = self._combined(outputs, value).reshape(length, count, -1)
        return np.ascontiguousarray(q.swapaxes(0, 1)), room, outputs

    def _combined(self, outputs: Floats, value: Floats) -> Floats:
        """Return Q of what the heads make."""
        if not self._has_value:
            return outputs
        q: Floats = value[:, None] + outputs - outputs.mean(axis=1, keepdims=True)
        return q


class TorchQSequences(TorchNet):
    """A `RecurrentQNetwork` by torch and autograd; methods as those of `FusedQSequences`."""

    _module: RecurrentQNetwork

    @property
    def state_width(self) -> int:
        """Numbers that make the state of one environment."""
        return self._module.body.state_width

    def step(self, obs: Any, state: Floats, first: Bools) -> Floats:
        """Return Q [n, actions] of n observations, and overwrite their state."""
        with torch.no_grad():
            q, after = self._module.steps(as_tensors(obs), as_tensors(state), as_tensors(first))
        state[:] = after.numpy()
        return q.numpy()

    def unroll(self, obs: Any, state: Floats) -> Floats:
        """Return Q [B, T, actions] of sequences [B, T, ...] from states [B, state_width]."""
        with torch.no_grad():
            return self._run(obs, state, None).numpy()

    def forward(self, obs: Any, state: Floats, cut: Bools) -> Floats:  # type: ignore[override]
        """Do as `unroll`, and keep what `backward` needs; `cut` as for `FusedQSequences`."""
        with torch.enable_grad():
            self._q = self._run(obs, state, cut)
        return self._q.detach().numpy()

    def _run(self, obs: Any, state: Floats, cut: Bools | None) -> Tensor:
        count = len(state)
        steps = as_tensors(map_obs(_by_time, obs))
        cuts = None if cut is None else torch.from_numpy(np.ascontiguousarray(cut.T).reshape(-1))
        one = next(iter(steps.values())) if isinstance(steps, dict) else steps
        length = len(one) // count
        q, _ = self._module.steps(steps, as_tensors(state), None, length, cuts)
        return q.view(length, count, -1).transpose(0, 1).contiguous()


def _by_time(x: NDArray[Any]) -> NDArray[Any]:
    """Return sequences [B, T, ...] as rows [T * B, ...]: all first steps, then all second ones."""
    return np.ascontiguousarray(x.swapaxes(0, 1)).reshape(-1, *x.shape[2:])
