"""Errors of building blocks.

MusterError
├── BlockError        (RuntimeError)  an actor raised or died
└── ReplayEmptyError  (LookupError)   there was nothing to sample in time
"""

from muster.errors import MusterError


class BlockError(MusterError, RuntimeError):
    """An actor raised, died, or could not be started in time.

    Attributes:
        block: The name of the block in messages: `rollout worker 1`.
        remote_traceback: The traceback in the actor; empty if it died.
    """

    run_failed = True

    def __init__(
        self, what: str, why: str, fix: str, *, block: str, remote_traceback: str = ""
    ) -> None:
        super().__init__(what, why, fix)
        self.block = block
        self.remote_traceback = remote_traceback
        if remote_traceback:
            self.add_note(f"in {block}:\n{remote_traceback}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (self.args, self.block, self.remote_traceback)


def _rebuilt(args: tuple[str, str, str], block: str, remote_traceback: str) -> BlockError:
    return BlockError(*args, block=block, remote_traceback=remote_traceback)


class ReplayEmptyError(MusterError, LookupError):
    """A replay buffer had too little to sample within the given time."""
