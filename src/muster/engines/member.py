"""`Member`: what the parent knows and does of one node, whatever runs it."""

import os
import signal
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Literal

from muster.engines.base import Launch
from muster.engines.lives import Death, Lives
from muster.engines.logs import NodeLog, append, log_of
from muster.engines.orders import Raised, Returned
from muster.engines.progress import ProgressPage, Watch
from muster.errors import NodeError
from muster.framework.node import Place


class Member(ABC):
    """One node, through all of its incarnations.

    Args:
        place: Its place, as it is at the start.
        launch: The program.
        page: Where nodes count their progress.
    """

    pipe: Connection
    """Where the parent hears what the node says."""

    def __init__(self, place: Place, launch: Launch, page: ProgressPage) -> None:
        self.place = place
        self.policy = launch.on_failure.get(place.node_id, "stop")
        self.lives = Lives(launch.max_restarts)
        self.restart_at: float | None = None
        self.outcome: Returned | Raised | None = None
        self.ended = False
        """Whether it is gone for good."""
        self.alive = False
        self.listening = False
        self.hung: str | None = None
        """Why it was killed by the parent, if that was for a hang."""
        self.kill_at: float | None = None
        self.done_at: float | None = None
        """When it said what came of its program; it should end then."""
        self.replaced: tuple[float, str] | None = None
        """When and how the incarnation before ended, until this one is at work."""
        self.watch = Watch()
        self.logs: tuple[NodeLog, ...] = ()
        self._launch = launch
        self._page = page
        self._started = 0.0
        self._starts = 0

    def start(self) -> None:
        """Start it, for the first time or again."""
        if self._starts:
            resumed = self.policy == "resume"
            self.place = replace(self.place, incarnation=self._starts, resumed=resumed)
        self._starts += 1
        self.restart_at = None
        self.hung = self.kill_at = self.done_at = None
        self.watch = Watch()
        self._page.reset(self.place.node_id)
        self._begin()
        self._started = time.monotonic()
        self.alive = True

    @abstractmethod
    def _begin(self) -> None:
        """Start what runs it, with a pipe, a sentinel and logs."""

    @property
    @abstractmethod
    def sentinel(self) -> int:
        """A descriptor that can be read once the node has ended."""

    @abstractmethod
    def tell(self, order: object) -> None:
        """Give an order; a node that is gone does not hear it."""

    def ask_where(self) -> float:
        """Have it say what it is doing, before it is ended; return how long that may take."""
        return 0.0

    @abstractmethod
    def kill(self) -> None:
        """End the node, and all that it has started, at once."""

    @abstractmethod
    def join(self) -> None:
        """Wait until it has ended."""

    @abstractmethod
    def _release(self) -> None:
        """Let go of what ran it, which has ended."""

    @abstractmethod
    def exit_status(self) -> str:
        """Say how it ended."""

    def close(self) -> None:
        """Let go of a node that has ended, and end what it left running."""
        self._release()
        self.alive = False
        self.listening = False
        for log in self.logs:
            log.close()
        self.logs = ()
        self.pipe.close()

    def death(self, how: str) -> Death:
        """Return the end of the life that it had, which may have been a hang."""
        last = self.watch.since if self.hung else time.monotonic()
        at = self._page.read(self.place.node_id)
        return Death(how, self.hung is not None, last - self._started, at)

    def keep(self, text: str) -> None:
        """Write something about the node into its log, if there is one, and nowhere else."""
        if self._launch.log_dir is not None:
            append(log_of(self.place, self._launch.log_dir), text)

    def raised(self, order: Raised) -> NodeError:
        """Make the error that the run ends with because this node raised."""
        fix = self._where_to_look()
        if order.fix is not None:
            fix = f"{order.fix}; {fix}"
        return self._failure(f"raised {order.summary}", order.why, fix, "raised", order.traceback)

    def lost(self, cause: Literal["killed", "hung"], why: str) -> NodeError:
        """Make the error that the run ends with because this node is no more."""
        fix = self._where_to_look()
        if self.policy == "stop":
            role = self.place.role or self.place.node_id
            fix = f"on_failure={{{role!r}: 'restart'}}, to have it replaced"
        verb = {"killed": "died", "hung": "hung"}[cause]
        times = f" {self.lives.restarts} times" if self.lives.restarts > 1 else ""
        return self._failure(f"{verb}{times}", why, fix, cause)

    def _failure(self, what: str, why: str, fix: str, cause: str, trace: str = "") -> NodeError:
        return NodeError(
            f"{self.place.name} {what}",
            why,
            fix,
            node=self.place.node_id,
            role=self.place.role,
            cause=cause,
            remote_traceback=trace,
        )

    def _where_to_look(self) -> str:
        log = self._launch.log_dir
        return f"look into {log_of(self.place, log)}" if log else "look at its output"

    def _log(self, fd: int, is_error: bool) -> NodeLog:
        """Return what shows and keeps a stream of the node's; takes over the descriptor."""
        return NodeLog(self.place, fd, is_error, self._launch.log_dir)


def exit_status(code: int | None) -> str:
    """Say how a process ended, by its exit code."""
    if code is not None and code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it left with exit code {code}"


def kill_group(pid: int) -> bool:
    """End a process and all that it has started; False if it has no group of its own yet."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
