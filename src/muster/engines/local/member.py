"""`LocalMember`: a node that is a process of this machine."""

import contextlib
import os
import signal
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from muster.container import memory_kills
from muster.engines.base import Launch
from muster.engines.local.child import WHERE, NodeSetup, run_as_node
from muster.engines.local.forkserver import SERVER
from muster.engines.local.handshake import Secrets
from muster.engines.local.limits import cores_of, threads_of
from muster.engines.logs import log_of
from muster.engines.member import Member, exit_status
from muster.engines.memory import SharedMemory
from muster.engines.progress import ProgressPage
from muster.framework.node import Place

_WHERE_SECONDS = 0.2


class LocalMember(Member):
    """One node, through all of its incarnations.

    Args:
        place: Its place at the start.
        launch: The program.
        secrets: The run's secrets.
        directory: Directory of the nodes' sockets.
        page: Where nodes count their progress.
        memory: The memory that all nodes share.
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
        super().__init__(place, launch, page)
        self._secrets = secrets
        self._directory = directory
        self._memory = memory

    def _begin(self) -> None:
        self.pipe, childs_end = Pipe()
        out, out_end = Pipe(duplex=False)
        err, err_end = Pipe(duplex=False)
        self.logs = (self._log(_taken(out), False), self._log(_taken(err), True))
        launch = self._launch
        setup = NodeSetup(
            place=self.place,
            known=self._secrets,
            directory=self._directory,
            parent=childs_end,
            out=out_end,
            err=err_end,
            progress=self._page,
            memory=self._memory,
            is_spread=False,
            environment=dict(os.environ),
            threads=threads_of(launch),
            cores=cores_of(self.place.node_id, self.place.size) if launch.pin else None,
            main=launch.main,
            args=launch.args,
            kwargs=launch.kwargs,
            log=None if launch.log_dir is None else log_of(self.place, launch.log_dir),
            grace=launch.grace,
        )
        self._memory_kills = memory_kills()
        try:
            self._process = SERVER.fork(
                self.place.name,
                run_as_node,
                (setup,),
                launch.start_within,
                self._directory,
                # A program of muster's own needs nothing from the script that started it.
                needs_main=not launch.main.__module__.startswith("muster."),
            )
        except BaseException:
            for log in self.logs:
                log.close()
            self.pipe.close()
            raise
        finally:
            for end in (childs_end, out_end, err_end):
                end.close()

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable once the process has ended."""
        return self._process.pidfd

    def tell(self, order: object) -> None:
        """Send an order; ignored if the node has exited."""
        with contextlib.suppress(OSError):
            self.pipe.send(order)

    def ask_where(self) -> float:
        """Make it write its stacks to its log; return the seconds to wait for that."""
        self._process.send(WHERE)
        return _WHERE_SECONDS

    def kill(self) -> None:
        """Kill its process, and everything that it has started."""
        if self.alive:
            self._process.kill()

    def join(self) -> None:
        """Wait until its process has ended."""
        self._process.wait()

    def exit_status(self) -> str:
        """Describe how its process ended."""
        code = self._process.wait().code
        if code is None:
            return "it ended with the fork server"
        return exit_status(code) + (self._why_killed() if code == -signal.SIGKILL else "")

    def _why_killed(self) -> str:
        """Return the reason for a SIGKILL, to complete the sentence of the exit status."""
        now = memory_kills()
        if now is None or self._memory_kills is None:
            return ", sent from outside: maybe by the system, which was out of memory"
        if now > self._memory_kills:
            return ", sent by the system, which was out of memory (it counted an oom_kill)"
        return ""

    def _release(self) -> None:
        self.kill()
        for each in self._process.wait().left:
            self.keep(f"muster: {self.place.name} left a process running: {each}; muster ended it")
        self._process.close()


def _taken(end: Connection) -> int:
    """Return a duplicate of a pipe end's descriptor, and close the pipe end."""
    fd = os.dup(end.fileno())
    end.close()
    return fd
