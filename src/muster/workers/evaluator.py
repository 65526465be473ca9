"""`Evaluator`: how good the policy is when it does not explore.

Every environment plays a fixed number of episodes from fixed seeds, and none is dropped: counting
the first ones to end would prefer short episodes. The same seeds in every evaluation make them
comparable.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from muster.envs import make_envs
from muster.errors import MusterError, OptionError
from muster.framework.node import advance
from muster.seeding import derive_seed

MOST_ENVS = 20
"""Environments that one evaluation steps at once."""


class GreedyPolicy(Protocol):
    """What an evaluation asks for actions."""

    def act(self, obs: Any) -> Any:
        """Return the action for each of N observations.

        A policy with `remembers` set also gets `first`, bool [N]: whose episode begins here.
        """


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of one evaluation."""

    mean: float
    """Mean return of the episodes."""
    std: float
    """Their standard deviation (of the population)."""
    returns: tuple[float, ...]
    """The return of each."""

    @classmethod
    def of(cls, returns: tuple[float, ...]) -> "Evaluation":
        """Return what these returns amount to."""
        mean = math.fsum(returns) / len(returns)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in returns) / len(returns))
        return cls(mean, std, returns)

    @property
    def episodes(self) -> int:
        """How many were played."""
        return len(self.returns)


class EvaluationAbandoned(MusterError):
    """Somebody asked an evaluation to stop before all its episodes were played."""


def evaluate_policy(
    policy: GreedyPolicy,
    env: Any,
    episodes: int = 20,
    seed: int = 0,
    abandon: Callable[[], bool] | None = None,
    **env_kwargs: Any,
) -> Evaluation:
    """Play `episodes` episodes greedily in new environments and return what came of it.

    Args:
        policy: Gives the actions.
        env: Id of the environment, or a function that makes one.
        episodes: How many; the same ones for the same seed.
        seed: Decides where they start.
        abandon: Asked before every step; True ends it without a result.
        **env_kwargs: For each environment.

    Raises:
        EvaluationAbandoned: `abandon` said so.
    """
    if episodes < 1:
        raise OptionError(
            f"episodes={episodes!r} is not possible", "a mean needs one at least", "episodes=20"
        )
    count = max(n for n in range(1, min(episodes, MOST_ENVS) + 1) if episodes % n == 0)
    each = episodes // count
    envs = make_envs(env, count, derive_seed(seed, "eval"), **env_kwargs)
    try:
        returns: list[list[float]] = [[] for _ in range(count)]
        obs = envs.reset()
        first = np.ones(count, np.bool_)
        remembers = getattr(policy, "remembers", False)
        while any(len(played) < each for played in returns):
            if abandon is not None and abandon():
                raise EvaluationAbandoned(
                    f"the evaluation of {episodes} episodes was abandoned",
                    "it was asked to stop; a mean of the episodes so far would prefer short ones",
                    "evaluate_policy(policy, env, episodes) again",
                )
            advance()
            action = policy.act(obs, first=first) if remembers else policy.act(obs)  # type: ignore[call-arg]
            obs, _, ends, cuts, info = envs.step(action)
            first = ends | cuts
            for episode in info["episodes"]:
                if len(returns[episode.env]) < each:
                    returns[episode.env].append(episode.return_)
    finally:
        envs.close()
    return Evaluation.of(tuple(value for played in returns for value in played))


class Evaluator:
    """Evaluates a policy now and then, and says when it is good enough.

    Args:
        policy: What to evaluate.
        env: Id of the environment, or a function that makes one.
        every: Updates from one evaluation to the next, for `should_eval`.
        episodes: Episodes in each.
        stop_at: Mean return at which training may stop; None for never.
        seed: Decides where the episodes start.
        abandon: Asked before every step; True ends an evaluation with EvaluationAbandoned.
        env_kwargs: For each environment.
    """

    def __init__(
        self,
        policy: GreedyPolicy,
        env: Any,
        every: int = 1_000,
        episodes: int = 20,
        stop_at: float | None = None,
        seed: int = 0,
        abandon: Callable[[], bool] | None = None,
        env_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.stop_at = stop_at
        self.last: Evaluation | None = None
        """The last evaluation."""
        self._policy = policy
        self._env = env
        self._every = every
        self._episodes = episodes
        self._seed = seed
        self._abandon = abandon
        self._env_kwargs = env_kwargs or {}
        self._evaluated_at = -every

    def should_eval(self, train_iter: int) -> bool:
        """Whether enough updates were made since the last evaluation."""
        return train_iter - self._evaluated_at >= self._every

    def eval(
        self,
        save_checkpoint: Callable[[], object] | None = None,
        train_iter: int = 0,
        envstep: int = 0,
    ) -> tuple[bool, float]:
        """Evaluate, and return whether it is good enough to stop, and the mean return.

        Args:
            save_checkpoint: Called if it is good enough.
            train_iter: Updates so far.
            envstep: Environment steps so far; nothing here depends on it.
        """
        self._evaluated_at = train_iter
        self.last = evaluate_policy(
            self._policy,
            self._env,
            self._episodes,
            self._seed,
            self._abandon,
            **self._env_kwargs,
        )
        stop = self.stop_at is not None and self.last.mean >= self.stop_at
        if stop and save_checkpoint is not None:
            save_checkpoint()
        return stop, self.last.mean
