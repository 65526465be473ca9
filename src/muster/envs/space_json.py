"""Spaces of Gymnasium as plain values, for files; the form is the one that Minari's files have.

Box(-1, 1, (3,)) <-> {"type": "Box", "dtype": "float32", "shape": [3], "low": -1.0, "high": 1.0}

A bound that is the same everywhere is written once: an image would need a hundred thousand numbers.
"""

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from muster.envs.errors import EnvError

_MOST_NUMBERS = 1 << 26
"""Numbers of one observation: a file that claims more is damaged, and would fill the memory."""
_BOX_TYPES = frozenset("fiub")


def space_to_json(space: gym.Space[Any]) -> dict[str, Any]:
    """Return a space as plain values.

    Raises:
        EnvError: There is no such form of this space.
    """
    if isinstance(space, gym.spaces.Dict):
        parts = {name: space_to_json(part) for name, part in space.spaces.items()}
        return {"type": "Dict", "subspaces": parts}
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        sizes, starts = space.nvec.tolist(), space.start.tolist()
        return {"type": "MultiDiscrete", "nvec": sizes, "start": starts}
    if isinstance(space, gym.spaces.MultiBinary):
        sizes = list(space.shape)
        return {"type": "MultiBinary", "n": sizes[0] if len(sizes) == 1 else sizes}
    if isinstance(space, gym.spaces.Box):
        return {
            "type": "Box",
            "dtype": np.dtype(space.dtype).name,
            "shape": list(space.shape),
            "low": _bound(space.low),
            "high": _bound(space.high),
        }
    raise EnvError(
        f"{space} cannot be written to a file",
        "spaces are Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of those",
        "a wrapper that makes one of these of it",
    )


def space_from_json(written: Any) -> gym.Space[Any]:
    """Return the space that plain values describe; they may be damaged or malicious.

    Raises:
        ValueError: They describe no space.
    """
    try:
        return _space(written)
    except (KeyError, TypeError, OverflowError, AssertionError) as error:
        raise ValueError(f"{written!r:.80} describes no space: {error}") from error


def _space(written: Any) -> gym.Space[Any]:
    if not isinstance(written, Mapping):
        raise ValueError(f"{written!r:.80} describes no space")
    kind = written["type"]
    if kind == "Dict":
        return gym.spaces.Dict({str(k): _space(v) for k, v in written["subspaces"].items()})
    if kind == "Discrete":
        return gym.spaces.Discrete(int(written["n"]), start=int(written.get("start", 0)))
    if kind == "MultiDiscrete":
        sizes = np.asarray(written["nvec"], np.int64)
        starts = np.broadcast_to(np.asarray(written.get("start", 0), np.int64), sizes.shape)
        return gym.spaces.MultiDiscrete(sizes, start=starts)
    if kind == "MultiBinary":
        sizes = np.asarray(written["n"], np.int64)
        _check_size(np.atleast_1d(sizes).tolist())
        return gym.spaces.MultiBinary(sizes.tolist())
    if kind != "Box":
        raise ValueError(f"there is no space of type {kind!r:.40} here")
    shape, dtype = [int(n) for n in written["shape"]], np.dtype(str(written["dtype"]))
    _check_size(shape)
    if dtype.kind not in _BOX_TYPES:
        raise ValueError(f"a Box holds numbers, and this one {dtype}")
    low, high = (
        np.array(np.broadcast_to(np.asarray(written[name]).astype(dtype), shape))
        for name in ("low", "high")
    )
    box: gym.Space[Any] = gym.spaces.Box(low, high, dtype=dtype.type)
    return box


def _bound(bound: Any) -> Any:
    first = bound.reshape(-1)[0] if bound.size else bound.dtype.type(0)
    return first.item() if (bound == first).all() else bound.tolist()


def _check_size(shape: list[int]) -> None:
    if min(shape, default=0) < 0 or math.prod(shape) > _MOST_NUMBERS:
        raise ValueError(f"no observation has the shape {shape}")
