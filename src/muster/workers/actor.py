"""`Actor`: steps environments, and writes every column of a block in place.

    each step:  choose(t) -> actions, and any columns that the policy writes itself
                envs.step -> reward, ends and the next observation, straight into their rows

`Actor` knows neither policy nor block: the caller passes the rows and a function that chooses
actions. So the same loop fills a rollout in shared memory and a fragment for replay.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from muster.envs import VectorEnv
from muster.framework.node import advance

Array = NDArray[Any]


class StepRows(NamedTuple):
    """The destination of one step of N environments."""

    next_obs: Any
    """[N, ...], or a dict of such arrays: the next observation, or the first of a new episode."""
    reward: Array
    terminated: Array
    """[N]; must be False before: written only in steps where an episode ends."""
    truncated: Array


Ended = Callable[[int, Any, Array, Array], None]
"""Called for a step in which episodes ended: its number, the `info` of the environments
(`final_obs`, `episodes`), terminated, truncated."""


class Actor:
    """Steps environments.

    Args:
        envs: The environments, already reset.
    """

    def __init__(self, envs: VectorEnv) -> None:
        self.envs = envs
        self.act_seconds = 0.0
        """Seconds spent on choosing actions."""
        self.env_seconds = 0.0
        """Seconds spent in the environments."""

    def fill(self, steps: Iterable[StepRows], choose: Callable[[int], Any], ended: Ended) -> None:
        """Take these steps.

        Args:
            steps: The destination of each step.
            choose: Maps the number of a step to its actions, as environments accept them.
            ended: Called after each step in which an episode ended.
        """
        env_step, clock = self.envs.step, time.perf_counter
        acted = stepped = 0.0
        for t, (next_obs, reward, terminated, truncated) in enumerate(steps):
            advance()
            started = clock()
            actions = choose(t)
            chosen = clock()
            _, rewards, ends, cuts, info = env_step(actions, next_obs)
            reward[:] = rewards
            if info["episodes"]:
                terminated[:] = ends
                truncated[:] = cuts
                ended(t, info, ends, cuts)
            acted += chosen - started
            stepped += clock() - chosen
        self.act_seconds += acted
        self.env_seconds += stepped
