"""The interface of every algorithm's configuration, so that no caller has to know the algorithm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import gymnasium as gym


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: the class of its options, and the class that acts and learns.

    Each may be given as `module:name`, which is imported on first use.
    """

    config: str | type[Any]
    """A frozen dataclass, such as a subclass of `InStepConfig`. muster's own do not load torch."""
    agent: str | Callable[..., Any]
    """Called with (config, observation space, action space, seed), and optionally `model`."""


class Configuration(Protocol):
    """The options of an algorithm: a frozen dataclass, validated on construction."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    FIXED_ON_RESUME: ClassVar[frozenset[str]]
    """Options that define a run; a resumed run cannot change them."""
    PROGRAM: ClassVar[str]
    """The training program of the algorithm: `in_step`, `replay`, `stream` or `gradients`."""
    OF_RUNS: ClassVar[Mapping[str, Any]]
    """Run options whose default differs for this algorithm."""

    # A configuration with its own limit, besides steps and target, also has limit_reached(parts):
    # the name of the limit if a checkpoint's parts have reached it, else None.

    @property
    def hidden(self) -> tuple[int, ...]:
        """Width of each hidden layer."""

    @property
    def model(self) -> str | None:
        """Name of another network; None for an MLP with these widths."""

    @property
    def horizon(self) -> int:
        """Environment steps for which a run and its schedules are planned."""

    def default_workers(self, cores: int) -> int:
        """Return the default number of worker processes; 0 means one process for everything."""

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for options that are impossible only in combination."""

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Raise OptionError if a checkpoint's parts cannot be resumed with these options."""

    def rows_of_update(self, num_envs: int) -> int:
        """Return the number of samples that one update learns from."""

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes of memory that options require, by the name of the option.

        Args:
            num_envs: Environments of the run.
            obs_bytes: Bytes of one stored observation.
            action_bytes: Bytes of one action.
        """

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Raise OptionError for an action space that the algorithm does not support."""

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Whether a checkpoint lacks the replay data that learning needs."""
