"""`StepTimer`: where the time of a loop goes.

A step wrapper: it measures the time of each middleware, forward and back added up, and receives
the duration of each loop from the task. For overlapping steps, each step's share is relative to the
loop's wall time, so the shares may add up to more than one.

In a parallel run the other nodes send their times to node 0, which shows the times of all nodes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Generator
from time import perf_counter
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any, TextIO

from muster.errors import OptionError
from muster.framework.context import Context
from muster.framework.names import BEING_WRAPPED, name_of
from muster.framework.step import Middleware

if TYPE_CHECKING:
    from rich.table import Table

    from muster.framework.task import Task

_EVENT = "muster.step_timer"


class _Record:
    """Seconds spent: in the current loop, in the last one, and in total."""

    __slots__ = ("last", "spent", "total")

    def __init__(self) -> None:
        self.spent = 0.0
        self.last = 0.0
        self.total = 0.0

    def end_loop(self) -> None:
        self.last = self.spent
        self.total += self.spent
        self.spent = 0.0


class StepTimer:
    """Measures the time of every middleware of a task: `task.use_step_wrapper(StepTimer(100))`.

    Args:
        print_per_step: Print the table every so many loops and after the last; 0 for never.
        file: Where to print the table; standard output by default.
    """

    def __init__(self, print_per_step: int = 100, file: TextIO | None = None) -> None:
        if not isinstance(print_per_step, int) or print_per_step < 0:
            raise OptionError(
                f"print_per_step={print_per_step!r} is not possible",
                "it must be a number of loops, or 0 for never",
                "StepTimer(print_per_step=100)",
            )
        self._print_per_step = print_per_step
        self._file = file
        self._steps: dict[str, _Record] = {}
        self._loop = _Record()
        self._loops = 0
        self._task: Task | None = None
        self._others: dict[int, dict[str, dict[str, float]]] = {}

    def bind(self, task: Task) -> None:
        """Receive the times of other nodes, or send this node's. The task calls this."""
        if task.router.is_active:
            self._task = task
            if task.router.node_id == 0:
                task.on(_EVENT, self._others.__setitem__)

    def __call__(self, fn: Middleware) -> Middleware:
        """Return a middleware that does the same as `fn` and measures its time."""
        record = self._new_record(BEING_WRAPPED.get() or name_of(fn))

        def timed(ctx: Any) -> object:
            started = perf_counter()
            result = fn(ctx)
            if result is None:
                record.spent += perf_counter() - started
                return None
            return _time_rest(result, perf_counter() - started, record)

        return timed

    def end_loop(self, ctx: Context, seconds: float) -> None:
        """Record the time of a whole loop, and print the table if due. The task calls this."""
        self._loops += 1
        self._loop.spent = seconds
        self._loop.end_loop()
        for record in self._steps.values():
            record.end_loop()
        if self._print_per_step and (ctx.finish or self._loops % self._print_per_step == 0):
            self._show()

    def _show(self) -> None:
        task = self._task
        if task is not None and 0 in task.router.peers:
            task.emit(_EVENT, task.router.node_id, self.summary(), only_remote=True)
            return
        from rich.console import Console

        Console(file=self._file).print(self.table())

    def summary(self) -> dict[str, dict[str, float]]:
        """Return `{name: {"last": s, "mean": s, "share": 0..1}}`, times in seconds.

        Only complete loops count, not the current loop or one that failed.
        """
        loops, seconds = max(self._loops, 1), self._loop.total
        return {
            name: {
                "last": record.last,
                "mean": record.total / loops,
                # At most 1, also if a group is used twice and overlaps with itself.
                "share": min(record.total / seconds, 1.0) if seconds else 0.0,
            }
            for name, record in self._steps.items()
        }

    @property
    def loop_seconds(self) -> dict[str, float]:
        """The wall time of whole loops: `{"last": s, "mean": s}`."""
        return {"last": self._loop.last, "mean": self._loop.total / max(self._loops, 1)}

    @property
    def overlap(self) -> float:
        """How many middleware ran at the same time, on average; at most 1 if nothing overlaps."""
        busy = sum(record.total for record in self._steps.values())
        return busy / self._loop.total if self._loop.total else 0.0

    def table(self) -> Table:
        """Return the times as a table for rich to print."""
        from rich.table import Table

        table = Table(title=f"StepTimer after {self._loops} loops", title_justify="left")
        table.add_column("middleware", overflow="fold")
        for heading in ("last", "mean", "share"):
            table.add_column(heading, justify="right", no_wrap=True)
        for name, times in self.summary().items():
            table.add_row(name, *_cells(times))
        overlap = f"{self.overlap:.1f} at once" if self.overlap > 1 else ""
        table.add_section()
        loop = self.loop_seconds
        table.add_row("whole loop", _human(loop["last"]), _human(loop["mean"]), overlap)
        for node, steps in sorted(self._others.items()):
            table.add_section()
            for name, times in steps.items():
                table.add_row(f"node {node}: {name}", *_cells(times))
        return table

    def _new_record(self, name: str) -> _Record:
        unique, number = name, 1
        while unique in self._steps:
            number += 1
            unique = f"{name}#{number}"
        return self._steps.setdefault(unique, _Record())


def _time_rest(rest: object, spent: float, record: _Record) -> object:
    """Continue measuring where a middleware returned an object that still has to run."""
    if isinstance(rest, (GeneratorType, Generator)):
        return _time_generator(rest, spent, record)
    if isinstance(rest, AsyncGeneratorType):
        return _time_async_generator(rest, spent, record)
    if isinstance(rest, Awaitable):
        return _time_awaitable(rest, spent, record)
    record.spent += spent
    return rest


def _time_generator(
    rest: Generator[Any, Any, Any], spent: float, record: _Record
) -> Generator[None, None, None]:
    try:
        while True:
            started = perf_counter()
            for _ in rest:
                break
            else:
                record.spent += spent + perf_counter() - started
                return
            spent += perf_counter() - started
            yield
    finally:
        rest.close()


async def _time_async_generator(
    rest: AsyncGeneratorType[Any, Any], spent: float, record: _Record
) -> AsyncGenerator[None, None]:
    try:
        while True:
            started = perf_counter()
            async for _ in rest:
                break
            else:
                record.spent += spent + perf_counter() - started
                return
            spent += perf_counter() - started
            yield
    finally:
        await rest.aclose()


async def _time_awaitable(rest: Awaitable[Any], spent: float, record: _Record) -> Any:
    started = perf_counter()
    result = await rest
    record.spent += spent + perf_counter() - started
    return result  # the task refuses what is no result of a middleware


def _cells(times: dict[str, float]) -> tuple[str, str, str]:
    return _human(times["last"]), _human(times["mean"]), f"{times['share']:.0%}"


def _human(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds / 1e-6:.1f} us"
