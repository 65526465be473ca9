"""Recurrent layers that start from any state: LSTM and GRU.

    inputs [T, B, in] -> gates by inputs, all steps at once -> step by step -> outputs [T, B, width]

`torch.nn.LSTM` and `torch.nn.GRU` cannot reset the state in the middle of a sequence.
"""

import math

import torch
from torch import Tensor, nn

from muster.nets.mlp import linear


class LSTM(nn.Module):
    """A layer of LSTM (Hochreiter and Schmidhuber 1997, with forget gates), from any state.

    Args:
        in_features: Width of the input.
        width: Width of the output, and of each half of the state: output, then cell.
        generator: Draws the initial weights. None: torch's global generator.
    """

    def __init__(self, in_features: int, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.width = width
        self.input = linear(in_features, 4 * width, generator)
        """To the gates: input, forget, output, then the value written to the cell."""
        self.recurrent = nn.Parameter(torch.empty(4 * width, width))
        bound = 1 / math.sqrt(width)
        nn.init.uniform_(self.recurrent, -bound, bound, generator=generator)

    @property
    def state_width(self) -> int:
        """Numbers in the state of one environment."""
        return 2 * self.width

    def forward(
        self, inputs: Tensor, state: Tensor, first: Tensor | None, cut: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return outputs [T, B, width] and the state [B, 2 * width] after them.

        Args:
            inputs: [T, B, in_features].
            state: [B, 2 * width].
            first: bool [T, B, 1], where the state is zeroed before the step.
            cut: bool [T, B, 1], where the gradient is not propagated further back than this step.
        """
        gates = self.input(inputs)  # for all steps at once
        recurrent = self.recurrent.t()
        outputs = []
        for t in range(len(inputs)):
            if first is not None:
                state = state.masked_fill(first[t], 0.0)
            if cut is not None:
                state = torch.where(cut[t], state.detach(), state)
            h, cell = state[:, : self.width], state[:, self.width :]
            gate = torch.addmm(gates[t], h, recurrent)
            enter, stay, leave = gate[:, : 3 * self.width].sigmoid().chunk(3, dim=1)
            write = gate[:, 3 * self.width :].tanh()
            cell = stay * cell + enter * write
            h = leave * cell.tanh()
            state = torch.cat([h, cell], dim=1)
            outputs.append(h)
        return torch.stack(outputs), state


class GRU(nn.Module):
    """A layer of GRU (Cho et al. 2014, in the form of torch and cuDNN), from any state.

        new = tanh(by inputs + reset * (by the state)),  state = (1 - update) * new + update * state

    Args:
        in_features: Width of the input.
        width: Width of the output, which is the state.
        generator: Draws the initial weights. None: torch's global generator.
    """

    def __init__(self, in_features: int, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.width = width
        self.input = linear(in_features, 3 * width, generator)
        """To the gates: reset, update, new."""
        self.recurrent = nn.Parameter(torch.empty(3 * width, width))
        self.recurrent_bias = nn.Parameter(torch.zeros(width))
        """Bias of new by the state: the only one that the bias of the inputs cannot replace."""
        bound = 1 / math.sqrt(width)
        nn.init.uniform_(self.recurrent, -bound, bound, generator=generator)

    @property
    def state_width(self) -> int:
        """Numbers in the state of one environment."""
        return self.width

    def forward(
        self, inputs: Tensor, state: Tensor, first: Tensor | None, cut: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return outputs [T, B, width] and the state [B, width] after them.

        Args:
            inputs: [T, B, in_features].
            state: [B, width].
            first: bool [T, B, 1], where the state is zeroed before the step.
            cut: bool [T, B, 1], where the gradient is not propagated further back than this step.
        """
        gates = self.input(inputs)  # for all steps at once
        recurrent, two = self.recurrent.t(), 2 * self.width
        outputs = []
        for t in range(len(inputs)):
            if first is not None:
                state = state.masked_fill(first[t], 0.0)
            if cut is not None:
                state = torch.where(cut[t], state.detach(), state)
            gate = torch.addmm(gates[t, :, :two], state, recurrent[:, :two]).sigmoid()
            reset, update = gate.chunk(2, dim=1)
            by_state = torch.addmm(self.recurrent_bias, state, recurrent[:, two:])
            new = (gates[t, :, two:] + reset * by_state).tanh()
            state = new + update * (state - new)
            outputs.append(state)
        return torch.stack(outputs), state
