"""Errors around a run directory.

MusterError
├── CheckpointError      (RuntimeError)  a checkpoint cannot be saved or trusted
│   └── NonFiniteStateError              its policy contains NaN or infinity
└── RunDirectoryError    (RuntimeError)  the directory is not a run, or not writable
    └── RunLockedError                   another process is writing there
"""

from pathlib import Path

from muster.errors import MusterError


class CheckpointError(MusterError, RuntimeError):
    """A checkpoint could not be saved, or is damaged, foreign or of another version.

    Args:
        what: What happened, with the file.
        why: The likely cause.
        fix: One line to try; it names `offer` if there is one.
        offer: The newest earlier checkpoint that verifies, if this one is damaged.
    """

    def __init__(self, what: str, why: str, fix: str, *, offer: Path | None = None) -> None:
        super().__init__(what, why, fix)
        self.offer = offer


class NonFiniteStateError(CheckpointError):
    """The policy contains NaN or infinity: such a checkpoint is never saved and never loaded."""


class RunDirectoryError(MusterError, RuntimeError):
    """A directory cannot be used as a run directory."""


class RunLockedError(RunDirectoryError):
    """Another process writes to this run; `pid` is its process id, or None if unknown."""

    def __init__(self, what: str, why: str, fix: str, *, pid: int | None = None) -> None:
        super().__init__(what, why, fix)
        self.pid = pid
