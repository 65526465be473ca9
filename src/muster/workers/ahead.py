"""`Ahead`: something that is done while the caller does something else."""

import threading
from collections.abc import Callable


class Ahead:
    """Runs a function on a thread of its own, from now on.

    Environments in C and torch let both go on at once; Python's own work takes turns.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="muster ahead", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it is done, and raise what it raised."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error
