"""What can go wrong around a run directory.

MusterError
├── CheckpointError      (RuntimeError)  a checkpoint cannot be saved, or not be trusted
│   └── NonFiniteStateError              it would be, or is, a policy with NaN or infinity in it
└── RunDirectoryError    (RuntimeError)  the directory is no run, or not one to write to
    └── RunLockedError                   another process is writing there
"""

from pathlib import Path

from muster.errors import MusterError


class CheckpointError(MusterError, RuntimeError):
    """A checkpoint could not be saved, or is damaged, foreign or of another version.

    Args:
        what: What happened, with the file.
        why: The likely cause.
        fix: One line to try; it holds `offer` if there is one.
        offer: The newest earlier checkpoint that verifies, when one was damaged.
    """

    def __init__(self, what: str, why: str, fix: str, *, offer: Path | None = None) -> None:
        super().__init__(what, why, fix)
        self.offer = offer


class NonFiniteStateError(CheckpointError):
    """The policy holds a NaN or an infinity: such a checkpoint is never saved and never loaded."""


class RunDirectoryError(MusterError, RuntimeError):
    """A directory cannot be used as the run directory that it was given as."""


class RunLockedError(RunDirectoryError):
    """Another process writes to this run; `pid` is its process id, or None if it did not say."""

    def __init__(self, what: str, why: str, fix: str, *, pid: int | None = None) -> None:
        super().__init__(what, why, fix)
        self.pid = pid
