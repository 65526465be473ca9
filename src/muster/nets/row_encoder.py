"""Observations as rows of floats without torch: the input of compiled networks.

Box, MultiBinary        the numbers themselves
Discrete, MultiDiscrete one-hot vectors
Dict of these           one after another, in the order of the encoder; without the action mask
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.envs.masks import ACTION_MASK
from muster.errors import OptionError
from muster.nets.encoders import DictEncoder, Flatten, OneHot

Floats = NDArray[np.float32]


def why_no_rows(encoder: nn.Module) -> str | None:
    """Return which part of an encoder does more than arrange numbers in rows, or None."""
    if type(encoder) is DictEncoder:
        reasons = [why_no_rows(part) for part in encoder.parts]
        return next((reason for reason in reasons if reason is not None), None)
    if type(encoder) in (Flatten, OneHot):
        return None
    return f"observations go through {type(encoder).__name__}"


class RowEncoder:
    """Does the work of a torch encoder in NumPy. Call `why_no_rows` first.

    Args:
        encoder: The encoder of a network.
    """

    def __init__(self, encoder: nn.Module) -> None:
        self.width = int(encoder.out_features)  # type: ignore[arg-type]  # every encoder has it
        """Numbers in one row."""
        self._places: NDArray[np.int64] | None = None
        self._parts: list[tuple[str, RowEncoder]] = []
        if isinstance(encoder, OneHot):
            self._places = encoder.offsets.numpy()
        elif isinstance(encoder, DictEncoder):
            pairs = zip(encoder.keys, encoder.parts, strict=True)
            self._parts = [(key, RowEncoder(part)) for key, part in pairs]
        self.copies = self._places is not None or bool(self._parts)
        """Whether rows are computed, so select them first if possible; otherwise they are views."""

    def __call__(self, obs: Any) -> Floats:
        """Return float32 [n, width]; the same array if it already has this form."""
        if self._parts:
            return np.concatenate([part(obs[key]) for key, part in self._parts], axis=1)
        if self._places is not None:
            return self._one_hot(np.asarray(obs), self._places)
        rows = np.ascontiguousarray(obs, np.float32)
        return rows if rows.ndim == 2 else rows.reshape(len(rows), -1)

    def _one_hot(self, obs: NDArray[Any], places: NDArray[np.int64]) -> Floats:
        at = obs.reshape(len(obs), -1).astype(np.int64) + places
        rows = np.zeros((len(at), self.width), np.float32)
        try:
            np.put_along_axis(rows, at, np.float32(1), axis=1)
        except IndexError:
            raise OptionError(
                f"an observation is not one of {self.width} categories",
                f"the observations here are from {obs.min()} to {obs.max()}",
                "observations of the space that the network was made for",
            ) from None
        return rows


def mask_of(obs: Any, outputs: int) -> Floats | None:
    """Return the action mask of observations as float32 [n, outputs], or None without one."""
    if not isinstance(obs, Mapping) or ACTION_MASK not in obs:
        return None
    mask = np.asarray(obs[ACTION_MASK])
    return np.ascontiguousarray(mask.reshape(len(mask), outputs), np.float32)


def take_rows(obs: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of observations, an array or a dict of them; clip numbers out of range.

    The kernels reject rows that do not exist.
    """
    if isinstance(obs, Mapping):
        return {key: take_rows(part, rows) for key, part in obs.items()}
    return np.take(obs, rows, axis=0, mode="clip")
