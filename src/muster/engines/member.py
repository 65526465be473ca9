"""`Member`: the supervisor's view of one node, whatever engine runs it."""

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Literal

from muster.engines.base import Launch
from muster.engines.logs import NodeLog, append, log_of, say
from muster.engines.orders import Raised, Returned
from muster.engines.progress import ProgressPage, Watch
from muster.engines.restart_policy import NodeFailure, RestartPolicy
from muster.errors import NodeError
from muster.framework.node import Place


class Member(ABC):
    """One node, through all of its incarnations.

    Args:
        place: Its place at the start.
        launch: The program.
        page: Where nodes count their progress.
    """

    pipe: Connection
    """Messages from the node."""

    def __init__(self, place: Place, launch: Launch, page: ProgressPage) -> None:
        self.place = place
        self.policy = launch.on_failure.get(place.node_id, "stop")
        self.restart_policy = RestartPolicy(launch.max_restarts)
        self.restart_at: float | None = None
        self.outcome: Returned | Raised | None = None
        self.ended = False
        """Whether it has ended and will not be replaced."""
        self.elastic = place.node_id in place.elastic
        """Whether the run continues without it."""
        self.away = place.node_id in launch.late
        """Whether it is elastic and absent: it has not joined yet, or has left."""
        self.last_there = -1
        """Its last incarnation that was present and left; -1 for none."""
        self.has_joined = not self.away
        """Whether it works, or is one of the nodes that the run begins with."""
        self.has_left = False
        """Whether it worked, and then left."""
        self.why_not_joined: str | None = None
        """The exception that it raised before it had joined."""
        self.alive = False
        self.listening = False
        self.hung: str | None = None
        """Why the supervisor killed it as hung; None if the supervisor did not."""
        self.kill_at: float | None = None
        self.done_at: float | None = None
        """When its `main` returned or raised; then its process should end."""
        self.replaced: tuple[float, str] | None = None
        """When and how the previous incarnation ended, until this one works."""
        self.watch = Watch()
        self.logs: tuple[NodeLog, ...] = ()
        self._launch = launch
        self._page = page
        self._first_started = self._started = 0.0
        self._starts = 0

    def start(self) -> None:
        """Start it, for the first time or again."""
        if self._starts:
            resumed = self.policy == "resume"
            age = time.monotonic() - self._first_started
            self.place = replace(self.place, incarnation=self._starts, resumed=resumed, age=age)
        else:
            self._first_started = time.monotonic()
        self._starts += 1
        self.restart_at = None
        self.hung = self.kill_at = self.done_at = self.why_not_joined = None
        self.watch = Watch()
        self._page.reset(self.place.node_id)
        self._begin()
        self._started = time.monotonic()
        self.alive = True

    @abstractmethod
    def _begin(self) -> None:
        """Start its process, and set pipe, sentinel and logs."""

    @property
    @abstractmethod
    def sentinel(self) -> int:
        """A descriptor that is readable once the node has ended."""

    @property
    def has_place(self) -> bool:
        """Whether it has a machine; until then it can only wait."""
        return True

    @property
    def has_lost_place(self) -> bool:
        """Whether it ended because its machine, or the process that ran it there, is lost."""
        return False

    @abstractmethod
    def tell(self, order: object) -> None:
        """Send an order, if the node is alive."""

    def ask_where(self) -> float:
        """Make it write its stacks before it is killed; return the seconds to wait for that."""
        return 0.0

    @abstractmethod
    def kill(self) -> None:
        """Kill the node, and everything that it has started."""

    @abstractmethod
    def join(self) -> None:
        """Wait until it has ended."""

    @abstractmethod
    def _release(self) -> None:
        """Release the resources of its ended process."""

    @abstractmethod
    def exit_status(self) -> str:
        """Describe how it ended."""

    def close(self) -> None:
        """Release an ended node, and end everything that it left running."""
        self._release()
        self.alive = False
        self.listening = False
        for log in self.logs:
            log.close()
        self.logs = ()
        self.pipe.close()

    def failure(self, how: str) -> NodeFailure:
        """Describe how this incarnation failed."""
        last = self.watch.since if self.hung else time.monotonic()
        at = self._page.read(self.place.node_id)
        return NodeFailure(how, self.hung is not None, last - self._started, at)

    def keep(self, text: str) -> None:
        """Write a line about the node to its log only, if there is one."""
        if self._launch.log_dir is not None:
            append(log_of(self.place, self._launch.log_dir), text)

    def say(self, what: str) -> None:
        """Write a line about the node to its log, and to standard error unless quiet."""
        line = f"{self.place.name} {what}"
        self.keep(f"muster: {line}")
        if not self._launch.quiet:
            say(line)

    def raised(self, order: Raised) -> NodeError:
        """Return the error of a run in which this node raised."""
        fix = self._where_to_look()
        if order.fix is not None:
            fix = f"{order.fix}; {fix}"
        return self._failure(f"raised {order.summary}", order.why, fix, "raised", order.traceback)

    def lost(self, cause: Literal["killed", "hung"], why: str) -> NodeError:
        """Return the error of a run in which this node was killed or hung."""
        fix = self._where_to_look()
        if self.policy == "stop":
            role = self.place.role or self.place.node_id
            fix = f"on_failure={{{role!r}: 'restart'}}, which replaces it"
        verb = {"killed": "died", "hung": "hung"}[cause]
        times = f" {self.restart_policy.restarts} times" if self.restart_policy.restarts > 1 else ""
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
        return f"see {log_of(self.place, log)}" if log else "read its output"

    def _log(self, fd: int, is_error: bool) -> NodeLog:
        """Return the log of one of the node's streams, which owns the descriptor."""
        return NodeLog(self.place, fd, is_error, self._launch.log_dir)


def tell_all(members: Iterable[Member], order: object) -> None:
    """Send an order to every node that listens."""
    for member in members:
        if member.listening:
            member.tell(order)


def exit_status(code: int | None) -> str:
    """Describe how a process ended, by its exit code."""
    if code is not None and code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it left with exit code {code}"


def kill_group(pid: int) -> bool:
    """Kill a process and its group; False if it has no group of its own yet."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
