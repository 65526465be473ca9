"""`check_env`: checks an environment before training, for `muster doctor ENV`.

    can it be made -> gymnasium's own checker -> same seed, same steps -> restored -> steps/s

A faulty environment never causes an exception here: its faults are listed in `problems`.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

from muster.envs.base import StepResult, VectorEnv
from muster.envs.errors import EnvError, one_line
from muster.envs.make import env_maker, make_envs
from muster.envs.masks import is_masked, legal_actions
from muster.errors import MusterWarning
from muster.framework.signals import is_signal_exit

STEPS = 20
"""Steps taken to compare two envs."""

_TIMED_SECONDS = 0.2
_STEPS_TO_END = 20_000
_SECONDS_TO_END = 2.0


@dataclass(slots=True)
class CheckReport:
    """The results of checking an environment."""

    env_id: str
    """Its id, or the name of its factory."""
    backend: str = ""
    """The backend that would run it: "gymnasium" or "envpool"."""
    observation_space: str = ""
    """As a policy sees it."""
    action_space: str = ""
    """As a policy sees it."""
    gymnasium_warnings: list[str] = field(default_factory=list)
    """Warnings of gymnasium's checker: worth reading, but no reason not to train."""
    reproducible: bool | None = None
    """Whether the same seed and actions gave the same steps twice; None if not tested."""
    restorable: bool | None = None
    """Whether a running episode was restored to the exact step, and continued as before."""
    steps_per_s: float | None = None
    """Steps per second of one bare env with random actions, including resets."""
    problems: list[str] = field(default_factory=list)
    """Faults that should be fixed; empty if there are none."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def check_env(
    env_id: str | Callable[..., gym.Env[Any, Any]], backend: str = "auto", **env_kwargs: Any
) -> CheckReport:
    """Check an environment the way a training run would use it. Takes a second or two.

    Args:
        env_id: As for `make_envs`.
        backend: As for `make_envs`.
        **env_kwargs: As for `make_envs`.

    Raises:
        UnknownEnvError: There is no such id.
        MissingPackageError: A package has to be installed first.
        OptionError: An argument is invalid.
    """

    def make() -> VectorEnv:
        return make_envs(env_id, num_envs=1, seed=0, backend=backend, **env_kwargs)

    report = CheckReport(env_id if isinstance(env_id, str) else "")
    try:
        with make() as envs:
            report.env_id, report.backend = envs.env_id, envs.backend
            report.observation_space = str(envs.single_observation_space)
            report.action_space = str(envs.single_action_space)
            masked = is_masked(envs.single_observation_space)
    except EnvError as error:
        report.problems.append(str(error))
        return report

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if report.backend == "gymnasium":
            _run_gymnasium_checker(report, env_maker(env_id, env_kwargs))
        try:
            _compare_two(report, make)
            _restore_one(report, make)
            if report.backend == "gymnasium" and not masked:
                report.steps_per_s = _bare_rate(env_maker(env_id, env_kwargs))
                _look_for_an_end(report, env_maker(env_id, env_kwargs))
            else:
                report.steps_per_s = _pool_rate(make)
        except EnvError as error:
            report.problems.append(str(error))
        except (Exception, SystemExit) as error:  # from the bare env, without a VectorEnv
            if is_signal_exit(error):
                raise
            report.problems.append(one_line(error))
    return report


def _run_gymnasium_checker(report: CheckReport, make_one: Callable[[], gym.Env[Any, Any]]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            env = make_one()
            # The bare env, as gymnasium requires; training needs no rendering.
            gymnasium_check_env(env.unwrapped, skip_render_check=True)
            env.close()
        except (Exception, SystemExit) as error:
            if is_signal_exit(error):
                raise
            report.problems.append(f"gymnasium's checker: {one_line(error)}")
    seen = dict.fromkeys(_plain(str(each.message)) for each in caught)
    report.gymnasium_warnings.extend(seen)


def _plain(message: str) -> str:
    """Return a message of gymnasium's logger without its colours."""
    return message.replace("\x1b[33m", "").replace("\x1b[0m", "").removeprefix("WARN: ").strip()


