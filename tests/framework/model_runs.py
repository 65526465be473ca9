"""Runs a random program of test_model.py for real, and writes down what happened."""

import asyncio
import functools
import os
import threading
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any
from unittest import mock

import pytest
from model_programs import SHAPES, Event, Leaf

import muster
from muster import MusterWarning, Task

# ---------------------------------------------------------------------------------- the real thing


@dataclass
class Log:
    """What a run left behind."""

    events: list[Event] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)  # as they were raised
    exits: list[tuple] = field(default_factory=list)  # (number of events so far, ctx.finish)
    ctx: Any = None  # the last one that a middleware was given
    returned: Any = None
    error: BaseException | None = None
    caught: list[warnings.WarningMessage] = field(default_factory=list)

    def warnings(self, of_muster=True):
        ours = [each for each in self.caught if (each.category is MusterWarning) is of_muster]
        return [str(each.message) for each in ours]

    def exit(self):
        self.exits.append((len(self.events), self.ctx is None or self.ctx.finish))


class Meeting:
    """Two leaves that, in the first loop, go on only when both are there."""

    def __init__(self, *names, seconds=10):
        self.arrived = {name: threading.Event() for name in names}
        self.seconds = seconds

    def others(self, name, loop):
        if loop or name not in self.arrived:
            return []
        self.arrived[name].set()
        return [event for other, event in self.arrived.items() if other != name]

    def wait(self, name, loop):
        for event in self.others(name, loop):
            assert event.wait(self.seconds), f"{name} waited in vain"

    async def wait_async(self, name, loop):
        late = time.monotonic() + self.seconds
        for event in self.others(name, loop):
            while not event.is_set():
                assert time.monotonic() < late, f"{name} waited in vain"
                await asyncio.sleep(0.001)


NOBODY = Meeting()
PAUSE = 0.0003  # to mix the threads up; nothing relies on it


def value_of(leaf, phase, loop):
    return f"{leaf.name} {phase} {loop}"


def act(ctx, action, key, value):
    """One action on the real context, and what came of it."""
    try:
        match action:
            case "assign":
                setattr(ctx, key, value)
            case "store":
                ctx[key] = value
            case "setdefault":
                return ctx.setdefault(key, "default")
            case "keep":
                ctx.keep(key)
            case "drop":
                ctx.drop(key)
            case "attribute":
                return getattr(ctx, key)
            case "item":
                return ctx[key]
            case "get":
                return ctx.get(key, "nothing")
    except muster.AbsentKeyError as error:
        assert isinstance(error, AttributeError if action == "attribute" else KeyError)
        return str(error)


def build(leaf, log, error=RuntimeError, meeting=NOBODY):
    """A middleware that does what the leaf says and logs it."""

    def note(ctx, phase, seen=None):
        log.events.append(Event(leaf.name, phase, ctx.total_step, seen))

    def begin(ctx, phase):
        log.ctx, loop = ctx, ctx.total_step
        if phase == "forward":
            note(ctx, "start", {key: ctx[key] for key in leaf.keys if key in ctx})
        if leaf.finish == (phase, loop):
            ctx.finish = True
        value, todo = value_of(leaf, phase, loop), getattr(leaf, phase)
        return ctx.finish, tuple(act(ctx, action, key, value) for action, key in todo)

    def end(ctx, phase, seen):
        if leaf.fault != (phase, ctx.total_step):
            return note(ctx, phase, seen)
        note(ctx, "raise", seen)
        fault = error(leaf.name)
        log.faults.append(fault)
        raise fault

    def forward(ctx):
        seen = begin(ctx, "forward")
        meeting.wait(leaf.name, ctx.total_step)
        time.sleep(PAUSE * leaf.pauses)
        end(ctx, "forward", seen)

    async def forward_async(ctx):
        seen = begin(ctx, "forward")
        try:
            await meeting.wait_async(leaf.name, ctx.total_step)
            for _ in range(leaf.pauses):
                await asyncio.sleep(PAUSE)
        except asyncio.CancelledError:
            note(ctx, "cancelled", seen)
            raise
        end(ctx, "forward", seen)

    # The last argument is ctx; the one before it, if any, is self.

    def plain(*args):
        forward(args[-1])

    async def coroutine(*args):
        await forward_async(args[-1])

    def generator(*args, option="not needed"):
        ctx = args[-1]
        forward(ctx)
        if not leaf.opens(ctx.total_step):
            return
        try:
            yield
            end(ctx, "back", begin(ctx, "back"))
            if leaf.fault == ("twice", ctx.total_step):
                yield
        except GeneratorExit:
            note(ctx, "closed")
            raise

    async def async_generator(*args, option="not needed"):
        ctx = args[-1]
        await forward_async(ctx)
        if not leaf.opens(ctx.total_step):
            return
        try:
            yield
            await asyncio.sleep(0)
            end(ctx, "back", begin(ctx, "back"))
            if leaf.fault == ("twice", ctx.total_step):
                yield
        except GeneratorExit:
            note(ctx, "closed")
            raise

    functions = dict(zip(SHAPES, [plain, generator, coroutine, async_generator], strict=True))
    function = functions[leaf.shape]
    function.__name__ = function.__qualname__ = leaf.name
    match leaf.dress:
        case "object":
            return type(leaf.name, (), {"__call__": function})()
        case "method":
            return MethodType(function, object())
        case "partial":
            return functools.partial(function, "an argument")
    return function


@contextmanager
def task_of(program, log, meeting=NOBODY):
    """A task that uses all of the program; what it warns about goes to the log."""

    def make(node):
        if isinstance(node, Leaf):
            return build(node, log, program.error, meeting)
        return getattr(task, node.kind)(*(make(child) for child in node.children))

    environment = mock.patch.dict(os.environ, MUSTER_LABELS=",".join(program.environment))
    mode = {"async_mode": program.async_mode, "n_async_workers": program.workers}
    with warnings.catch_warnings(record=True) as log.caught, environment:
        warnings.simplefilter("always")
        with Task(**mode, labels=list(program.labels) or None) as task:
            task.on("exit", log.exit)
            used = []
            for use in program.uses:
                used.append(make(use.node))
                others = [used[place] for place in use.after]
                after = {"after": others[0] if len(others) == 1 else others} if others else {}
                assert task.use(used[-1], filter_labels=use.filter_labels, **after) is task
            yield task


def run(program, meeting=NOBODY):
    """Run the program, and check what holds for every program."""
    log, threads = Log(), threading.active_count()
    with task_of(program, log, meeting) as task:
        try:
            log.returned = task.run(max_step=program.max_step)
        except (Exception, program.error) as error:
            log.error = error
        events = len(log.events)
        assert len(log.exits) == 1
        if log.error is None:
            assert log.exits == [(events, True)], "not after the last way back, or no finish"
            with pytest.raises(muster.MusterError):
                task.run(1)
    assert len(log.events) == events, "something went on after run"
    assert len(log.exits) == 1
    assert threading.active_count() == threads
    return log
