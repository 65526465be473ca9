"""`Ahead`: runs a function in the background while the caller does something else."""

import threading
from collections.abc import Callable


class Ahead:
    """Runs a function on its own thread, starting now.

    Environments in C and torch release the GIL, so both sides make progress at once; Python code
    takes turns.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="muster ahead", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the function has returned, and raise its exception if it raised one."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error
