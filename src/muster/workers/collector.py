"""`Collector`: acts in the environments and brings back what it saw.

    obs -> policy.explore -> envs.step -> Transitions [T, N, ...], with the true next observations

Its state is the environments' (which episode each is in, and the actions since it began) and its
counters, so a collector that was saved goes on with the very step it would have taken.
"""

import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.data import Transitions
from muster.envs import Episode, VectorEnv, true_next_obs
from muster.errors import OptionError
from muster.framework.node import advance


class ExploringPolicy(Protocol):
    """What a collector asks for actions."""

    def explore(self, obs: Any, epsilon: float) -> Any:
        """Return an action for each of N observations, a random one with probability epsilon."""


class Collector:
    """Steps vector environments with a policy.

    Args:
        policy: Gives the actions.
        envs: Where to act; they are reset here.
        steps: Vector steps in one `collect`.
    """

    def __init__(self, policy: ExploringPolicy, envs: VectorEnv, steps: int = 1) -> None:
        if steps < 1:
            raise OptionError(
                f"steps={steps!r} is not possible", "it is a number of steps", "steps=1"
            )
        self.envstep = 0
        """Environment steps so far, of all environments together."""
        self.restarted: NDArray[np.bool_] = np.zeros(envs.num_envs, np.bool_)
        """Which environments began a new episode in `load_state_dict`, as they could not go on
        with theirs: what is collected next does not follow what was collected before."""
        self.act_seconds = 0.0
        """Spent on choosing actions."""
        self.env_seconds = 0.0
        """Spent in the environments."""
        self._policy = policy
        self._envs = envs
        self._steps = steps
        self._obs = envs.reset()
        self._episodes: list[Episode] = []

    def collect(
        self, train_iter: int = 0, policy_kwargs: Mapping[str, float] | None = None
    ) -> Transitions:
        """Take `steps` steps in every environment and return them.

        Args:
            train_iter: The learner's counter; nothing here depends on it.
            policy_kwargs: `eps`, the probability of a random action; none without it.
        """
        eps = (policy_kwargs or {}).get("eps", 0.0)
        rows = [self._step(eps) for _ in range(self._steps)]
        self.envstep += self._steps * self._envs.num_envs
        obs, action, reward, next_obs, terminated, truncated = zip(*rows, strict=True)
        return Transitions(
            obs=_stack(obs),
            action=np.stack(action),
            reward=np.stack(reward),
            next_obs=_stack(next_obs),
            terminated=np.stack(terminated),
            truncated=np.stack(truncated),
        )

    def take_episodes(self) -> list[Episode]:
        """Return the episodes that ended since this was called last."""
        ended, self._episodes = self._episodes, []
        return ended

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides the next step, as plain values and arrays."""
        return {"envstep": self.envstep, "envs": self._envs.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._envs.load_state_dict(state["envs"])
        self.restarted = self._envs.state_dict()["episodes"] != state["envs"]["episodes"]
        self.envstep = int(state["envstep"])
        self._obs = self._envs.obs

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _step(self, eps: float) -> tuple[Any, ...]:
        obs, started = self._obs, time.perf_counter()
        action = self._policy.explore(obs, eps)
        advance()
        chosen = time.perf_counter()
        self._obs, reward, terminated, truncated, info = self._envs.step(action)
        self.act_seconds += chosen - started
        self.env_seconds += time.perf_counter() - chosen
        self._episodes += info["episodes"]
        next_obs = true_next_obs(self._obs, terminated | truncated, info)
        return obs, action, reward, next_obs, terminated, truncated


def _stack(rows: tuple[Any, ...]) -> Any:
    if isinstance(rows[0], dict):
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack(rows)
