"""`LocalMember`: a node that is a process of this machine."""

import contextlib
import os
from multiprocessing.connection import Connection
from pathlib import Path

from muster.engines.base import Launch
from muster.engines.local.child import Birth, live
from muster.engines.local.forkserver import context
from muster.engines.local.handshake import Secrets
from muster.engines.local.limits import cores_of, threads_of
from muster.engines.member import Member, exit_status, kill_group
from muster.engines.memory import SharedMemory
from muster.engines.progress import ProgressPage
from muster.framework.node import Place


class LocalMember(Member):
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
        super().__init__(place, launch, page)
        self._secrets = secrets
        self._directory = directory
        self._memory = memory

    def _begin(self) -> None:
        ctx = context()
        self.pipe, childs_end = ctx.Pipe()
        out, out_end = ctx.Pipe(duplex=False)
        err, err_end = ctx.Pipe(duplex=False)
        self.logs = (self._log(_taken(out), False), self._log(_taken(err), True))
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
            is_spread=False,
            environment=dict(os.environ),
            threads=threads_of(launch),
            cores=cores_of(self.place.node_id, self.place.size) if launch.pin else None,
            main=launch.main,
            args=launch.args,
            kwargs=launch.kwargs,
        )
        self._process = ctx.Process(target=live, args=(birth,), name=self.place.name)
        self._process.start()
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
        if not kill_group(self._process.pid):
            self._process.kill()

    def join(self) -> None:
        """Wait until its process has ended."""
        self._process.join()

    def exit_status(self) -> str:
        """Say how its process ended."""
        self._process.join()
        return exit_status(self._process.exitcode)

    def _release(self) -> None:
        self.kill()
        self._process.join()
        self._process.close()


def _taken(end: Connection) -> int:
    """Return a descriptor of a pipe's end, which is closed."""
    fd = os.dup(end.fileno())
    end.close()
    return fd
