"""`Task`: the training loop. Its core is `run` and `_one_loop`."""

from __future__ import annotations

import itertools
import operator
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from muster.errors import (
    MiddlewareError,
    MusterWarning,
    OptionError,
    RunCancelled,
    TaskError,
)
from muster.framework import misuse
from muster.framework.context import Context, next_context, recast, shared_keys
from muster.framework.events import Events
from muster.framework.group import Group
from muster.framework.labels import (
    parse_labels,
)
from muster.framework.names import name_of
from muster.framework.node import Finish, Received, TaskLink, current_node
from muster.framework.overlap import Overlap
from muster.framework.races import TrackedContext
from muster.framework.router import Router
from muster.framework.scope import Scope
from muster.framework.step import InTurn, Middleware, Open, Program, back, close
from muster.framework.task_events import TaskEvents
from muster.framework.uses import StepWrapper, Uses


class Task(TaskEvents):
    """A training loop made of middleware.

    Args:
        async_mode: Start all middleware of a loop together, each on a thread, and wait for all.
        n_async_workers: Maximum number of threads; by default one for each middleware.
        labels: Labels of this task, in addition to the automatic ones.
    """

    def __init__(
        self,
        async_mode: bool = False,
        n_async_workers: int | None = None,
        labels: Iterable[str] | None = None,
    ) -> None:
        if not isinstance(async_mode, bool):
            raise OptionError(
                f"async_mode={async_mode!r} is not possible",
                "it must be True or False",
                "Task(True)",
            )
        if n_async_workers is not None:
            n_async_workers = _count("n_async_workers", n_async_workers, 1, "n_async_workers=4")
        own = () if labels is None else parse_labels("labels", labels)
        self.ctx = Context()
        """The context of the current loop, or of the last loop when the task is not running."""
        self._async_mode = async_mode
        self._n_async_workers = n_async_workers
        self._overlaps = async_mode
        self._events = Events()
        self._scope = None
        self._told_to_finish: Finish | None = None
        self._agreed = False
        self._told_in_time = False
        self._link = None
        node = current_node()
        if node is None:
            self.router = Router.alone(async_mode, own)
        else:
            self.router = Router.at(node.place, async_mode, own)
            self._link = node.open_task(self._events, self._finish_from_outside)
        self._uses = Uses(self.router.labels, is_alone=self._link is None)
        self._idle = threading.Event()
        self._idle.set()
        self._ended: str | None = None
        self._leaving = False

    # ---- building a program

    def use(
        self,
        fn: Middleware,
        filter_labels: Iterable[str] | None = None,
        after: Middleware | Sequence[Middleware] | None = None,
    ) -> Self:
        """Add a middleware to the end of the loop.

        Args:
            fn: A function of one argument, ctx; a generator function, whose code after the `yield`
                runs on the way back; an `async def`; or an object with `__call__`.
            filter_labels: Run `fn` only on nodes with at least one of these labels; globs work.
            after: In async mode, start `fn` only when these middleware, used earlier, are done.
        """
        self._refuse_while_running("use()")
        self._uses.add(fn, filter_labels, after)
        return self

    def use_step_wrapper(self, wrapper: StepWrapper) -> Self:
        """Wrap every middleware, those used before and after this call. The first is innermost."""
        self._refuse_while_running("use_step_wrapper()")
        if not callable(wrapper):
            raise MiddlewareError(
                f"use_step_wrapper() got {wrapper!r}, which cannot be called",
                "a wrapper takes a middleware and returns one",
                "task.use_step_wrapper(StepTimer(print_per_step=100))",
            )
        self._uses.wrappers.append(wrapper)
        bind = getattr(wrapper, "bind", None)
        if bind is not None:
            bind(self)
        return self

    def serial(self, *members: Middleware) -> Middleware:
        """Combine middleware into one that runs them one after the other.

        A middleware that calls the group itself has to pass on the rest: `yield from group(ctx)`.
        """
        return self._group(
            "serial", members, lambda ready: InTurn([self._uses.step(fn) for fn in ready])
        )

    def parallel(self, *members: Middleware) -> Middleware:
        """Combine middleware into one that runs them at the same time and waits for all of them."""
        self._overlaps = True
        return self._group(
            "parallel",
            members,
            lambda ready: Overlap([self._uses.step(fn) for fn in ready], [()] * len(ready)),
        )

    # ---- the loop

    def run(self, max_step: int | None = None, end: str = "all") -> Context:
        """Loop until `ctx.finish` is set, at most `max_step` times. Return the last context.

        Args:
            max_step: Maximum number of loops; None for no limit.
            end: In a parallel run, what ends with this node: `all` nodes, or its `own` loop only.
                `agreed` is `own`, and in addition no other node ends this loop: the nodes of a
                `Team` make sure that all of them end in the same loop, by reading `told_to_finish`.
        """
        max_step = self._check_can_run(max_step, end)
        if max_step == 0:
            return self.ctx
        self._agreed = end == "agreed"
        program = self._uses.program(overlaps=self._async_mode)
        with self._running() as scope, self._linked(end):
            if self._link is not None and self._uses and not self._uses.has_work():
                # Empty loops would reach max_step almost at once and so end the run of every node.
                self._link.wait_for_finish()
            for loop in itertools.count(1):
                told = self._told_to_finish is not None and not self._agreed
                if told:
                    self.ctx.finish = True
                is_last = loop == max_step or self._leaving or told
                self._one_loop(program, scope, is_last)
                if self._link is not None:
                    self._share(self._link)
                if is_last or self._is_finished():
                    break
                self.ctx = next_context(self.ctx)
        return self.ctx

    def _is_finished(self) -> bool:
        """Whether the loop that just ended is the last.

        It is not if an outside request came so late that code after a `yield` may have missed it.
        """
        in_time = self._told_to_finish is None or self._told_in_time or self._agreed
        return self.ctx["finish"] and in_time

    def _one_loop(self, program: Program, scope: Scope, is_last: bool) -> None:
        ctx = self.ctx
        opened: Open = []
        started = time.perf_counter()
        try:
            program.forward(ctx, opened, scope)
            if scope.failure is not None:
                raise scope.failure  # a middleware caught it, but others were already told to stop
            if is_last:
                # Before the way back, so that code after a `yield` can do the final work.
                ctx.finish = True
            self._told_in_time = self._told_to_finish is not None
            back(opened, ctx, scope)
        except BaseException as error:
            close(opened, error, scope)
            raise
        if self._uses.wrappers:
            seconds = time.perf_counter() - started
            for wrapper in self._uses.wrappers:
                end_loop = getattr(wrapper, "end_loop", None)
                if end_loop is not None:
                    end_loop(ctx, seconds)

    @contextmanager
    def _running(self) -> Iterator[Scope]:
        """Own threads, event loop and signals during the loop; then emit `exit` and end them."""
        scope = Scope(self._events, self.router.node_id, self._n_async_workers)
        if self._overlaps:
            self.ctx = recast(self.ctx, TrackedContext)
        with scope.signals.installed():
            try:
                self._scope = scope
                self._idle.clear()
                self._ended = "it has run"
                yield scope
            except BaseException as error:
                loop = self.ctx.total_step
                self._ended = f"its run ended with {type(error).__name__} in loop {loop}"
                raise
            finally:
                try:
                    self._events.emit_here("exit", ((), {}))
                finally:
                    scope.close()
                    self._scope = None
                    self._idle.set()

    # ---- other nodes

    @property
    def parallel_ctx(self) -> Received:
        """The values that other nodes shared: the newest value of every key."""
        if self._link is None:
            raise TaskError(
                "task.parallel_ctx is not available",
                "this task runs on its own: there is no other node to share with",
                "Parallel.runner(n_parallel_workers=2)(main), or check task.router.is_active",
            )
        return self._link.received

    @property
    def told_to_finish(self) -> Finish | None:
        """Why another node, or the supervisor, ends this run; None if neither does."""
        return self._told_to_finish

    @contextmanager
    def _linked(self, end: str) -> Iterator[None]:
        """Begin and end the loop together with the same task on other nodes."""
        link = self._link
        if link is None:
            yield
            return
        try:
            link.meet(self._uses.as_others_see_them(), self.router.labels)
            try:
                yield
            except RunCancelled:  # a wait for an event that can no longer come
                if self._told_to_finish is None:
                    raise
            if end == "all":
                link.finish()
        finally:
            link.close()

    def _share(self, link: TaskLink) -> None:
        ctx = self.ctx
        named = shared_keys(ctx)
        if named is None:
            link.share({key: value for key, value in ctx.items() if key != "finish"})
        else:
            link.share({key: ctx[key] for key in named if key in ctx})

    def _finish_from_outside(self, finish: Finish) -> None:
        # The request first, then the context: a loop that begins in between checks the request.
        self._told_to_finish = finish
        if self._agreed:
            return
        self.ctx.finish = True
        self._events.cancel()

    # ---- with Task() as task

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # `run` stops everything it started before it returns. But `run` may still be active in
        # another thread, and a thread may wait for an event of a task that never ran.
        self._ended = self._ended or "its with block was left"
        self._leaving = True
        if not self._idle.is_set():
            self.ctx.finish = True
            self._idle.wait()
        self._events.cancel()

    # ---- groups

    def _group(
        self,
        kind: str,
        members: tuple[Middleware, ...],
        build: Callable[[tuple[Middleware, ...]], Program],
    ) -> Group:
        if not members:
            raise MiddlewareError(
                f"task.{kind}() got no middleware",
                "it combines several middleware into one",
                f"task.{kind}(collect, train)",
            )
        for each in members:
            misuse.check_middleware(each, f"{kind}()")
        name = f"{kind}({', '.join(name_of(each) for each in members)})"
        return Group(name, members, build, self._current_scope)

    def _current_scope(self) -> Scope:
        if self._scope is None:
            raise TaskError(
                "a serial or parallel group was called while its task does not run",
                "its members run on the threads of the task that made it",
                "task.use(group), and call it only from middleware of the same task",
            )
        return self._scope

    # ---- validation

    def _refuse_while_running(self, what: str) -> None:
        if self._scope is not None:
            raise TaskError(
                f"{what} was called while the task runs",
                "the change would apply to some steps of the current loop and not to others",
                f"call {what} before task.run()",
            )

    def _check_can_run(self, max_step: int | None, end: str) -> int | None:
        if end not in ("all", "own", "agreed"):
            raise OptionError(
                f"end={end!r} is not possible",
                "it must be 'all', 'own' or 'agreed'",
                "task.run(end='own')",
            )
        if max_step is not None:
            max_step = _count("max_step", max_step, 0, "task.run(max_step=int(1e6))")
        if self._scope is not None:
            raise TaskError(
                "run() was called while the task runs",
                "a task has one loop",
                "task.serial(...), to put several middleware into one",
            )
        if self._ended is not None:
            raise TaskError(
                "this task is finished and cannot run again",
                self._ended,
                "make a new Task() and use the same middleware",
            )
        if self._link is None and not self._uses.has_work():
            here = ", ".join(sorted(self.router.labels))
            why = f"the labels here are: {here}" if self._uses else "nothing was used"
            if max_step is None:
                raise TaskError(
                    "run() would loop forever: no middleware runs here",
                    why,
                    "task.use(fn) before task.run(), or task.run(max_step=...)",
                )
            if self._uses and max_step > 0:
                warnings.warn(f"no middleware runs here: {why}", MusterWarning, stacklevel=3)
        return max_step


def _count(option: str, value: Any, at_least: int, example: str) -> int:
    """Return `value` as an int (NumPy integers are accepted); raise OptionError otherwise."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < at_least:
        raise OptionError(
            f"{option}={value!r} is not possible",
            f"it must be a whole number, {at_least} or more",
            example,
        )
    return number
