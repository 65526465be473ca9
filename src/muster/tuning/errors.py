"""What can go wrong with a study.

MusterError
├── OptionError
│   └── SpaceError                 what a study should try is not possible
├── StudyError      (RuntimeError)  the directory is no study, or not one to go on with
└── TrialsFailedError (RuntimeError)  no trial came to an end
"""

from muster.errors import MusterError, OptionError


class SpaceError(OptionError):
    """A grid or a space names what is not there, or holds values that cannot be."""


class StudyError(MusterError, RuntimeError):
    """A directory cannot be used as the study that it was given as."""


class TrialsFailedError(MusterError, RuntimeError):
    """Every trial of a study failed."""

    run_failed = True
