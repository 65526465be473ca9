"""Actions of several parts, as one MultiDiscrete or one Box to a policy.

    MultiBinary                              -> MultiDiscrete of twos
    Tuple or Dict of discrete parts, nested  -> one MultiDiscrete: their choices one after the other
    Tuple or Dict of Boxes, nested           -> one flat Box

`FlatActions` is a wrapper at the environment's edge: the environment receives actions in its own
form, and everything on the other side (masks, replay, restored episodes, export) sees one space.
"""

import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.envs.errors import EnvError

Array = NDArray[Any]

_DISCRETE = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
_PARTED = (gym.spaces.Tuple, gym.spaces.Dict)


class FlatDiscrete(gym.spaces.MultiDiscrete):
    """The discrete parts of a space in a row, each counting from 0.

    Args:
        own: The space that they come from.
    """

    def __init__(self, own: gym.Space[Any]) -> None:
        super().__init__(np.concatenate([_choices(leaf) for leaf in _leaves(own)]))
        self.own = own

    def __repr__(self) -> str:
        """Return the MultiDiscrete and the space that it stands for."""
        return f"MultiDiscrete({self.nvec}) for {self.own}"


class FlatBox(gym.spaces.Box):
    """The Boxes of a space in a row.

    Args:
        own: The space that they come from.
    """

    def __init__(self, own: gym.Space[Any]) -> None:
        boxes = list(_leaves(own))
        kinds = {np.dtype(box.dtype) for box in boxes}
        widest = np.dtype(np.float32 if boxes[0].dtype.kind == "f" else np.int64)
        dtype: Any = kinds.pop() if len(kinds) == 1 else widest
        low = np.concatenate([np.asarray(box.low, dtype).reshape(-1) for box in boxes])
        high = np.concatenate([np.asarray(box.high, dtype).reshape(-1) for box in boxes])
        super().__init__(low, high, dtype=dtype)
        self.own = own

    def __repr__(self) -> str:
        """Return the Box and the space that it stands for."""
        return f"{super().__repr__()} for {self.own}"


def flat_space(space: gym.Space[Any]) -> FlatDiscrete | FlatBox | None:
    """Return the one space that stands for a space of several parts; None if it is one already.

    Raises:
        EnvError: Some parts are discrete and others continuous, or of another kind.
    """
    if not isinstance(space, (gym.spaces.MultiBinary, *_PARTED)):
        return None
    leaves = list(_leaves(space))
    if leaves and all(isinstance(leaf, _DISCRETE) for leaf in leaves):
        return FlatDiscrete(space)
    kinds = {np.dtype(leaf.dtype).kind for leaf in leaves if isinstance(leaf, gym.spaces.Box)}
    boxes = all(isinstance(leaf, gym.spaces.Box) for leaf in leaves)
    if leaves and boxes and (kinds == {"f"} or kinds <= {"i", "u"}):
        return FlatBox(space)
    raise EnvError(
        f"actions in {space} are not supported",
        "its parts are of different kinds; they are all discrete, or all Boxes of floats",
        "wrap the env in a gymnasium.ActionWrapper that makes its parts alike",
        field="action",
    )


def own_action(space: gym.Space[Any], flat: Array) -> Any:
    """Return a flat action in the form of the space that it comes from.

    Args:
        space: The environment's own space.
        flat: One action of the flat space, counting from 0 where it is discrete.
    """
    action, left = _built(space, np.asarray(flat).reshape(-1))
    assert not left.size
    return action


class FlatActions(gym.ActionWrapper[Any, Any, Any]):
    """Takes flat actions, and passes them to the environment in its own form.

    Args:
        env: The environment.
        space: Its flat action space.
    """

    def __init__(self, env: gym.Env[Any, Any], space: FlatDiscrete | FlatBox) -> None:
        super().__init__(env)
        self.action_space = space
        self._own = space.own

    def action(self, action: Any) -> Any:
        """Return the action in the environment's form."""
        return own_action(self._own, action)


def _leaves(space: gym.Space[Any]) -> Iterator[Any]:
    """Yield the parts of a space that have no parts themselves, in their order."""
    if isinstance(space, gym.spaces.Dict):
        for part in space.spaces.values():
            yield from _leaves(part)
    elif isinstance(space, gym.spaces.Tuple):
        for part in space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _choices(leaf: gym.Space[Any]) -> Array:
    """Return the number of choices of each component of a discrete space."""
    if isinstance(leaf, gym.spaces.Discrete):
        return np.array([leaf.n], np.int64)
    if isinstance(leaf, gym.spaces.MultiDiscrete):
        return np.asarray(leaf.nvec, np.int64).reshape(-1)
    return np.full(math.prod(leaf.shape or ()), 2, np.int64)


def _built(space: gym.Space[Any], flat: Array) -> tuple[Any, Array]:
    """Return the action of a space that the first numbers make, and the numbers that are left."""
    if isinstance(space, gym.spaces.Dict):
        parts = {}
        for name, part in space.spaces.items():
            parts[name], flat = _built(part, flat)
        return parts, flat
    if isinstance(space, gym.spaces.Tuple):
        values = []
        for part in space.spaces:
            value, flat = _built(part, flat)
            values.append(value)
        return tuple(values), flat
    if isinstance(space, gym.spaces.Discrete):
        return int(flat[0]) + int(space.start), flat[1:]
    size = math.prod(space.shape or ())
    mine = flat[:size].reshape(space.shape or ()).astype(space.dtype)
    if isinstance(space, gym.spaces.MultiDiscrete):
        mine = mine + np.asarray(space.start, space.dtype)
    return mine, flat[size:]
