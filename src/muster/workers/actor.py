"""`Actor`: steps environments, and has every column of a block written in place.

    each step:  choose(t) -> actions, and whatever the policy writes besides
                envs.step -> reward, ends and the next observation, straight into their rows

It knows no policy and no block: who collects gives it the rows, and says how to act. So a rollout
in memory that workers share and a fragment that goes to replay are filled by the same loop.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from muster.envs import VectorEnv
from muster.framework.node import advance

Array = NDArray[Any]


class StepRows(NamedTuple):
    """Where one step of N environments is written."""

    next_obs: Any
    """[N, ...], or a dict of such: what the step led to, or what a new episode begins with."""
    reward: Array
    terminated: Array
    """[N]; False before: written only where some episode ends."""
    truncated: Array


Ended = Callable[[int, Any, Array, Array], None]
"""Called for a step in which episodes ended: its number, what the environments told (`final_obs`,
`episodes`), terminated, truncated."""


class Actor:
    """Steps environments.

    Args:
        envs: Where to act; they have been reset.
    """

    def __init__(self, envs: VectorEnv) -> None:
        self.envs = envs
        self.act_seconds = 0.0
        """Spent on choosing actions."""
        self.env_seconds = 0.0
        """Spent in the environments."""

    def fill(self, steps: Iterable[StepRows], choose: Callable[[int], Any], ended: Ended) -> None:
        """Take these steps.

        Args:
            steps: Where each is written.
            choose: From the number of a step to its actions, as environments take them.
            ended: Called after steps in which an episode ended.
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
