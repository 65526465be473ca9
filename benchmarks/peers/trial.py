"""What one PPO trial is: the recipe that all libraries are given, the clock, and when it ends.

Runs in the virtual environment of any peer, so it needs no more than numpy and gymnasium. A library
calls `updated` after each of its updates, and the trial ends its training by raising `Finished`.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ENV = "CartPole-v1"
SOLVED, EPISODES, CHECK_EVERY = 475.0, 20, 4_096

Act = Callable[[Any], Any]
"""From a batch of observations to the greedy actions."""


@dataclass(frozen=True)
class Recipe:
    """The PPO that every library is asked for; hidden layers with tanh, a critic of its own."""

    env: str = ENV
    num_envs: int = 8
    rollout: int = 128
    epochs: int = 4
    minibatch: int = 256
    lr: float = 1e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_coef: float = 0.01
    hidden: tuple[int, ...] = (64, 64)

    @property
    def batch(self) -> int:
        """Environment steps between two updates."""
        return self.num_envs * self.rollout

    @property
    def minibatches(self) -> int:
        """Parts of a batch."""
        return self.batch // self.minibatch


MATCHED = Recipe()
WIDE = replace(MATCHED, num_envs=64, minibatch=2_048)
PONG = replace(MATCHED, lr=2.5e-4, clip=0.1)
"""With the Nature CNN on 4 frames of 84x84 in place of the hidden layers."""
RECIPES = {"matched": MATCHED, "wide": WIDE, "solve": MATCHED}


class Finished(Exception):
    """The trial has what it wanted."""


@dataclass
class Trial:
    """What a library is run with, and what it reports to."""

    recipe: Recipe
    seed: int
    threads: int
    pausing: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext, init=False)
    """What a library does around a look at its policy, if others of its processes go on."""

    def updated(
        self, env_steps: int, act: Act | None = None, returns: Sequence[float] = ()
    ) -> None:
        """Hear of an update.

        Args:
            env_steps: Environment steps so far.
            act: The greedy policy.
            returns: Of the last training episodes, newest last.
        """
        raise NotImplementedError

    def result(self) -> dict[str, Any]:
        """Return what was measured."""
        raise NotImplementedError


@dataclass
class Speed(Trial):
    """Steps per second, end to end, from the first updates on for a number of seconds."""

    seconds: float = 10.0
    warm_updates: int = 3
    _marks: list[tuple[int, float, float]] = field(default_factory=list)
    _updates: int = 0

    def updated(
        self, env_steps: int, act: Act | None = None, returns: Sequence[float] = ()
    ) -> None:
        """Start the clock after the first updates, and end the trial when its time is over."""
        self._updates += 1
        if self._updates < self.warm_updates:
            return
        now = time.perf_counter()
        if not self._marks or now - self._marks[0][1] >= self.seconds:
            self._marks.append((env_steps, now, cpu_seconds()))
        if len(self._marks) == 2:
            raise Finished

    def result(self) -> dict[str, Any]:
        """Return steps per second, and the share of a core that it took."""
        (first_steps, first, first_cpu), (last_steps, last, last_cpu) = self._marks
        return {
            "steps_per_s": round((last_steps - first_steps) / (last - first), 1),
            "cpu_share": round((last_cpu - first_cpu) / (last - first), 2),
            "env_steps": last_steps - first_steps,
            "seconds": round(last - first, 2),
        }


@dataclass
class Solve(Trial):
    """Seconds from the start of the process until CartPole is solved, by two tests.

    Greedy: the mean of 20 greedy episodes, looked at every 4096 steps, whose time does not count.
    Training: the mean of the last 20 training episodes. It ends when both have passed, or at the
    limit of environment steps. Greedy is lenient: a policy that has barely trained can pass it.
    """

    limit: int = 300_000
    _checked: int = 0
    _checking: float = 0.0
    _found: dict[str, float] = field(default_factory=dict)
    _last: tuple[int, float] = (0, 0.0)

    def updated(
        self, env_steps: int, act: Act | None = None, returns: Sequence[float] = ()
    ) -> None:
        """Look at both tests, and end the trial when both have passed."""
        seconds = age() - self._checking
        self._last = env_steps, seconds
        last = list(returns)[-EPISODES:]
        if len(last) == EPISODES and sum(last) / EPISODES >= SOLVED:
            self._note("training", env_steps, seconds)
        if act is not None and env_steps - self._checked >= CHECK_EVERY:
            self._checked = env_steps
            started = time.perf_counter()
            if "greedy_seconds" not in self._found:
                with self.pausing():
                    mean = greedy_mean(act)
                if mean >= SOLVED:
                    self._note("greedy", env_steps, seconds)
            self._checking += time.perf_counter() - started
        if len(self._found) == 4 or env_steps >= self.limit:
            raise Finished

    def result(self) -> dict[str, Any]:
        """Return seconds and steps of both tests; None is one that was not passed."""
        names = [f"{test}_{what}" for test in ("greedy", "training") for what in _KINDS]
        env_steps, seconds = self._last
        return {
            **{name: self._found.get(name) for name in names},
            "env_steps": env_steps,
            "seconds": round(seconds, 2),
            "cpu_share": round(cpu_seconds() / age(), 2),
        }

    def _note(self, test: str, env_steps: int, seconds: float) -> None:
        for what, value in zip(_KINDS, (round(seconds, 2), env_steps), strict=True):
            self._found.setdefault(f"{test}_{what}", value)


_KINDS = ("seconds", "env_steps")


def greedy_mean(act: Act) -> float:
    """Return the mean return of 20 episodes with fixed seeds, all stepped together."""
    import gymnasium
    import numpy

    envs = [gymnasium.make(ENV) for _ in range(EPISODES)]
    observations = numpy.stack([env.reset(seed=1_000 + i)[0] for i, env in enumerate(envs)])
    total, running = 0.0, numpy.ones(EPISODES, dtype=bool)
    while running.any():
        actions = numpy.asarray(act(observations)).reshape(EPISODES)
        for i in numpy.flatnonzero(running):
            observations[i], reward, terminated, truncated, _ = envs[i].step(int(actions[i]))
            total += float(reward)
            running[i] = not (terminated or truncated)
    return total / EPISODES


def age() -> float:
    """Return the seconds since this process was started, imports and all."""
    started = int(_stat(os.getpid())[19]) / os.sysconf("SC_CLK_TCK")
    return float(Path("/proc/uptime").read_text().split()[0]) - started


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all below it, those that have ended included."""
    ticks = 0
    for pid in [os.getpid(), *descendants()]:
        try:
            ticks += sum(map(int, _stat(pid)[11:15]))
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants() -> list[int]:
    """Return the ids of all processes that this one has started, and that those have."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                children.setdefault(int(_stat(int(folder.name))[1]), []).append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = children.get(os.getpid(), []).copy()
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state (the third) on; its name may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
