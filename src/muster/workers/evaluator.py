"""`Evaluator`: measures the policy without exploration.

Every environment plays a fixed number of episodes from fixed seeds, and none is dropped: counting
the first episodes to end would favour short ones. All evaluations use the same seeds, so they are
comparable.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.envs import Episode, VectorEnv, make_envs
from muster.errors import MusterError, MusterWarning, OptionError
from muster.framework.node import advance
from muster.seeding import derive_seed
from muster.workers.recorder import EpisodeRecorder

MOST_ENVS = 20
"""Maximum number of environments that one evaluation steps at once."""
MOST_STEPS = 100_000
"""Default number of steps after which an evaluation cuts an episode."""


class GreedyPolicy(Protocol):
    """The policy of an evaluation."""

    def act(self, obs: Any) -> Any:
        """Return the action for each of N observations.

        A policy with `remembers` set also receives `first`, bool [N]: True where an episode begins.
        """


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation."""

    mean: float
    """Mean return of the episodes."""
    std: float
    """Standard deviation of the returns (of the population)."""
    returns: tuple[float, ...]
    """The return of each episode."""

    @classmethod
    def of(cls, returns: tuple[float, ...]) -> "Evaluation":
        """Return the evaluation with these returns."""
        mean = math.fsum(returns) / len(returns)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in returns) / len(returns))
        return cls(mean, std, returns)

    @property
    def episodes(self) -> int:
        """Number of episodes played."""
        return len(self.returns)


class EvaluationAbandoned(MusterError):
    """The evaluation was asked to stop before all its episodes were played."""


class EvaluationUnfinished(MusterError):
    """Time ran out before every environment ended an episode."""


def evaluate_policy(
    policy: GreedyPolicy,
    env: Any,
    episodes: int = 20,
    seed: int = 0,
    abandon: Callable[[], bool] | None = None,
    max_steps: int = MOST_STEPS,
    seconds: float | None = None,
    recorder: EpisodeRecorder | None = None,
    **env_kwargs: Any,
) -> Evaluation:
    """Play `episodes` episodes greedily in new environments and return the result.

    Every environment plays the same number of episodes. When time runs out, the result covers as
    many episodes as every environment has ended: a fixed set that does not favour short ones. A
    warning then says so.

    Args:
        policy: Chooses the actions.
        env: Id of the environment, or a function that makes one.
        episodes: Number of episodes; the same episodes for the same seed.
        seed: Determines the start states.
        abandon: Called before every step; True ends the evaluation without a result.
        max_steps: An episode that reaches this length counts with its return so far, and its
            environment plays no further episodes.
        seconds: No step begins after this time; None for no limit.
        recorder: Records the episodes that count.
        **env_kwargs: Arguments of each environment; and `backend`, as for `make_envs`.

    Raises:
        EvaluationAbandoned: `abandon` returned True.
        EvaluationUnfinished: Time ran out before every environment had ended an episode.
    """
    if episodes < 1:
        raise OptionError(
            f"episodes={episodes!r} is not possible",
            "a mean needs at least one episode",
            "episodes=20",
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
                    "it was asked to stop; a mean of the episodes so far would be biased towards "
                    "short ones",
                    "evaluate_policy(policy, env, episodes) again",
                )
            advance()
            action = policy.act(obs, first=first) if remembers else policy.act(obs)  # type: ignore[call-arg]
            before = obs
            obs, reward, ends, cuts, info = envs.step(action)
            if recorder is not None:
                final = info["final_obs"]
                recorder.note(before, action, reward, ends, cuts, final, games.playing)
            first = ends | cuts
            games.note(info["episodes"], envs)
        return games.evaluation(envs.env_id, seconds)
    finally:
        envs.close()


class _Games:
    """The episodes of one evaluation.

    Args:
        count: Number of environments.
        each: Episodes that each of them plays.
        max_steps: Maximum length of an episode.
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

    @property
    def playing(self) -> NDArray[np.bool_]:
        """Which environments have episodes left to play."""
        return self._playing

    def note(self, ended: list[Episode], envs: VectorEnv) -> None:
        """Record one step of all environments, and the episodes that ended with it."""
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
        """Return the result, and warn about episodes that were cut."""
        played = min(len(each) for each in self._returns)
        if not played:
            raise EvaluationUnfinished(
                f"no evaluation of {env_id!r} in {seconds:g} s",
                "some environments finished no episode in that time",
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
                f"{played * len(self._returns)} of {total} episodes: its mean is over those"
            )
        return Evaluation.of(tuple(value for each in self._returns for value in each[:played]))

    def _add(self, env: int, return_: float, is_last: bool) -> None:
        self._returns[env].append(return_)
        self._playing[env] = not is_last and len(self._returns[env]) < self._each

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, MusterWarning, stacklevel=4)


class Evaluator:
    """Evaluates a policy at intervals, and decides when it is good enough.

    Args:
        policy: The policy to evaluate.
        env: Id of the environment, or a function that makes one.
        every: Updates between evaluations, for `should_eval`.
        episodes: Episodes in each evaluation.
        stop_at: Mean return at which training may stop; None for never.
        seed: Determines the start states.
        abandon: Called before every step; True ends an evaluation with EvaluationAbandoned.
        max_steps: Maximum length of an episode.
        seconds: Returns the time limit of the next evaluation; None for no limit.
        env_kwargs: Arguments of each environment; and `backend`, as for `make_envs`.
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
        """Duration of the last evaluation, in seconds."""
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
        """Evaluate, and return whether the policy is good enough to stop, and the mean return.

        Args:
            save_checkpoint: Called if the policy is good enough.
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
