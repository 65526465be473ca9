"""A recurrent policy: LSTM or GRU between the encoder and the heads, and how it learns.

obs -> [ObsNorm] -> encoder -> [layers] -> cell -+-> policy -> outputs [B, K]
                                  state --^  |   +-> value  -> [B]
                                  ^----------+

The data stored to learn from sequences of `length` steps:

    t      0 1 2 3 | 4 5 6 7         length 4, T 8: two chunks
    first  1 . . .   . 1 . .         episodes begin at t = 0 and t = 5: the state is zero there
    state  ^         ^               of the acting network, before t = 0 and before t = 4

Learning runs each sequence from its stored state with the current weights. In the first epoch these
are the weights that acted, and every ratio is 1. Later, the stored states are those of older
weights: this is the usual form of recurrent PPO, and a reason for few epochs.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.errors import OptionError
from muster.nets.action_head import ActionHead
from muster.nets.cells import GRU, LSTM
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.encoders import make_encoder
from muster.nets.flat import FlatParameters
from muster.nets.masking import mask_outputs
from muster.nets.mlp import MLP, linear
from muster.nets.normalizer import ObsNorm
from muster.nets.policy_net import Array, Floats, Objective, Rollout
from muster.nets.torch_policy import (
    Convolutions,
    FlatGradient,
    SlotGradients,
    gather,
    has_convolutions,
    most_likely,
    write_logp,
)

CELLS: dict[str, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}
"""The recurrent layers, by the name of the model."""


class RecurrentActorCritic(nn.Module):
    """A recurrent network that returns outputs for actions and a value.

    Args:
        obs_space: Space of one observation.
        head: How the outputs are interpreted.
        hidden: Width of each layer after the encoder; the last one is the recurrent layer.
        activation: "relu", "tanh", "gelu" or "silu", after each layer before that.
        normalize_obs: Put an `ObsNorm` in front.
        log_std: Initial log_std of a Gaussian.
        generator: Draws the initial weights. None: torch's global generator.
        layer_norm: Put a LayerNorm before each activation; the recurrent layer has none.
        critic: As for `ActorCritic`.
        cell: The recurrent layer: "lstm" or "gru".
    """

    def __init__(
        self,
        obs_space: gym.Space[Any],
        head: ActionHead,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        normalize_obs: bool = False,
        log_std: float = 0.0,
        generator: torch.Generator | None = None,
        layer_norm: bool = False,
        critic: bool = True,
        cell: str = "lstm",
    ) -> None:
        super().__init__()
        if not hidden:
            raise OptionError(
                f"hidden=() is not possible with model={cell}",
                "the last hidden layer is the recurrent one",
                "hidden=(64,)",
            )
        *before, width = hidden
        self.normalizer = ObsNorm(obs_space) if normalize_obs else None
        self.encoder = make_encoder(obs_space, generator)
        features = int(self.encoder.out_features)  # type: ignore[arg-type]  # every encoder has it
        self.trunk = MLP(features, before, None, activation, generator, layer_norm)
        self._cell = cell
        made = CELLS[cell](before[-1] if before else features, width, generator)
        self.add_module(cell, made)  # so that its weights have this name in a checkpoint
        means = head.width if head.gaussian else head.outputs
        self.policy = linear(width, means, generator)
        self.value = linear(width, 1, generator) if critic else None
        self.log_std = nn.Parameter(torch.full((means,), log_std)) if head.gaussian else None
        self._draw(generator)

    @property
    def cell(self) -> LSTM | GRU:
        """The recurrent layer."""
        found: LSTM | GRU = getattr(self, self._cell)
        return found

    @property
    def state_width(self) -> int:
        """Numbers in the state of one environment."""
        return self.cell.state_width

    def forward(
        self, obs: Any, state: Tensor | None = None, first: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return outputs [B, K] and values [B] of single steps, from a zero state by default.

        Args:
            obs: [B, ...], or a dict of such arrays.
            state: [B, state_width] before the step.
            first: bool [B], where an episode begins.
        """
        outputs, value, _ = self.steps(obs, state, first)
        return outputs, value

    def steps(
        self, obs: Any, state: Tensor | None, first: Tensor | None, length: int = 1
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run B sequences of `length` steps.

        Args:
            obs: [length * B, ...], or a dict of such arrays: the first steps of all sequences, then
                the second steps, and so on.
            state: [B, state_width] before the first step. None: zeros.
            first: bool [length * B], where an episode begins: the state is zeroed before it.
            length: Steps of each sequence.

        Returns:
            outputs [length * B, K], values [length * B], state [B, state_width] after the last.
        """
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        memory, state = self.remember(obs, state, first, length)
        outputs: Tensor = self.policy(memory)
        if self.log_std is not None:
            outputs = torch.cat([outputs, self.log_std.expand_as(outputs)], dim=1)
        outputs = mask_outputs(outputs, obs)
        value = outputs.amax(1) if self.value is None else self.value(memory).squeeze(1)
        return outputs, value, state

    def remember(
        self,
        obs: Any,
        state: Tensor | None,
        first: Tensor | None = None,
        length: int = 1,
        cut: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the cell's output of each step, [length * B, width], and the state after the last.

        Args:
            obs: As for `steps`, normalised, like the next three.
            state: See there.
            first: See there.
            length: See there.
            cut: bool [length * B], where the gradient is not propagated further back.
        """
        features: Tensor = self.trunk(self.encoder(obs))
        n = features.shape[0] // length
        if state is None:
            state = features.new_zeros(n, self.state_width)
        begins, cuts = (None if each is None else each.view(length, n, 1) for each in (first, cut))
        memory, state = self.cell(features.view(length, n, -1), state, begins, cuts)
        return memory.flatten(0, 1), state

    def _draw(self, generator: torch.Generator | None) -> None:
        # As in `ActorCritic`; 1 for the inputs of gates.
        gains: dict[nn.Module | None, float] = {
            self.policy: 0.01,
            self.value: 1.0,
            self.cell.input: 1.0,
        }
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                gain = gains.get(module, math.sqrt(2))
                nn.init.orthogonal_(module.weight, gain, generator=generator)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # every layer here has one
        nn.init.orthogonal_(self.cell.recurrent, 1.0, generator=generator)


def rows_of_sequences(
    rollout: Rollout, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]:
    """Return the rows of all steps of some sequences, their initial states, and `first` per row.

    Args:
        rollout: With `state` [T // length, N, state_width] and `first` [T * N], whose shapes
            determine `length`.
        rows: Numbers of S sequences: chunk * N + env, with chunk = t // length.

    Returns:
        int64 [length * S], the first steps of all sequences, then the second steps, and so on; [S,
        state_width]; bool [length * S].
    """
    if rollout.state is None or rollout.first is None:
        raise OptionError(
            "the rollout has no state or no first",
            "a recurrent network learns from the states that it had when it acted",
            "rollout._replace(state=..., first=...)",
        )
    chunks, n = rollout.state.shape[:2]
    length = len(rollout.first) // (chunks * n)
    if length * chunks * n != len(rollout.first):
        raise OptionError(
            f"{len(rollout.first)} rows are not {chunks} chunks of {n} environments",
            "each environment has the same number of steps in each chunk",
            "make the steps of a rollout a multiple of the length of a sequence",
        )
    steps = (rows // n * length + np.arange(length)[:, None]) * n + rows % n
    steps = steps.reshape(-1)
    state = np.take(rollout.state.reshape(chunks * n, -1), rows, axis=0)
    return steps, state, np.take(rollout.first, steps)


class RecurrentPolicy(SlotGradients):
    """A recurrent network for agents: like `PolicyNet`, with a state per environment.

    A state is float32 [n, state_width]. `first` is bool [n] and marks the environments whose
    episode begins with this observation: their state counts as zero, whatever it holds.

    Args:
        module: The network.
        flat: The parameters of `module`.
        head: How the outputs are interpreted.
        objective: Turns outputs into actions and a loss. None: a `ClippedObjective`.
        channels_last: As for `TorchPolicy`.
        bf16: As for `TorchPolicy`.
        compiled: As for `TorchPolicy`, but here a gradient then takes half the time: all the small
            steps of a sequence become one program.
        why: As for `TorchPolicy`.
    """

    row_exact = False

    def __init__(
        self,
        module: RecurrentActorCritic,
        flat: FlatParameters,
        head: ActionHead,
        objective: Objective | None = None,
        *,
        channels_last: bool = True,
        bf16: bool = False,
        compiled: bool = False,
        why: str = "it was requested",
    ) -> None:
        self.by_torch = why
        """The reason why the network is not compiled."""
        self._module = module.eval()  # for acting and for learning, as in TorchPolicy
        self._device = flat.device
        self._head = head
        self._objective = objective or ClippedObjective(head)
        self._gradient = FlatGradient(module, flat, head, self._objective)
        self._convolutions = Convolutions(channels_last, bf16) if has_convolutions(module) else None
        self._steps = torch.compile(module.steps) if compiled else module.steps
        self.state_width = module.state_width

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
        """Sample an action for each of n environments, and advance their states.

        Args:
            obs: [n, ...], or a dict of such arrays.
            noise: [n, width]: uniform in [0, 1) for categories, standard normal for a Gaussian.
            action: [n, width], output.
            logp: [n], output.
            value: [n], output.
            state: [n, state_width], read and overwritten with the state after this step.
            first: [n], True where an episode begins.
        """
        outputs, values, after = self._predict(obs, state, first)
        self._objective.draw(outputs, noise, action, logp)
        value[:] = values
        state[:] = after

    def act_groups(self, groups: Sequence[tuple[Any, ...]]) -> None:
        """Like `act`, for several groups of environments (see `TorchPolicy.act_groups`)."""
        made = self._predict_all([(group[0], *group[5:], 1) for group in groups])
        for (outputs, values, after), group in zip(made, groups, strict=True):
            _, noise, action, logp, value, state, _ = group
            self._objective.draw(outputs, noise, action, logp)
            value[:] = values
            state[:] = after

    def best(self, obs: Any, state: Floats, first: NDArray[np.bool_]) -> Array:
        """Return the most likely actions, [n, width]; overwrite the state as `act` does."""
        outputs, _, after = self._predict(obs, state, first)
        state[:] = after
        return most_likely(self._head, outputs)

    def values(self, obs: Any, value: Floats, state: Floats, first: NDArray[np.bool_]) -> None:
        """Write the value of each of n observations. The state stays unchanged."""
        value[:] = self._predict(obs, state, first)[1]

    def evaluate_actions(
        self,
        obs: Any,
        action: Array,
        logp: Floats,
        value: Floats,
        state: Floats,
        first: NDArray[np.bool_],
    ) -> None:
        """Write log-probabilities of the actions of n sequences, and values of their observations.

        Args:
            obs: [length * n, ...], or a dict of such arrays: the first steps of all sequences, then
                the second steps, and so on.
            action: [length * n, width], as `act` wrote it.
            logp: [length * n], output.
            value: [length * n], output.
            state: [n, state_width], read and overwritten with the state after the last step.
            first: [length * n], where an episode begins.
        """
        outputs, value[:], after = self._predict(obs, state, first, len(first) // len(state))
        write_logp(self._head, outputs, action, logp)
        state[:] = after

    def write_gradients(
        self, rollout: Rollout, rows: Any, terms: Any, grads: Any, stats: Any
    ) -> None:
        """Write the gradients of the loss over some sequences of several slots.

        Args:
            rollout: All rows, with `state` [T // length, N, state_width] and `first` [T * N], whose
                shapes determine `length`.
            rows: Numbers of sequences: chunk * N + env, with chunk = t // length; for each slot.
            terms: The coefficients of the loss. `scale` is 1 / steps, not 1 / sequences.
            grads: For each slot, as long as the flat vector; overwritten.
            stats: For each slot, one sum for each of the objective's metrics, overwritten.
        """
        sequences = [rows_of_sequences(rollout, mine) for mine in rows]
        inputs = tuple((gather(rollout.obs, s), state, first) for s, state, first in sequences)
        lengths = [len(each[0]) // len(mine) for each, mine in zip(sequences, rows, strict=True)]
        with torch.enable_grad():
            staged = self._device.stage(inputs, own=True)
            made = [
                self._run(given, length)[:2] for given, length in zip(staged, lengths, strict=True)
            ]
        steps = [each[0] for each in sequences]
        self._gradient.write(made, rollout, steps, terms, grads, stats)

    def _predict(
        self, obs: Any, state: Floats, first: NDArray[np.bool_], length: int = 1
    ) -> tuple[Floats, Floats, Floats]:
        return self._predict_all([(obs, state, first, length)])[0]

    def _predict_all(self, groups: Sequence[tuple[Any, ...]]) -> list[tuple[Any, Any, Any]]:
        staged = self._device.stage(tuple(group[:3] for group in groups), own=True)
        with torch.no_grad():
            made = [self._run(given, each[3]) for given, each in zip(staged, groups, strict=True)]
        found = self._device.fetch(*(tensor for three in made for tensor in three))
        return list(zip(found[::3], found[1::3], found[2::3], strict=True))

    def _run(self, staged: Any, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs, values and states of observations, states and `first`, as tensors."""
        if self._module.training:
            self._module.eval()
        with self._convolutions or nullcontext():
            obs, state, first = staged
            outputs, value, after = self._steps(obs, state, first, length)
        return outputs.contiguous(), value.contiguous(), after
