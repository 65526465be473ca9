"""How the outputs of a policy network become actions: categories, or a Gaussian."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.errors import OptionError


@dataclass(frozen=True)
class ActionHead:
    """The meaning of a network's K outputs [B, K] for one action space."""

    gaussian: bool
    """Whether outputs are `width` means, then `width` logarithms of standard deviations."""
    sizes: tuple[int, ...]
    """Otherwise: the number of categories of each of `width` numbers; outputs are their logits."""
    width: int
    """Numbers in one action, and random numbers drawn for it."""

    @classmethod
    def of(cls, space: gym.Space[Any]) -> "ActionHead":
        """Return the head for a Discrete, MultiDiscrete or Box of floats (as in VectorEnv)."""
        if isinstance(space, gym.spaces.Discrete):
            return cls(False, (int(space.n),), 1)
        if isinstance(space, gym.spaces.MultiDiscrete):
            sizes = tuple(int(n) for n in space.nvec.flatten())
            return cls(False, sizes, len(sizes))
        if isinstance(space, gym.spaces.Box) and np.dtype(space.dtype).kind == "f":
            return cls(True, (), int(np.prod(space.shape, dtype=int)))
        raise OptionError(
            f"there is no policy for actions in {space}",
            "muster acts in Discrete, MultiDiscrete and Box of floats",
            "wrap the env in a gymnasium.ActionWrapper with such a space",
        )

    @property
    def outputs(self) -> int:
        """K, the number of outputs of a network."""
        return 2 * self.width if self.gaussian else sum(self.sizes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of stored actions."""
        return np.dtype(np.float32 if self.gaussian else np.int64)


def no_such_action(action: NDArray[Any], head: ActionHead) -> OptionError:
    """Make the error for an action that does not exist under a head."""
    return OptionError(
        f"the action {action.tolist()} is not an action of {head}",
        "categories are counted from 0",
        "actions as `act` wrote them",
    )
