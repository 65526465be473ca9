"""`Supervisor`: starts the nodes of a run, watches them, replaces them, ends them.

    run -> one selector: pipes of the nodes, their exits, their output, signals, the next deadline

The supervisor moves no data of the program. All state of a node is in its `Member`, and only the
`Member` knows how to start and end the node: the same supervisor serves every engine. Nodes that
come and go during a run are the subject of `elastic.py`.
"""

import selectors
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from muster.engines.base import Alarm, Launch
from muster.engines.elastic import ElasticNodes
from muster.engines.member import Member, tell_all
from muster.engines.orders import (
    AtRun,
    End,
    Finishing,
    FromDriver,
    Gone,
    Listening,
    Present,
    Raised,
    Replaced,
    Returned,
    ToDriver,
)
from muster.engines.progress import LOOPING, SAVING, STARTING, WAITING, ProgressPage, Watch
from muster.engines.rendezvous import Rendezvous
from muster.engines.stop_signals import signals_as_bytes
from muster.errors import MusterError, NodeError
from muster.framework.driver import DriverLink, StopSignal
from muster.framework.node import Finish

_LEAVING = 2.0
"""Seconds beyond the grace time in which a node logs what keeps it from ending."""
_SAVE_SECONDS = 600.0
"""Maximum seconds without progress during a save."""
_WATCH_EVERY = 0.1
"""Maximum seconds between two reads of the progress page."""


