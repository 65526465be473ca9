"""`task.parallel_ctx`: the newest value of each key that neighbours shared."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from muster.flow.dispatcher import Dispatcher
from muster.framework.context import AbsentKeyError
from muster.framework.node import Received


class ParallelContext(Received):
    """Reads like a context. Read several keys that belong together from one `snapshot`."""

    def __init__(self, dispatcher: Dispatcher, finished: Callable[[], bool]) -> None:
        self._dispatcher = dispatcher
        self._finished = finished
        self._changed = threading.Condition()
        self._values: dict[str, tuple[Any, int]] = {}

    def source(self, key: str) -> int:
        """Return the id of the node that sent the value of `key`."""
        with self._changed:
            return self._entry(key)[1]

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of all values at one moment; it contains messages only as a whole."""
        with self._changed:
            return {key: value for key, (value, _) in self._values.items()}

    def wait(self, key: str, above: Any = None, timeout: float | None = None) -> Any:
        """Return the value of `key` once it exists and is greater than `above`.

        Returns None if the run finishes first.

        Raises:
            TimeoutError: No such value arrived within `timeout` seconds.
        """

        def there() -> bool:
            entry = self._values.get(key)
            return entry is not None and (above is None or entry[0] > above)

        if not there() and not self._dispatcher.wait_for(
            self._changed, lambda: there() or self._finished(), timeout
        ):
            raise TimeoutError(f"no {key!r} within {timeout} s")
        return self._values[key][0] if there() else None

    def __getitem__(self, key: str) -> Any:
        with self._changed:
            return self._entry(key)[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # during construction, and for names that Python itself looks up
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"ParallelContext({self.snapshot()!r})"

    def receive(self, sender: int, values: Mapping[str, Any]) -> None:
        """Apply a message as a whole."""
        with self._changed:
            self._values.update((key, (value, sender)) for key, value in values.items())
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake all waiting threads, so that they check whether the run has finished."""
        with self._changed:
            self._changed.notify_all()

    def _entry(self, key: str) -> tuple[Any, int]:
        entry = self._values.get(key)
        if entry is None:
            raise AbsentKeyError(key, None, tuple(self._values))
        return entry
