"""`Servers`: the processes that `ray.init` starts for a cluster of our own."""

import contextlib
import importlib
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from muster.errors import ClusterError

_STUCK_SECONDS = 15.0
"""Seconds that Ray has to notice that one of its servers has ended."""
_NEEDED = ("gcs_server", "raylet")


class Servers:
    """The servers without which a cluster cannot work."""

    def __init__(self) -> None:
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._ended_at: float | None = None

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Within this block, record the servers that Ray starts, and tell Ray when one has ended.

        Each server is in its own process group: signals to our group are for this process alone.
        """
        services: Any = importlib.import_module("ray._private.services")
        popen, get_node = services.ConsolePopen, services.get_node

        def start(command: list[str], *args: Any, **options: Any) -> Any:
            process = popen(command, *args, process_group=0, **options)
            for name in _NEEDED:
                if command[0].endswith(f"/{name}"):
                    self._started[name] = process
            return process

        def find_node(*args: Any, **options: Any) -> Any:
            if name := self.ended():  # Ray would keep asking for 30 s
                raise ConnectionError(f"its {name} has ended")
            return get_node(*args, **options)

        services.ConsolePopen, services.get_node = start, find_node
        try:
            yield
        finally:
            services.ConsolePopen, services.get_node = popen, get_node

    def ended(self) -> str | None:
        """Return the name of a server that has ended, or None."""
        ended = (name for name, each in self._started.items() if each.poll() is not None)
        return next(ended, None)

    def stuck(self) -> ClusterError | None:
        """Return why Ray's start will never end, once Ray has had time to notice it itself."""
        name = self.ended()
        if name is None:
            return None
        self._ended_at = self._ended_at or time.monotonic()
        if time.monotonic() - self._ended_at < _STUCK_SECONDS:
            return None
        return ClusterError(
            "a Ray cluster on this machine could not be started",
            f"Ray's {name} ended during its start: it failed, or was killed",
            "the same command again; with --resume if the run had already begun",
        )