def _fixed_actions(envs: VectorEnv, count: int) -> list[Any]:
    space = envs.single_action_space
    space.seed(0)
    return [np.array([space.sample()]) for _ in range(count)]


def _compare_two(report: CheckReport, make: Callable[[], VectorEnv]) -> None:
    with make() as one, make() as two:
        report.reproducible = _same(one.reset(), two.reset())
        for drawn in _fixed_actions(one, STEPS):
            action = legal_actions(drawn, one.obs, one.single_action_space)
            if not _same_step(one.step(action), two.step(action)):
                report.reproducible = False
    if not report.reproducible:
        report.problems.append(
            "the same seed and actions gave different steps: take random numbers from "
            "self.np_random, after super().reset(seed=seed)"
        )


def _restore_one(report: CheckReport, make: Callable[[], VectorEnv]) -> None:
    with make() as one, make() as two, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        one.reset()
        actions = _fixed_actions(one, 2 * STEPS)
        for drawn in actions[:STEPS]:
            one.step(legal_actions(drawn, one.obs, one.single_action_space))
        two.load_state_dict(one.state_dict())
        report.restorable = not any(issubclass(each.category, MusterWarning) for each in caught)
        if report.restorable:
            for drawn in actions[STEPS:]:
                action = legal_actions(drawn, one.obs, one.single_action_space)
                if not _same_step(one.step(action), two.step(action)):
                    report.restorable = False
    # EnvPool never restores: a resume warns about it and begins new episodes.
    if not report.restorable and report.backend == "gymnasium" and report.reproducible:
        report.problems.append(
            "a running episode cannot be restored from its seed and actions: what the env does "
            "depends on something that reset(seed=...) does not set"
        )


def _same_step(one: StepResult, two: StepResult) -> bool:
    return all(_same(a, b) for a, b in zip(one[:4], two[:4], strict=True))


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(_same(one[name], two[name]) for name in one)
    return bool(one.tobytes() == two.tobytes())


def _bare_rate(make_one: Callable[[], gym.Env[Any, Any]]) -> float:
    env = make_one()
    try:
        env.action_space.seed(0)
        actions = [env.action_space.sample() for _ in range(64)]
        env.reset(seed=0)
        steps, started = 0, time.perf_counter()
        while time.perf_counter() - started < _TIMED_SECONDS:
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += len(actions)
        return steps / (time.perf_counter() - started)
    finally:
        env.close()


def _look_for_an_end(report: CheckReport, make_one: Callable[[], gym.Env[Any, Any]]) -> None:
    """Report an environment whose episodes seem never to end: an evaluation waits for the end."""
    env = make_one()
    try:
        if env.spec is not None and env.spec.max_episode_steps is not None:
            return
        env.action_space.seed(0)
        env.reset(seed=0)
        started, steps = time.perf_counter(), 0
        while steps < _STEPS_TO_END and time.perf_counter() - started < _SECONDS_TO_END:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            steps += 1
            if terminated or truncated:
                return
    finally:
        env.close()
    report.problems.append(
        f"no episode ended in {steps:,} random steps, and it has no time limit: evaluations cut it "
        "at --eval-max-steps; register it with max_episode_steps=..."
    )


def _pool_rate(make: Callable[[], VectorEnv]) -> float:
    with make() as envs:
        actions = _fixed_actions(envs, 64)
        envs.reset()
        steps, started = 0, time.perf_counter()
        while time.perf_counter() - started < _TIMED_SECONDS:
            for drawn in actions:
                envs.step(legal_actions(drawn, envs.obs, envs.single_action_space))
            steps += len(actions)
        return steps / (time.perf_counter() - started)
