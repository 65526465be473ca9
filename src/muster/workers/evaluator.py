"""`Evaluator`: how good the policy is when it does not explore.

Every environment plays a fixed number of episodes from fixed seeds, and none is dropped: counting
the first ones to end would prefer short episodes. The same seeds in every evaluation make them
comparable.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from muster.envs import Episode, VectorEnv, make_envs
from muster.errors import MusterError, MusterWarning, OptionError
from muster.framework.node import advance
from muster.seeding import derive_seed

MOST_ENVS = 20
"""Environments that one evaluation steps at once."""
MOST_STEPS = 100_000
"""Steps after which an episode of an evaluation is cut, where nothing else is said."""


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


class EvaluationUnfinished(MusterError):
    """Not one episode of every environment ended in the time that the evaluation had."""


def evaluate_policy(
    policy: GreedyPolicy,
    env: Any,
    episodes: int = 20,
    seed: int = 0,
    abandon: Callable[[], bool] | None = None,
    max_steps: int = MOST_STEPS,
    seconds: float | None = None,
    **env_kwargs: Any,
) -> Evaluation:
    """Play `episodes` episodes greedily in new environments and return what came of it.

    Environments play the same number of episodes each. Where time is up, the result is of as many
    as all of them have ended: a fixed set, which does not prefer short ones. A warning says so.

    Args:
        policy: Gives the actions.
        env: Id of the environment, or a function that makes one.
        episodes: How many; the same ones for the same seed.
        seed: Decides where they start.
        abandon: Asked before every step; True ends it without a result.
        max_steps: An episode that has not ended by then counts with its return so far, and its
            environment plays no other.
        seconds: No step is begun after so long; None for no limit.
        **env_kwargs: For each environment; and `backend`, as for `make_envs`.

    Raises:
        EvaluationAbandoned: `abandon` said so.
        EvaluationUnfinished: Time was up before every environment had ended an episode.
    """
    if episodes < 1:
        raise OptionError(
            f"episodes={episodes!r} is not possible", "a mean needs one at least", "episodes=20"
        )
    count = max(n for n in range(1, min(episodes, MOST_ENVS) + 1) if episodes % n == 0)
    until = math.inf if seconds is None else time.monotonic() + seconds
    envs = make_envs(env, count, derive_seed(seed, "eval"), **env_kwargs)
    try:
        games = _Games(count, episodes // count, max_steps)
        obs = envs.reset()
        first = np.ones(count, np.bool_)
        remembers = getattr(policy, "remembers", False)
        while games.go_on and time.monotonic() < until:
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
            games.note(info["episodes"], envs)
        return games.evaluation(envs.env_id, seconds)
    finally:
        envs.close()


class _Games:
    """The episodes of one evaluation.

    Args:
        count: Environments.
        each: Episodes that each of them is to play.
        max_steps: Of an episode.
    """

    def __init__(self, count: int, each: int, max_steps: int) -> None:
        self._returns: list[list[float]] = [[] for _ in range(count)]
        self._each = each
        self._max_steps = max_steps
        self._lengths = np.zeros(count, np.int64)
        self._playing = np.ones(count, np.bool_)
        self._cut = 0

    @property
    def go_on(self) -> bool:
        """Whether an environment has episodes left to play."""
        return bool(self._playing.any())

    def note(self, ended: list[Episode], envs: VectorEnv) -> None:
        """Take note of a step of all environments, and of the episodes that ended with it."""
        self._lengths += 1
        for episode in ended:
            self._lengths[episode.env] = 0
            if self._playing[episode.env]:
                self._add(episode.env, episode.return_, is_last=False)
        if self._lengths.max() >= self._max_steps:
            returns = envs.books().returns
            for env in np.flatnonzero(self._playing & (self._lengths >= self._max_steps)).tolist():
                self._cut += 1
                self._add(env, float(returns[env]), is_last=True)

    def evaluation(self, env_id: str, seconds: float | None) -> Evaluation:
        """Return what came of it, and say what had to be cut."""
        played = min(len(each) for each in self._returns)
        if not played:
            raise EvaluationUnfinished(
                f"no evaluation of {env_id!r} in {seconds:g} s",
                "not one episode of every environment ended in that time",
                "a larger --eval-seconds, or an environment with a time limit",
            )
        if self._cut:
            self._warn(
                f"episodes of the evaluation of {env_id!r} had not ended after "
                f"{self._max_steps:,} steps: {self._cut} count with their return so far"
            )
        if self.go_on:
            total = len(self._returns) * self._each
            self._warn(
                f"in {seconds:g} s the evaluation of {env_id!r} came to "
                f"{played * len(self._returns)} of {total} episodes: its mean is of those"
            )
        return Evaluation.of(tuple(value for each in self._returns for value in each[:played]))

    def _add(self, env: int, return_: float, is_last: bool) -> None:
        self._returns[env].append(return_)
        self._playing[env] = not is_last and len(self._returns[env]) < self._each

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, MusterWarning, stacklevel=4)


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
        max_steps: After so many an episode is cut.
        seconds: Returns how long the next evaluation may take; None for no limit.
        env_kwargs: For each environment; and `backend`, as for `make_envs`.
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
        max_steps: int = MOST_STEPS,
        seconds: Callable[[], float] | None = None,
        env_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.stop_at = stop_at
        self.last: Evaluation | None = None
        """The last evaluation."""
        self.last_seconds = 0.0
        """How long it took."""
        self._policy = policy
        self._env = env
        self._every = every
        self._episodes = episodes
        self._seed = seed
        self._abandon = abandon
        self._max_steps = max_steps
        self._seconds = seconds
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
        started = time.monotonic()
        self.last = evaluate_policy(
            self._policy,
            self._env,
            self._episodes,
            self._seed,
            self._abandon,
            self._max_steps,
            None if self._seconds is None else self._seconds(),
            **self._env_kwargs,
        )
        self.last_seconds = time.monotonic() - started
        stop = self.stop_at is not None and self.last.mean >= self.stop_at
        if stop and save_checkpoint is not None:
            save_checkpoint()
        return stop, self.last.mean