class Supervisor:
    """Runs one program.

    Args:
        launch: The program.
        members: Its nodes, made by an engine.
        page: Where nodes count their progress.
        alarm: Reports the loss of something that all nodes depend on; None if that cannot happen.
    """

    def __init__(
        self,
        launch: Launch,
        members: Sequence[Member],
        page: ProgressPage,
        alarm: Alarm | None = None,
    ) -> None:
        self._launch = launch
        self._page = page
        self._members = members
        self._elastic = ElasticNodes(members)
        self._rendezvous = Rendezvous(self._members)
        self._selector = selectors.DefaultSelector()
        self._alarm = alarm
        self._error: MusterError | None = None
        self._finishing: Finish | None = None
        self._all_finish = True
        """Whether every node has to end, or only those that a signal asks first."""
        self._end_by = float("inf")
        self._signal: int | None = None
        self._abandoned = False
        """Whether a second signal arrived: then all nodes are killed."""
        self._next_watch = 0.0
        self._replaced = 0
        """Number of nodes that were replaced so far."""

    def run(self) -> list[Any]:
        """Run the program to its end."""
        driver = self._launch.driver
        waking = nullcontext() if driver is None else driver.waking()
        with signals_as_bytes() as signals, waking as calls:
            if signals is not None:
                heard = partial(self._heard_signals, signals)
                self._selector.register(signals, selectors.EVENT_READ, heard)
            if driver is not None and calls is not None:
                asked = partial(self._heard_driver, driver, calls)
                self._selector.register(calls, selectors.EVENT_READ, asked)
            try:
                if self._alarm is not None:
                    fd = self._alarm.fileno()
                    self._selector.register(fd, selectors.EVENT_READ, self._alarmed)
                for member in self._members:
                    self._start(member)
                while not all(member.ended for member in self._members):
                    self._step()
            finally:
                for member in self._members:
                    self._end(member)
                self._selector.close()
        if self._signal is not None:  # a failure while ending does not hide the signal
            left = KeyboardInterrupt() if self._signal == signal.SIGINT else None
            raise left or SystemExit(128 + self._signal)
        if self._error is not None:
            raise self._error
        outcomes = [(member.outcome, member.elastic) for member in self._members]
        return [  # by node id: an elastic node may be absent
            outcome.value if isinstance(outcome, Returned) else None
            for outcome, elastic in outcomes
            if elastic or isinstance(outcome, Returned)
        ]

    def _step(self) -> None:
        timeout = max(0.0, self._next_deadline() - time.monotonic())
        for key, _ in self._selector.select(timeout):
            if key.fd in self._selector.get_map():  # an earlier event may have closed it
                key.data()
        self._keep_time()

    # ---- nodes

    def _start(self, member: Member) -> None:
        member.start()
        register = partial(self._selector.register, events=selectors.EVENT_READ)
        register(member.pipe.fileno(), data=partial(self._on_message, member))
        register(member.sentinel, data=partial(self._on_exit, member))
        for log in member.logs:
            register(log.fd, data=partial(self._show, log))

    def _on_message(self, member: Member) -> None:
        try:
            order = member.pipe.recv()
        except (EOFError, OSError):
            self._selector.unregister(member.pipe.fileno())
            return
        except Exception as error:  # the result cannot be unpickled here
            order = Raised.of(error)
        self._handle(member, order)

    def _handle(self, member: Member, order: object) -> None:
        if isinstance(order, Listening):
            present = [
                (other.place.node_id, other.place.incarnation)
                for other in self._members
                if other is not member and other.listening
            ]
            member.listening, member.away = True, False
            for absence in self._elastic.absences(member):
                member.tell(absence)
            member.tell(Present(tuple(present)))
            if self._finishing is not None and self._is_to_end(member):
                member.tell(self._end_order())
            if self._replaced:
                member.tell(Replaced(self._replaced))
        elif isinstance(order, AtRun):
            self._works_again(member)
            self._rendezvous.arrive(member, order)
        elif isinstance(order, Finishing):
            self._all_finish = True
            self._finish(Finish(order.by), tell=False)
            self._elastic.pass_on(self._end_order(), sender=member)
        elif isinstance(order, ToDriver):
            if self._launch.driver is not None:
                self._launch.driver.deliver(order.message)
        elif isinstance(order, Returned):
            self._works_again(member)
            member.outcome, member.done_at = order, time.monotonic()
        elif isinstance(order, Raised):
            member.done_at = time.monotonic()
            member.keep(order.traceback)
            if member.has_joined:
                member.outcome = order
                self._fail(member.raised(order))
            else:  # the cause may be the newcomer's machine: the others continue
                member.why_not_joined = f"it raised {order.summary}"

    def _on_exit(self, member: Member) -> None:
        """Handle the end of a node's process: restart the node, or end the run."""
        while member.pipe.poll():
            try:
                self._handle(member, member.pipe.recv())
            except (EOFError, OSError):
                break
        status = member.why_not_joined or member.hung or member.exit_status()
        failure = member.failure(status)
        self._forget(member)
        member.close()
        if member.outcome is not None or (member.elastic and self._is_over()):
            self._gone(member)
        elif self._elastic.leaves(member):
            if not self._elastic.leave(member, failure):
                self._gone(member)
        elif not self._needs(member):
            self._lose(member, status)
        elif given_up := member.restart_policy.record_failure(failure):
            self._lose(member, given_up)
        else:
            now = time.monotonic()
            if member.replaced is not None:
                self._say_replaced(member, "it ended again before it had resumed work")
            member.replaced = now, status
            member.restart_at = now + member.restart_policy.back_off()
        self._rendezvous.look()

    def _is_over(self) -> bool:
        """Whether no one waits for an elastic node any more."""
        is_ending = self._finishing is not None or self._error is not None or self._abandoned
        return is_ending or self._elastic.others_ended

    def _lose(self, member: Member, why: str) -> None:
        """End the run because a node failed and is not restarted."""
        self._gone(member)
        self._fail(member.lost("hung" if member.hung else "killed", why))

    def _forget(self, member: Member) -> None:
        known = self._selector.get_map()
        for fd in (member.pipe.fileno(), member.sentinel, *(log.fd for log in member.logs)):
            if fd in known:
                self._selector.unregister(fd)

    def _show(self, log: Any) -> None:
        if not log.read() and log.fd in self._selector.get_map():
            self._selector.unregister(log.fd)

    def _needs(self, member: Member) -> bool:
        """Whether a node that failed is still needed.

        After a signal it is: nodes in step can only end, and save, together. But not if the node
        hung, or if the run has failed or was abandoned.
        """
        if member.policy == "stop" or self._error is not None or self._abandoned:
            return False
        if self._finishing is None:
            return True
        return self._finishing.signal is not None and member.hung is None

    def _replace(self, member: Member) -> None:
        """Restart a node, and tell the others."""
        if member.has_joined:
            self._count_replaced()
        self._start(member)

    def _count_replaced(self) -> None:
        self._replaced += 1
        tell_all(self._members, Replaced(self._replaced))

    def _works_again(self, member: Member) -> None:
        if not member.has_joined:
            self._elastic.join(member)
            if member.has_left:
                self._count_replaced()
        elif member.replaced is not None:
            since = time.monotonic() - member.replaced[0]
            self._say_replaced(member, f"at work again after {since:.2f} s")

    def _say_replaced(self, member: Member, what_came_of_it: str) -> None:
        assert member.replaced is not None
        why, member.replaced = member.replaced[1], None
        member.say(f"was replaced: {why}; {what_came_of_it}")

    def _gone(self, member: Member) -> None:
        """Mark a node as ended for good, and tell the others, which may wait for it."""
        member.ended = True
        tell_all(self._members, Gone(member.place.node_id))
        if self._elastic.others_ended:
            self._elastic.end_absent()
        if not self._all_finish and all(m.ended for m in self._members if self._is_to_end(m)):
            self._finish_all()  # the nodes that should have ended the run did not

    def _end(self, member: Member) -> None:
        if member.alive:
            member.kill()
            member.join()
            self._forget(member)
            member.close()

    # ---- the end of the run

    def _fail(self, error: NodeError) -> None:
        """Keep the first failure, and ask the other nodes to end."""
        if self._error is None:
            self._error = error
            self._end_by = time.monotonic() + self._launch.grace
        self._all_finish = True
        self._finish(Finish(f"node {error.node} {error.cause}"), tell=True)

    def _alarmed(self) -> None:
        """End the run. Nodes that can be reached finish by themselves, and save.

        No node is replaced from now on, and nodes that do not answer are killed after `grace`.
        """
        assert self._alarm is not None
        self._selector.unregister(self._alarm.fileno())
        if self._error is None:
            self._error = self._alarm.error()
            self._end_by = time.monotonic() + self._launch.grace
        self._all_finish = True
        # As after a signal: nodes in step wait for each other, and end together.
        self._finish(Finish(str(self._error.args[0]), signal.SIGTERM), tell=True)

    def _finish(self, finish: Finish, tell: bool) -> None:
        if self._finishing is not None and self._finishing.signal == finish.signal:
            tell = tell and self._error is not None
        if self._finishing is None or finish.signal is not None:
            self._finishing = finish
        for member in self._members:
            if member.restart_at is not None and not self._needs(member):
                member.restart_at = None
                self._gone(member)
            elif tell and member.listening and self._is_to_end(member):
                member.tell(self._end_order(finish))
        self._elastic.end_absent()

    def _finish_all(self) -> None:
        """Ask the nodes to finish that the signal did not reach."""
        self._all_finish = True
        tell_all(self._members, self._end_order())

    def _is_to_end(self, member: Member) -> bool:
        """Whether this node is asked to finish when the run has to end."""
        return self._all_finish or member.place.node_id in self._launch.on_signal

    def _end_order(self, finish: Finish | None = None) -> End:
        finish = finish or self._finishing
        assert finish is not None
        return End(replace(finish, is_first=not self._all_finish))

    # ---- time

    def _next_deadline(self) -> float:
        times = (at for m in self._members for at in (m.restart_at, m.kill_at) if at is not None)
        return min(self._next_watch, self._end_by, *times)

    def _keep_time(self) -> None:
        now = time.monotonic()
        for member in self._members:
            if member.restart_at is not None and member.restart_at <= now:
                self._replace(member)
            elif now >= self._next_watch:
                self._watch(member)
            if member.kill_at is not None and member.kill_at <= now:
                member.kill()
                member.kill_at = float("inf")
        if now >= self._next_watch:
            limit = min(self._launch.hang_after, self._launch.start_within, self._launch.grace)
            self._next_watch = now + min(_WATCH_EVERY, limit / 4)
        if now >= self._end_by:
            self._end_by = float("inf")
            for member in self._members:
                if self._is_saving(member):  # its grace time begins after the save
                    self._end_by = now + self._launch.grace
                else:
                    member.kill()

    def _watch(self, member: Member) -> None:
        if not member.alive or member.kill_at is not None:
            return
        if member.elastic and not member.has_place:
            member.watch = Watch()
            return
        now = time.monotonic()
        if member.done_at is not None:
            if now > member.done_at + self._launch.grace + _LEAVING:
                member.kill_at = now
                member.say("did not exit after its program had ended: muster killed it")
            return
        row = self._page.read(member.place.node_id)
        seconds, state = member.watch.seconds_without_progress(row.counter), row.state
        if state == STARTING:
            limit = self._launch.start_within
        elif (
            self._finishing is not None and self._is_to_end(member) and state in (LOOPING, WAITING)
        ):
            limit = min(self._launch.grace, self._launch.hang_after)
        elif state == SAVING:
            limit = max(_SAVE_SECONDS, self._launch.hang_after)
        else:
            limit = self._launch.hang_after
        if seconds > limit:
            member.hung = f"it made no progress for {seconds:.1f} s"
            member.kill_at = now + member.ask_where()

    def _is_saving(self, member: Member) -> bool:
        return member.alive and self._page.read(member.place.node_id).state == SAVING

    # ---- signals

    def _heard_signals(self, reader: socket.socket) -> None:
        for number in reader.recv(64):
            self._heard_signal(number)

    def _heard_driver(self, driver: DriverLink, reader: socket.socket) -> None:
        """Pass the driver's messages on to node 0; obey its signals."""
        reader.recv(4096)
        for message in driver.take():
            if isinstance(message, StopSignal):
                self._heard_signal(message.number)
            elif self._members[0].listening:
                self._members[0].tell(FromDriver(message))

    def _heard_signal(self, number: int) -> None:
        """Ask the nodes to finish at the first signal; kill them at the second."""
        if self._signal is not None:
            self._abandoned = True
            self._finish(Finish(signal.Signals(number).name, number), tell=False)
            for member in self._members:
                member.kill()
        else:
            self._signal = number
            if self._finishing is None:
                self._all_finish = len(self._launch.on_signal) == len(self._members)
            self._finish(Finish(signal.Signals(number).name, number), tell=True)
