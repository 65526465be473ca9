"""Observations normalised to mean 0 and standard deviation 1, saved as part of the policy."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.envs.masks import ACTION_MASK

LIMIT = 10.0
"""Values further from the mean than this many standard deviations are clipped."""


class RunningNorm(nn.Module):
    """Mean and variance of all rows so far; forward returns (x - mean) / std, clipped at `LIMIT`.

    Only `merge` changes it, between two rollouts: so acting and learning from the same rollout use
    the same numbers, unless a rollout is collected ahead.
    """

    HOST_BUFFERS = frozenset({"count", "mean", "var"})
    """Buffers that only `merge` reads: they stay on the host in float64, whatever the device."""
    count: Tensor
    mean: Tensor
    var: Tensor
    offset: Tensor
    """float32 [d], the mean, for `forward`."""
    factor: Tensor
    """float32 [d], 1 / std, for `forward`."""

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
        """Include `count` more rows, given by their mean and their sum of squared deviations."""
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
        """Restore statistics that `known` returned."""
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
    """A `RunningNorm` for each part of an observation that consists of floats.

    Args:
        space: Space of one observation. Images and categories pass unchanged.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.keys: list[str | None] = []
        """The normalised keys of a Dict; [None] if the observation is one array of floats."""
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
        """Return the observation with its float parts normalised, as [B, d]."""
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
        """Numbers in an observation that are normalised."""
        return sum(norm.mean.numel() for norm in self.norms)

    def known(self) -> NDArray[np.float64]:
        """Return the statistics of all parts as one vector."""
        return np.concatenate([np.zeros(0), *(norm.known() for norm in self.norms)])

    def load(self, known: NDArray[np.float64]) -> None:
        """Restore statistics that `known` returned."""
        place = 0
        for norm in self.norms:
            size = 1 + 2 * norm.mean.numel()
            norm.load(known[place : place + size])
            place += size
