"""Errors about environments.

MusterError
├── EnvError             (RuntimeError)  an env failed, or returned or received an invalid value
├── UnknownEnvError      (ValueError)    there is no environment of this id
└── MissingPackageError  (ImportError)   the environment needs a package that is not installed
"""

import traceback

from muster.errors import MusterError

INSTALL_QT = "apt-get install libqt5core5a libqt5gui5"
"""System packages that EnvPool's Procgen needs."""


class EnvError(MusterError, RuntimeError):
    """An environment failed, or a value at its boundary was rejected; nothing of it was stored.

    Attributes:
        env: Index of the environment, 0 <= env < num_envs; None if not about a single one.
        episode: Number of its episode.
        step: Steps of that episode, including the failed one; 0 is its reset.
        seed: The reset seed of the episode.
        field: The rejected value, such as `reward` or `observation['image']`; otherwise the call:
            `init`, `reset`, `step` or `close`.
    """

    def __init__(
        self,
        what: str,
        why: str,
        fix: str,
        *,
        env: int | None = None,
        episode: int | None = None,
        step: int | None = None,
        seed: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(what, why, fix)
        self.env = env
        self.episode = episode
        self.step = step
        self.seed = seed
        self.field = field


class UnknownEnvError(MusterError, ValueError):
    """There is no environment of this id, here or in the packages that were searched.

    Attributes:
        nearest: The id that was probably meant, or None.
    """

    def __init__(self, what: str, why: str, fix: str, nearest: str | None = None) -> None:
        super().__init__(what, why, fix)
        self.nearest = nearest

    def to_try(self, line: str, *before: str) -> "UnknownEnvError":
        """Return this error with a line to try in the caller's syntax.

        Args:
            line: How the caller names an environment, with a `{}` for each of `before`, and one for
                the id.
            before: The words before the id.
        """
        what, why, fix = self.args
        if self.nearest is not None:
            fix = line.format(*before, self.nearest)
        return UnknownEnvError(what, why, fix, self.nearest)


class MissingPackageError(MusterError, ImportError):
    """An environment or a backend needs a package that is not installed."""


class RefusedValue(Exception):
    """A value that contradicts its space: internal, becomes an EnvError with the location.

    Args:
        index: The row of the value: an index into the given rows, not always that of an env.
        field: Which value it is.
        what: The problem, as the end of the sentence "`field` of env 3 ...".
        why: Why the value is rejected.
        fix: One line to try.
    """

    def __init__(self, index: int, field: str, what: str, why: str, fix: str) -> None:
        super().__init__(index, field, what, why, fix)
        self.index = index
        self.field = field
        self.what = what
        self.why = why
        self.fix = fix


def one_line(error: BaseException) -> str:
    """Return an exception's type and message without line breaks."""
    return " ".join("".join(traceback.format_exception_only(error)).split())


def brief(value: object) -> str:
    """Return the repr of a value, shortened for a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
