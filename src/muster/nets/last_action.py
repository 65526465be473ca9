"""The second input of a recurrent network besides an observation: the last action, as one-hot.

    Box, MultiBinary   one vector: the observation, then the action
    Dict               the same keys, and one more
    others             a Dict of both

An action is an integer from 0 on, and -1 where an episode begins: then all entries are 0. So a
network knows its last action, which observations do not always show.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.nets.encoders import Flatten, make_encoder
from muster.nets.errors import ModelError

SEEN, LAST_ACTION = "seen", "last_action"


class LastActionInput:
    """Combines observations and last actions.

    Args:
        obs_space: Space of one observation.
        n_actions: Number of actions.
    """

    def __init__(self, obs_space: gym.Space[Any], n_actions: int) -> None:
        self._one_hot = np.concatenate([np.eye(n_actions), np.zeros((1, n_actions))]).astype(
            np.float32
        )
        action = gym.spaces.Box(0, 1, (n_actions,), np.float32)
        self._axes = len(obs_space.shape or ())
        self._joins = False
        self.space: gym.Space[Any]
        """The space of the combined observations."""
        if isinstance(obs_space, gym.spaces.Dict):
            if LAST_ACTION in obs_space.spaces:
                raise ModelError(
                    f"the observations already have a part {LAST_ACTION!r}",
                    "the network adds the last action under this name",
                    "last_action=False",
                )
            self.space = gym.spaces.Dict({**obs_space.spaces, LAST_ACTION: action})
        elif type(make_encoder(obs_space)) is Flatten:
            self._joins = True
            width = int(np.prod(obs_space.shape or (1,))) + n_actions
            self.space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        else:
            self.space = gym.spaces.Dict({SEEN: obs_space, LAST_ACTION: action})

    def __call__(self, obs: Any, action: NDArray[np.int64]) -> Any:
        """Return the input of the network.

        Args:
            obs: [..., *shape], or a dict of such arrays.
            action: int64 [...], the action before each observation; -1 for none.
        """
        last = self._one_hot[action]  # -1 selects the last row, which is 0
        if isinstance(obs, Mapping):
            return {**obs, LAST_ACTION: last}
        if not self._joins:
            return {SEEN: obs, LAST_ACTION: last}
        flat = np.asarray(obs, np.float32).reshape(*action.shape, -1)
        return np.concatenate([flat, last], axis=-1)
