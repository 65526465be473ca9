"""Steps that run at the same time, each on a thread, except where an order is required.

`Overlap.forward` starts the steps that wait for no other. A thread that finishes a step decrements
the counts of its followers, continues with one that became ready, and starts other threads for the
rest. The calling thread only waits, so that it handles a signal at once.
"""

import enum
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence

from muster.errors import RunCancelled
from muster.framework.context import Context
from muster.framework.races import CURRENT_WRITER, KeyWriter, Writes, warn_of_races
from muster.framework.scope import Scope
from muster.framework.signals import next_message
from muster.framework.step import Open, Step, forward

_log = logging.getLogger("muster")

_PATIENCE_S = 10.0
"""How long steps may take to stop before a warning names them."""


class _Wake(enum.Enum):
    """What wakes the caller of a group. A signal wakes it too, as an exception."""

    ALL_HOME = enum.auto()
    FAILURE = enum.auto()


class Overlap:
    """A set of steps with an order between some of them.

    Args:
        steps: The steps, in order of use.
        after: For each step, the indices of the earlier steps that it waits for.
    """

    def __init__(self, steps: Sequence[Step], after: Sequence[Sequence[int]]) -> None:
        self.steps = steps
        self.waits_for = [len(set(earlier)) for earlier in after]
        self.followers: list[list[int]] = [[] for _ in steps]
        self._all_before: list[set[int]] = []  # all predecessors of a step, direct or not
        for number, earlier in enumerate(after):
            self._all_before.append(
                set(earlier).union(*(self._all_before[each] for each in earlier))
            )
            for each in set(earlier):
                self.followers[each].append(number)
        self._warned: set[tuple[object, int, int]] = set()

    def forward(self, ctx: Context, opened: Open, scope: Scope) -> None:
        """Run every step forward and wait for all. `opened` receives the open ones in use order."""
        if not self.steps:
            return
        this_loop = _Round(self, ctx, scope)
        try:
            this_loop.run()
        finally:
            opened.extend(pair for pairs in this_loop.opened for pair in pairs)
        names = [step.name for step in self.steps]
        warn_of_races(this_loop.writes, names, self._ordered, self._warned)

    def _ordered(self, one: int, other: int) -> bool:
        return one in self._all_before[other] or other in self._all_before[one]


class _Round:
    """One forward pass through an `Overlap`."""

    def __init__(self, plan: Overlap, ctx: Context, scope: Scope) -> None:
        self._plan = plan
        self._ctx = ctx
        self._scope = scope
        self._lock = threading.Lock()
        self._waits_for = list(plan.waits_for)
        self._ready = deque(n for n, count in enumerate(plan.waits_for) if count == 0)
        self._workers = 0
        self._on_their_way = 0  # workers started for a ready step that they have not taken yet
        self._running: set[int] = set()
        self._failed_here = False
        self._news: queue.SimpleQueue[_Wake | BaseException] = queue.SimpleQueue()
        self._outer_writer = CURRENT_WRITER.get()
        self.opened: list[Open] = [[] for _ in plan.steps]
        self.writes: Writes = {}

    def run(self) -> None:
        """Return when every step has run; raise when all have run or stopped."""
        with self._scope.signals.as_messages(self._news):
            with self._lock:
                self._start_workers(len(self._ready))
                alone = self._workers == 0
            if not alone:
                self._wait_until_all_are_home()
        if alone:
            # No thread is free; the steps around this group occupy some. The caller works itself,
            # and then waits for the threads that became free meanwhile and joined in.
            self._workers = self._on_their_way = 1
            self._work(lambda: None)
            with self._scope.signals.as_messages(self._news):
                self._wait_until_all_are_home()
        self._raise_failure()

    def _wait_until_all_are_home(self) -> None:
        stopping = False
        signal: BaseException | None = None
        while True:
            try:
                news = next_message(self._news, _PATIENCE_S if stopping else None)
            except queue.Empty:
                self._name_stragglers()
                continue
            if news is _Wake.ALL_HOME:
                break
            stopping = True
            if isinstance(news, BaseException):
                if signal is not None:
                    self._scope.signals.abandoned = True
                    raise news
                signal = news  # raised only when no step is running any more
                self._scope.fail(signal, self._ctx)
        if signal is not None:
            raise signal

    def _name_stragglers(self) -> None:
        with self._lock:
            names = ", ".join(repr(self._plan.steps[each].name) for each in sorted(self._running))
        _log.warning("waiting for %s to stop: long work must check ctx.finish", names)

    def _raise_failure(self) -> None:
        """Raise this group's failure, or RunCancelled if another's failure stopped it."""
        if self._scope.failure is None:
            return
        if self._failed_here:
            raise self._scope.failure
        raise RunCancelled(
            "steps that overlap were stopped", "another middleware failed", "let the exception pass"
        )

    def _start_workers(self, wanted: int) -> None:
        """Start up to `wanted` threads for ready steps. The caller holds the lock."""
        for _ in range(wanted):
            if not self._scope.crew.start(self._work):
                return
            self._workers += 1
            self._on_their_way += 1

    def _work(self, go_home: Callable[[], None]) -> None:
        number: int | None = self._take_first()
        while number is not None:
            self._do(number)
            number = self._take_next(number)
        go_home()
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._workers -= 1
            last = self._workers == 0
        if last:
            self._news.put(_Wake.ALL_HOME)

    def _take_first(self) -> int:
        with self._lock:
            self._on_their_way -= 1
            number = self._ready.popleft()
            self._running.add(number)
        return number

    def _take_next(self, finished: int) -> int | None:
        """Make ready the steps that only waited for `finished`; take one if no thread will."""
        with self._lock:
            self._running.discard(finished)
            for follower in self._plan.followers[finished]:
                self._waits_for[follower] -= 1
                if self._waits_for[follower] == 0:
                    self._ready.append(follower)
            unclaimed = len(self._ready) - self._on_their_way
            if unclaimed <= 0:
                return None
            number = self._ready.popleft()
            self._running.add(number)
            self._start_workers(unclaimed - 1)
        return number

    def _do(self, number: int) -> None:
        if self._scope.failure is not None:
            return  # the run is stopping: never start this step
        token = CURRENT_WRITER.set(KeyWriter(self.writes, number, self._outer_writer))
        try:
            forward((self._plan.steps[number],), self._ctx, self.opened[number], self._scope)
        except BaseException as error:
            self._scope.fail(error, self._ctx)
            self._failed_here = self._failed_here or self._scope.failure is error
            self._news.put(_Wake.FAILURE)
        finally:
            CURRENT_WRITER.reset(token)
