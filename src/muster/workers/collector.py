"""`Collector`: acts in the environments and returns the experience.

    obs -> policy.explore -> Actor -> StepBlock [T, N, ...], written in place

Its state consists of its counters and the state of the environments (the episode of each, and the
actions since the episode began). So a restored collector continues with exactly the step that it
would have taken.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.data import StepBlock
from muster.data.obs import at, concatenated, map_obs, put
from muster.envs import Episode, VectorEnv
from muster.envs.step_metrics import MetricSums
from muster.errors import OptionError
from muster.workers.actor import Actor, StepRows


class ExploringPolicy(Protocol):
    """The policy of a collector.

    A policy that writes extra columns has a `schema` of `Column`s, and a method `write(rows)`. It
    is called after `explore` and fills `rows[name]` [N, ...] for each column. `complete(block)` is
    called with a full block, for columns that need all of it. A policy with `remembers` set also
    receives `first`, bool [N]: True where an episode begins.
    """

    def explore(self, obs: Any, epsilon: Any) -> Any:
        """Return an action for each of N observations, a random one with probability epsilon."""


class Collector:
    """Steps vector environments with a policy.

    Args:
        policy: Chooses the actions.
        envs: The environments; reset here.
        steps: Vector steps in one `collect`.
    """

    def __init__(self, policy: ExploringPolicy, envs: VectorEnv, steps: int = 1) -> None:
        if steps < 1:
            raise OptionError(
                f"steps={steps!r} is not possible",
                "it must be a number of steps, 1 or more",
                "steps=1",
            )
        self.envstep = 0
        """Environment steps so far, of all environments together."""
        self.restarted: NDArray[np.bool_] = np.zeros(envs.num_envs, np.bool_)
        """Environments that `load_state_dict` could not restore and that began a new episode: their
        next steps do not follow the steps collected before."""
        self._policy = policy
        self._schema = getattr(policy, "schema", ())
        self._complete = getattr(policy, "complete", None)
        self._remembers = getattr(policy, "remembers", False)
        self._first = np.ones(envs.num_envs, np.bool_)
        self._envs = envs
        self._steps = steps
        envs.reset()
        self.actor = Actor(envs)
        """Steps the environments and measures the time."""
        self._episodes: list[Episode] = []

    def collect(
        self, train_iter: int = 0, policy_kwargs: Mapping[str, Any] | None = None
    ) -> StepBlock:
        """Take `steps` steps in every environment and return them.

        Args:
            train_iter: The learner's counter; nothing here depends on it.
            policy_kwargs: `eps`, the probability of a random action, one number or [N]; 0 by
                default.
        """
        eps = (policy_kwargs or {}).get("eps", 0.0)
        block, finals = self._new_block(), []

        def choose(t: int) -> Any:
            action = np.asarray(self._explore(at(block.seen, t), eps))
            if t == 0:
                block.action = np.empty((self._steps, *action.shape), action.dtype)
            block.action[t] = action
            if block.columns:
                self._policy.write(at(block.columns, t))  # type: ignore[attr-defined]
            return action

        def ended(t: int, info: Any, terminated: Any, truncated: Any) -> None:
            self._first |= terminated | truncated
            finals.append(at(info["final_obs"], terminated | truncated))
            self._episodes.extend(info["episodes"])

        ends = block.reward, block.terminated, block.truncated
        rows = (
            StepRows(at(block.seen, t + 1), *(each[t] for each in ends)) for t in range(self._steps)
        )
        self.actor.fill(rows, choose, ended)
        if finals:
            block.finals = concatenated(finals)
        if self._complete is not None:
            self._complete(block)
        self.envstep += len(block)
        return block

    def _explore(self, obs: Any, eps: Any) -> Any:
        if not self._remembers:
            return self._policy.explore(obs, eps)
        first, self._first = self._first, np.zeros_like(self._first)
        return self._policy.explore(obs, eps, first=first)  # type: ignore[call-arg]

    def _new_block(self) -> StepBlock:
        """Return a block that begins with the current observation."""
        steps, lead = self._steps, (self._steps, self._envs.num_envs)
        # Always a new block: the receiver may keep it.
        now = self._envs.obs
        seen = map_obs(lambda each: np.empty((steps + 1, *each.shape), each.dtype), now)
        put(seen, 0, now)
        return StepBlock(
            seen,
            np.empty(0),
            np.empty(lead, np.float32),
            np.zeros(lead, np.bool_),
            np.zeros(lead, np.bool_),
            at(seen, (0, slice(0, 0))),
            {each.name: np.empty(lead + each.shape, each.dtype) for each in self._schema},
        )

    def take_episodes(self) -> list[Episode]:
        """Return the episodes that ended since the last call."""
        ended, self._episodes = self._episodes, []
        return ended

    def take_metrics(self) -> MetricSums:
        """Return the sums of the environments' own metrics since the last call."""
        return self._envs.take_metrics()

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next step, as plain values and arrays."""
        state = {"envstep": self.envstep, "envs": self._envs.state_dict()}
        return state | ({"first": self._first.copy()} if self._remembers else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self._envs.load_state_dict(state["envs"])
        self.restarted = self._envs.state_dict()["episodes"] != state["envs"]["episodes"]
        self.envstep = int(state["envstep"])
        if self._remembers:
            self._first = state["first"] | self.restarted

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
