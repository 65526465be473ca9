"""What every algorithm's configuration answers, so that nobody else asks which algorithm it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import gymnasium as gym


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: the class of its options, and that of what acts and learns.

    Each may be given as module:name, which is imported when it is needed.
    """

    config: str | type[Any]
    """A frozen dataclass, such as a subclass of `InStepConfig`. Does not load torch if it is one of
    muster's own."""
    agent: str | Callable[..., Any]
    """Called with (config, observation space, action space, seed), and maybe `model`."""


class Configuration(Protocol):
    """How an algorithm learns: a frozen dataclass of its options, checked when it is made."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    FIXED_ON_RESUME: ClassVar[frozenset[str]]
    """Options that make a run what it is; a resumed run cannot change them."""
    PROGRAM: ClassVar[str]
    """The training program that runs it: `in_step`, `replay`, `stream` or `gradients`."""
    OF_RUNS: ClassVar[Mapping[str, Any]]
    """Options of every run that have another default with this algorithm."""

    # A configuration with a limit of its own, besides steps and target, also has
    # limit_reached(parts): its name if a checkpoint's parts have reached it, else None.

    @property
    def hidden(self) -> tuple[int, ...]:
        """Width of each hidden layer."""

    @property
    def model(self) -> str | None:
        """Another network by its name; None for layers of these widths."""

    @property
    def horizon(self) -> int:
        """Environment steps that a run is planned for."""

    def default_workers(self, cores: int) -> int:
        """Return how many processes train where nobody says it; 0 for one that does all."""

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for what only these together make impossible."""

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Raise OptionError if a checkpoint's parts cannot be resumed with these options."""

    def rows_of_update(self, num_envs: int) -> int:
        """Return the samples that one update learns from."""

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes that options ask for, by the name of the option.

        Args:
            num_envs: Environments of the run.
            obs_bytes: Of one observation as it is stored.
            action_bytes: Of one action.
        """

    @staticmethod
    def check_actions(action_space: gym.Space[Any]) -> None:
        """Raise OptionError for actions that the algorithm cannot choose."""

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Whether a checkpoint is without the replay that its learning continues with."""
