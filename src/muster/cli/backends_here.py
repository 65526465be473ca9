"""Which backend steps an environment faster here, if both Gymnasium and EnvPool have it.

    times(env)     steps per second with each, for few and for many environments    about 2 s
    say_times(...) a line for `muster doctor`
    hint(...)      a line for the end of a run whose environments took most of the time

The backend of a run follows a fixed rule and never a measurement; otherwise the same seed could
give another policy tomorrow. So muster reports the times, and the user chooses.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.envs import VectorEnv

FEW, MANY = 8, 64
_SECONDS = 0.25
_STEPS_AT_LEAST = 4
_FASTER = 1.2
"""The speed-up that is worth a switch."""


@dataclass(frozen=True)
class Times:
    """Environment steps per second in one process."""

    num_envs: int
    gymnasium: float
    envpool: float

    @property
    def ratio(self) -> float:
        """The speed-up of EnvPool over Gymnasium."""
        return self.envpool / self.gymnasium


def times(env: str) -> list[Times]:
    """Return the rates with few and many environments; empty if only one backend has the id."""
    from muster.envs import make_envs
    from muster.envs.envpool_ids import probably_in_envpool
    from muster.errors import MusterError

    if not probably_in_envpool(env):
        return []
    found = []
    for num_envs in (FEW, MANY):
        rates = []
        for backend in ("gymnasium", "envpool"):
            try:
                with make_envs(env, num_envs, backend=backend) as envs:
                    rates.append(_rate(envs))
            except MusterError:  # this backend lacks the id, or cannot run it here
                return []
        found.append(Times(num_envs, *rates))
    return found


def say_times(found: list[Times]) -> str | None:
    """Return one line of at most 78 columns, or None if there is no choice."""
    if not found:
        return None
    each = ", ".join(f"{one.ratio:.1f}x with {one.num_envs} envs" for one in found)
    if max(one.ratio for one in found) < _FASTER:
        return f"--backend envpool is no faster: {each}"
    return f"--backend envpool, beside gymnasium: {each}"


def hint(env: str, backend: str, limited_by: str | None) -> str | None:
    """Return a hint if environments limit a run that another backend may speed up."""
    from muster.envs.envpool_ids import probably_in_envpool

    if limited_by != "env" or backend != "gymnasium" or not probably_in_envpool(env):
        return None
    return f"EnvPool may step it faster: muster doctor {env} measures both"


def _rate(envs: "VectorEnv") -> float:
    """Return environment steps per second with random actions."""
    import numpy as np

    space, count = envs.single_action_space, envs.num_envs
    space.seed(0)
    actions = [np.stack([space.sample() for _ in range(count)]) for _ in range(_STEPS_AT_LEAST)]
    envs.reset()
    for action in actions:  # the first steps are slower
        envs.step(action)
    steps, started = 0, time.perf_counter()
    while steps < _STEPS_AT_LEAST or time.perf_counter() < started + _SECONDS:
        envs.step(actions[steps % len(actions)])
        steps += 1
    return steps * count / (time.perf_counter() - started)
