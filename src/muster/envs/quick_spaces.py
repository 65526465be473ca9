"""Action spaces that answer faster whether an action is theirs, because every step asks them.

Most environments begin a step with `assert self.action_space.contains(action)`, and in Gymnasium
that is a third of what a step of CartPole costs. The answers are the same.
"""

import contextlib
from typing import Any

import gymnasium as gym


class QuickDiscrete(gym.spaces.Discrete):
    """A Discrete that knows its own Python integers at once, and asks Discrete about the rest."""

    def __init__(self, space: gym.spaces.Discrete) -> None:
        super().__init__(space.n, start=space.start, dtype=space.dtype)
        self._members = range(int(space.start), int(space.start + space.n))

    def contains(self, x: Any) -> bool:
        """Whether this is one of its values."""
        return (type(x) is int and x in self._members) or super().contains(x)


def quicken(env: gym.Env[Any, Any]) -> None:
    """Give a new environment an action space of the same values that answers faster."""
    bare = env.unwrapped
    space: Any = getattr(bare, "action_space", None)
    if type(space) is gym.spaces.Discrete:
        with contextlib.suppress(AttributeError):  # a property, which computes its own each time
            bare.action_space = QuickDiscrete(space)
