"""`StepMetrics`: the numbers that environments report in `info`, summed until somebody takes them.

    info["metrics"] = {"fuel": 0.3}   of every step: its mean over the steps
    info["is_success"] = True         of the last step of an episode: its mean over the episodes

Sums are kept per environment and added in the order of the environments, so they do not depend on
which process steps which environment. Without such an info nothing here is called.
"""

import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.envs.errors import RefusedValue, brief
from muster.envs.rewards import real_number
from muster.errors import MusterWarning

MetricSums = dict[str, tuple[float, int]]
"""For each name the sum of its numbers, and how many they are."""

MOST_NAMES = 32
"""Maximum number of different names. Memory that workers share is laid out before the first step,
and an environment that makes up names must not fill it."""
LONGEST_NAME = 64
"""Maximum length of a name, in bytes of UTF-8."""

_SUCCESS = "is_success"


def added(parts: Iterable[Mapping[str, tuple[float, int]]]) -> MetricSums:
    """Return the sums of several parts together, added in their order."""
    total: MetricSums = {}
    for part in parts:
        for name, (amount, count) in part.items():
            before = total.get(name, (0.0, 0))
            if len(total) < MOST_NAMES or name in total:
                total[name] = before[0] + amount, before[1] + count
    return total


class StepMetrics:
    """The metrics of several environments.

    Args:
        env_id: The name in messages.
        num_envs: The number of environments.
    """

    def __init__(self, env_id: str, num_envs: int) -> None:
        self._env_id = env_id
        self._sums: list[MetricSums] = [{} for _ in range(num_envs)]
        self._names: set[str] = set()
        self._refused: set[object] = set()

    def note(self, infos: Sequence[Any], ended: Sequence[int]) -> None:
        """Add the numbers of one step of all environments.

        Args:
            infos: What each environment's step returned last.
            ended: The environments whose episode ended with this step.
        """
        for env, info in enumerate(infos):
            if not isinstance(info, dict) or "metrics" not in info:
                continue
            found = info["metrics"]
            if isinstance(found, Mapping):
                for name, value in found.items():
                    self._add(env, name, value)
            else:
                self._refuse("metrics", f"info['metrics'] is {brief(found)}, and no dict")
        for env in ended:
            info = infos[env]
            if isinstance(info, dict) and _SUCCESS in info:
                self._add(env, _SUCCESS, info[_SUCCESS])

    def take(self, first: int, stop: int) -> MetricSums:
        """Return the sums of some environments since they were last taken."""
        if not self._names:
            return {}
        found = added(self._sums[first:stop])
        self._sums[first:stop] = [{} for _ in range(first, stop)]
        return found

    def _add(self, env: int, name: Any, value: Any) -> None:
        if name not in self._names and not self._is_accepted(name):
            return
        try:
            number = value if type(value) is float else real_number(env, value)
        except RefusedValue:
            self._refuse(name, f"the metric {name!r:.80} is {brief(value)}, and no number")
            return
        before = self._sums[env].get(name, (0.0, 0))
        self._sums[env][name] = before[0] + number, before[1] + 1

    def _is_accepted(self, name: Any) -> bool:
        """Accept a new name, or say once why not."""
        if name in self._refused:
            return False
        if not isinstance(name, str) or not name or len(name.encode()) > LONGEST_NAME:
            what = f"{name!r:.120} is not a string of 1 to {LONGEST_NAME} bytes"
            self._refuse(name, what)
        elif len(self._names) >= MOST_NAMES:
            self._refuse("more", f"there are more than {MOST_NAMES} names of metrics")
        else:
            self._names.add(name)
            return True
        return False

    def _refuse(self, key: object, what: str) -> None:
        if key not in self._refused:
            if len(self._refused) < MOST_NAMES:
                self._refused.add(key)
            _warn(f"{self._env_id!r}: {what}; it is left out of the run's metrics")


@functools.lru_cache(maxsize=256)
def _warn(what: str) -> None:
    """Warn once in this process: every evaluation makes environments anew."""
    warnings.warn(what, MusterWarning, stacklevel=4)
