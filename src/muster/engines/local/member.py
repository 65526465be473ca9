"""`Member`: what the parent knows and does of one node."""

import contextlib
import os
import signal
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from muster.engines.base import Launch
from muster.engines.local.child import Birth, live
from muster.engines.local.forkserver import context
from muster.engines.local.handshake import Secrets
from muster.engines.local.limits import cores_of, threads_of
from muster.engines.local.logs import NodeLog
from muster.engines.local.memory import SharedMemory
from muster.engines.local.orders import Raised, Returned
from muster.engines.local.progress import ProgressPage, Watch
from muster.errors import NodeError
from muster.framework.node import Place


class Member:
    """One node, through all of its incarnations.

    Args:
        place: Its place, as it is at the start.
        launch: The program.
        secrets: The run's.
        directory: Where the nodes' sockets are.
        page: Where nodes count their progress.
        memory: What all nodes share.
    """

    def __init__(
        self,
        place: Place,
        launch: Launch,
        secrets: Secrets,
        directory: Path,
        page: ProgressPage,
        memory: SharedMemory,
    ) -> None:
        self.place = place
        self.policy = launch.on_failure.get(place.node_id, "stop")
        self.restarts = 0
        self.stillborn = 0
        """Restarts in a row that did not come to their first loop."""
        self.restart_at: float | None = None
        self.outcome: Returned | Raised | None = None
        self.ended = False
        """Whether it is gone for good."""
        self.alive = False
        self.listening = False
        self.hung: str | None = None
        """Why it was killed by the parent, if that was for a hang."""
        self.watch = Watch()
        self.logs: tuple[NodeLog, ...] = ()
        self._launch = launch
        self._secrets = secrets
        self._directory = directory
        self._page = page
        self._memory = memory
        self._started = 0.0
        self._starts = 0

    def start(self) -> None:
        """Start its process, for the first time or again."""
        if self._starts:
            resumed = self.policy == "resume"
            self.place = replace(self.place, incarnation=self._starts, resumed=resumed)
        self._starts += 1
        self.restart_at = None
        self.hung = None
        self.watch = Watch()
        self._page.reset(self.place.node_id)
        ctx = context()
        self.pipe, childs_end = ctx.Pipe()
        out, out_end = ctx.Pipe(duplex=False)
        err, err_end = ctx.Pipe(duplex=False)
        self.logs = (self._log(out, False), self._log(err, True))
        launch = self._launch
        birth = Birth(
            place=self.place,
            known=self._secrets,
            directory=self._directory,
            parent=childs_end,
            out=out_end,
            err=err_end,
            progress=self._page,
            memory=self._memory,
            environment=dict(os.environ),
            threads=threads_of(launch),
            cores=cores_of(launch, self.place.node_id),
            main=launch.main,
            args=launch.args,
            kwargs=launch.kwargs,
        )
        self._process = ctx.Process(target=live, args=(birth,), name=self.place.name)
        self._process.start()
        self._started = time.monotonic()
        self.alive = True
        for end in (childs_end, out_end, err_end):
            end.close()

    @property
    def sentinel(self) -> int:
        """A descriptor that can be read once the process has ended."""
        return self._process.sentinel

    def tell(self, order: object) -> None:
        """Give an order; a node that is gone does not hear it."""
        with contextlib.suppress(OSError):
            self.pipe.send(order)

    def kill(self) -> None:
        """End its process, and all that it has started, at once."""
        if not self.alive:
            return
        assert self._process.pid is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has not got so far as to have a group of its own
            self._process.kill()

    def join(self) -> None:
        """Wait until its process has ended."""
        self._process.join()

    def close(self) -> None:
        """Let go of a process that has ended, and end what it left running."""
        self.kill()
        self._process.join()
        self._process.close()
        self.alive = False
        self.listening = False
        for log in self.logs:
            log.close()
        self.logs = ()
        self.pipe.close()

    def lived(self) -> float:
        """Return the seconds since its process was started."""
        return time.monotonic() - self._started

    def back_off(self, first: float, longest: float) -> float:
        """Return how long to wait before it is started again: not at all at first."""
        return 0.0 if self.restarts <= 1 else min(first * 2.0 ** (self.restarts - 2), longest)

    def exit_status(self) -> str:
        """Say how its process ended."""
        self._process.join()
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        return f"it left with exit code {code}"

    def failure(self, cause: str, why: str, trace: str, max_restarts: int) -> NodeError:
        """Make the error that the run ends with because of this node."""
        verb = {"raised": "raised an exception", "killed": "died", "hung": "hung"}[cause]
        log = self._launch.log_dir
        fix = f"look into {log / f'node.{self.place.node_id}.log'}" if log else "look at its output"
        if cause != "raised":
            if self.policy == "stop":
                role = self.place.role or self.place.node_id
                fix = f"on_failure={{{role!r}: 'restart'}}, to have it replaced"
            elif self.restarts > 1:
                why += f", and it was replaced {self.restarts - 1} times already"
        return NodeError(
            f"{self.place.name} {verb}",
            why,
            fix,
            node=self.place.node_id,
            role=self.place.role,
            cause=cause,
            remote_traceback=trace,
        )

    def _log(self, end: Connection, is_error: bool) -> NodeLog:
        fd = os.dup(end.fileno())
        end.close()
        return NodeLog(self.place, fd, is_error, self._launch.log_dir)
