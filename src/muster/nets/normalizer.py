"""Observations brought to mean 0 and spread 1, as a part of the policy that is saved with it."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.envs.masks import ACTION_MASK

LIMIT = 10.0
"""What is further from the mean than so many standard deviations is cut off there."""


class RunningNorm(nn.Module):
    """Mean and variance of all rows so far; forward gives (x - mean) / std, cut off at `LIMIT`.

    It changes by `merge` alone, between two rollouts: who acts and who learns on what was acted see
    the same numbers, unless a rollout is collected ahead.
    """

    HOST_BUFFERS = frozenset({"count", "mean", "var"})
    """What only `merge` reads: it stays in float64 on the host, whatever device computes."""
    count: Tensor
    mean: Tensor
    var: Tensor
    offset: Tensor
    """float32 [d], the mean, as `forward` uses it."""
    factor: Tensor
    """float32 [d], 1 / std, as `forward` uses it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("offset", torch.zeros(size))
        self.register_buffer("factor", torch.ones(size))

    def forward(self, rows: Tensor) -> Tensor:
        """Return float32 [B, d] of rows [B, ...]."""
        flat = rows.reshape(rows.shape[0], -1).float()
        return ((flat - self.offset) * self.factor).clamp(-LIMIT, LIMIT)

    def merge(self, count: float, mean: NDArray[np.float64], m2: NDArray[np.float64]) -> None:
        """Take in so many more rows, by their mean and their sum of squares around it."""
        before, total = self.count.item(), self.count.item() + count
        my_mean, my_var = self.mean.numpy(), self.var.numpy()
        delta = mean - my_mean
        # Chan et al. 1979, eq. 2.1: the moments of two sets together.
        spread = my_var * before + m2 + delta * delta * (before * count / total)
        my_mean += delta * (count / total)
        np.divide(spread, total, out=my_var)
        self.count.fill_(total)
        self._refresh()

    def known(self) -> NDArray[np.float64]:
        """Return count, mean and variance as one vector."""
        return np.concatenate([self.count.numpy().reshape(1), self.mean.numpy(), self.var.numpy()])

    def load(self, known: NDArray[np.float64]) -> None:
        """Take over what `known` returned."""
        size = self.mean.numel()
        self.count.fill_(float(known[0]))
        self.mean.numpy()[:] = known[1 : 1 + size]
        self.var.numpy()[:] = known[1 + size :]
        self._refresh()

    def _refresh(self) -> None:
        if self.count.item():
            self.offset.copy_(self.mean)
            self.factor.copy_(torch.from_numpy(1 / np.sqrt(self.var.numpy() + 1e-8)))


class ObsNorm(nn.Module):
    """A `RunningNorm` for each part of an observation that is made of floats.

    Args:
        space: Of one observation. Images and categories pass unchanged.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.keys: list[str | None] = []
        """Which parts of a Dict; [None] if the observation is one array of floats."""
        parts = space.spaces if isinstance(space, gym.spaces.Dict) else {None: space}
        sizes = []
        for key, part in parts.items():
            if key == ACTION_MASK:
                continue
            if isinstance(part, gym.spaces.Box) and np.dtype(part.dtype).kind == "f":
                self.keys.append(key)
                sizes.append(int(np.prod(part.shape, dtype=int)))
        self.parts = nn.ModuleList(RunningNorm(size) for size in sizes)

    def forward(self, obs: Any) -> Any:
        """Return the observation with its parts of floats normalised, as [B, d]."""
        if not isinstance(obs, Mapping):
            return self.parts[0](obs) if self.keys else obs
        pairs = zip(self.keys, self.parts, strict=True)
        return {**obs, **{key: part(obs[key]) for key, part in pairs}}

    @property
    def norms(self) -> list[RunningNorm]:
        """The normaliser of each part, in the order of `keys`."""
        return [part for part in self.parts if isinstance(part, RunningNorm)]

    @property
    def width(self) -> int:
        """Numbers of an observation that are normalised."""
        return sum(norm.mean.numel() for norm in self.norms)

    def known(self) -> NDArray[np.float64]:
        """Return what all parts know as one vector."""
        return np.concatenate([np.zeros(0), *(norm.known() for norm in self.norms)])

    def load(self, known: NDArray[np.float64]) -> None:
        """Take over what `known` returned."""
        place = 0
        for norm in self.norms:
            size = 1 + 2 * norm.mean.numel()
            norm.load(known[place : place + size])
            place += size
