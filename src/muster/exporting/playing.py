"""Episodes played by an exported file, for comparison with its policy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.exporting.formats import ExportedFile
from muster.exporting.proof import inputs_of
from muster.recipes.policy import LoadedPolicy
from muster.workers import evaluate_policy


class FilePolicy:
    """A file as a policy that can be evaluated.

    Args:
        file: The file.
        keys: The parts of a Dict observation; None for any other.
        memory_width: Numbers of memory per environment.
        start: The first of the environment's discrete actions; vector environments count from 0.
    """

    def __init__(
        self, file: ExportedFile, keys: list[str] | None, memory_width: int, start: Any
    ) -> None:
        self._file = file
        self._keys = keys
        self._width = memory_width
        self._memory = np.zeros((0, memory_width), np.float32)
        self._start = start
        self.remembers = memory_width > 0
        """Whether `act` needs to know where episodes begin."""

    def act(self, obs: Any, first: NDArray[np.bool_] | None = None) -> Any:
        """Return an action for each of N observations."""
        if first is not None:
            if len(self._memory) != len(first):
                self._memory = np.zeros((len(first), self._width), np.float32)
            self._memory[first] = 0
        action, *after = self._file.run(inputs_of(obs, self._keys, self._memory))
        if after:
            self._memory = after[0].copy()
        return action - self._start


def play(policy: LoadedPolicy, file: FilePolicy, episodes: int, seed: int) -> tuple[float, float]:
    """Return the mean returns of a policy and of its file over the same episodes."""
    policy.reset()
    one, other = (
        evaluate_policy(each, policy.setup, episodes, seed, backend=policy.backend)
        for each in (policy, file)
    )
    return one.mean, other.mean
