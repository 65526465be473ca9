"""Errors of a study.

MusterError
├── OptionError
│   └── SpaceError                    the search space is invalid
├── StudyError        (RuntimeError)  the directory is not a study, or cannot be resumed
└── TrialsFailedError (RuntimeError)  every trial failed
"""

from muster.errors import MusterError, OptionError


class SpaceError(OptionError):
    """A grid or a space has an unknown name or an invalid value."""


class StudyError(MusterError, RuntimeError):
    """A directory cannot be used as a study."""


class TrialsFailedError(MusterError, RuntimeError):
    """Every trial of a study failed."""

    run_failed = True
