"""Random programs against a plain model of the contract.

Hypothesis makes up a program (middleware of every kind, in groups, with labels, failures and
context keys), muster runs it, and `Walk` goes along the trace with the contract in hand: it refuses
the first event that the contract does not allow there, and knows how `run` must then have ended.
Where the contract leaves one order only (serial mode without `parallel`), one trace alone passes.
"""

import asyncio
import functools
import os
import re
import sys
import threading
import time
import warnings
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import combinations, count, product
from types import MethodType
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import muster
from muster import MusterWarning, Task

# ---------------------------------------------------------------------------------- a program


class Brief:
    """Shows only what is not as usual, so that a failing program can be read."""

    def __repr__(self):
        shown = [(f.name, getattr(self, f.name)) for f in fields(self)]
        usual = {f.name: f.default for f in fields(self)}
        told = [f"{name}={value!r}" for name, value in shown if value != usual[name]]
        return f"{type(self).__name__}({', '.join(told)})"

    def _repr_pretty_(self, printer, cycle):  # what Hypothesis shows
        printer.text(repr(self))


@dataclass(frozen=True, repr=False)
class Leaf(Brief):
    """One middleware. A moment is (phase, loop): ("forward", 2) is before the yield of loop 2."""

    shape: str  # one of SHAPES
    dress: str  # one of DRESSES: what `use` is given
    forward: tuple = ()  # what it does to the context: (action, key), ...
    back: tuple = ()
    fault: tuple | None = None  # the moment when it raises; ("twice", 1): a second yield
    finish: tuple | None = None  # the moment when it sets ctx.finish
    returns_early: tuple = ()  # loops in which a generator does not yield
    pauses: int = 0  # how long its way forward takes
    name: str = ""
    keys: tuple = ()  # those that it looks at when it starts

    @property
    def is_async(self):
        return self.shape.startswith("async")

    def opens(self, loop):
        return self.shape.endswith("generator") and loop not in self.returns_early


@dataclass(frozen=True, repr=False)
class Group(Brief):
    kind: str  # serial, parallel
    children: tuple


@dataclass(frozen=True, repr=False)
class Use(Brief):
    node: Leaf | Group
    filter_labels: tuple | None = None
    after: tuple = ()  # places in Program.uses


@dataclass(frozen=True, repr=False)
class Program(Brief):
    uses: tuple
    max_step: int = 3
    async_mode: bool = False
    workers: int | None = None
    labels: tuple = ()
    environment: tuple = ()  # MUSTER_LABELS
    error: type = RuntimeError  # what a fault raises


class Event(NamedTuple):
    name: str
    phase: str  # start, then forward, raise or cancelled; then back, raise or closed
    loop: int
    seen: Any = None  # what the context looked like


# ---------------------------------------------------------------------------------- strategies

SHAPES = ["plain", "generator", "async", "async generator"]
DRESSES = ["function", "method", "object", "partial"]
ACTIONS = ["assign", "store", "setdefault", "keep", "drop", "attribute", "item", "get"]
KEYS = ["x", "y"]
LABELS = ["red", "blue", "team.one", "team.two"]
FILTERS = [*LABELS, "team.*", "*e*", "[!rb]*", "standalone", "distributed", "async", "node.*", "*"]

LOOPS = [1, 0, 2]
MOMENTS = list(product(["forward", "back"], LOOPS))
TWICE = [("twice", loop) for loop in LOOPS]


def some_of(items, sizes):
    return [each for size in sizes for each in combinations(items, size)]


def seldom(values, otherwise=None, odds=6):
    """One of the values one time in `odds`."""
    return st.sampled_from([otherwise] * (odds - 1) * len(values) + values)


actions = st.lists(st.sampled_from(list(product(ACTIONS, KEYS))), max_size=4).map(tuple)


def leaves(fault_odds=6, shapes_that_fail=SHAPES):
    leaf = st.builds(
        Leaf,
        shape=st.sampled_from(SHAPES),
        dress=st.sampled_from(DRESSES),
        forward=actions,
        back=actions,
        fault=seldom(MOMENTS + TWICE, odds=fault_odds),
        finish=seldom(MOMENTS, odds=8),
        returns_early=seldom(some_of(LOOPS, [1, 2, 3]), (), odds=4),
        pauses=seldom([1, 2, 3], 0, odds=2),
    )
    spared = set(SHAPES) - set(shapes_that_fail)
    return leaf.map(lambda leaf: replace(leaf, fault=None) if leaf.shape in spared else leaf)


def calm_leaves():
    return leaves().map(lambda leaf: replace(leaf, fault=None, finish=None))


def groups(kinds):
    def group(nodes):
        children = st.lists(nodes, min_size=1, max_size=4).map(tuple)
        return st.builds(Group, st.sampled_from(kinds), children)

    return group


def named(node, numbers, own_keys):
    """The same tree with a name for every leaf, and on request with keys that no other leaf has."""
    if isinstance(node, Group):
        return replace(node, children=tuple(named(c, numbers, own_keys) for c in node.children))
    name = f"m{next(numbers)}"
    keys = {key: f"{key}_{name}" if own_keys else key for key in KEYS}
    forward, back = (
        tuple((action, keys[key]) for action, key in way) for way in (node.forward, node.back)
    )
    return replace(node, name=name, keys=tuple(keys.values()), forward=forward, back=back)


def programs(nodes=None, kinds=("serial", "parallel"), own_keys=True, label_odds=6, **given):
    nodes = leaves() if nodes is None else nodes
    trees = st.recursive(nodes, groups(kinds), max_leaves=6) if kinds else nodes
    filters = seldom(some_of(FILTERS, [1, 2]), odds=label_odds)
    some_labels = some_of(LABELS, [0, 1, 2])
    options = {
        "max_step": st.sampled_from([3, 2, 4, 1]),
        "workers": st.sampled_from([None, 1, 2] if given.get("async_mode") else [None]),
        "labels": st.sampled_from(some_labels),
        "environment": seldom(some_labels, (), odds=2),
    } | {name: st.just(value) for name, value in given.items()}

    @st.composite
    def uses(draw):
        numbers, uses = count(), []
        for place in range(draw(st.integers(1, 5))):
            node = named(draw(trees), numbers, own_keys)
            after = draw(st.sampled_from(some_of(range(place), [0, 1, 2])))
            uses.append(Use(node, draw(filters), after))
        return tuple(uses)

    return st.builds(Program, uses(), **options)


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


# ---------------------------------------------------------------------------------- the model


class Saying:
    """Equal to every text that holds one of the phrases."""

    def __init__(self, *phrases):
        self.phrases = phrases

    def __eq__(self, text):
        return isinstance(text, str) and any(phrase in text for phrase in self.phrases)

    def __repr__(self):
        return f"Saying{self.phrases}"


class ModelContext:
    """The context as the contract has it."""

    def __init__(self):
        self.now, self.kept = {}, set()
        self.set_in, self.held_in = {}, {}  # key: the last loop that wrote it, that ended with it
        self.hints_due, self.hints_allowed = set(), set()  # keys that a setdefault warns about

    def begin(self, loop):
        self.loop = loop
        self.held_in.update(dict.fromkeys(self.now, loop - 1))
        self.before = self.now  # what the previous loop ended with
        self.now = {key: value for key, value in self.now.items() if key in self.kept}

    def act(self, action, key, value):
        if action in ("assign", "store") or (action == "setdefault" and key not in self.now):
            if action == "setdefault":
                self.hint(key)
            self.now[key] = "default" if action == "setdefault" else value
            self.set_in[key] = self.loop
        if action == "keep":
            self.kept.add(key)
        if action == "drop":
            self.kept.discard(key)
        if action == "get":
            return self.now.get(key, "nothing")
        if action in ("attribute", "item", "setdefault"):
            return self.now[key] if key in self.now else self.absent(key)

    def follow(self, leaf, phase):
        """What comes of the actions of a leaf."""
        value = value_of(leaf, phase, self.loop)
        return tuple(self.act(action, key, value) for action, key in getattr(leaf, phase))

    def look(self, leaf):
        return {key: self.now[key] for key in leaf.keys if key in self.now}

    def absent(self, key):
        if key not in self.set_in:
            return Saying("never set")
        # For a key that was carried over from the loop that set it: either loop will do.
        set_in = {self.set_in[key], self.held_in[key]}
        return Saying(*(f"set in loop {n} but not kept: call ctx.keep({key!r})" for n in set_in))

    def hint(self, key):
        if self.before.get(key, "default") != "default":
            self.hints_allowed.add(key)
            if self.set_in[key] == self.loop - 1:  # not carried over from further back
                self.hints_due.add(key)


def leaves_of(node):
    if isinstance(node, Leaf):
        return [node]
    return [leaf for child in node.children for leaf in leaves_of(child)]


def is_used(program, use):
    labels = {*program.labels, *program.environment, "standalone"}
    labels |= {"async"} if program.async_mode else set()
    return use.filter_labels is None or any(
        fnmatchcase(label, pattern) for label in labels for pattern in use.filter_labels
    )


def used_leaves(program):
    """The leaves that the labels let run, in order of use."""
    uses = [use for use in program.uses if is_used(program, use)]
    return {leaf.name: leaf for use in uses for leaf in leaves_of(use.node)}


def order_of(program):
    """For every leaf the names of those that must have ended before it may start."""
    before, ends = {}, []  # ends: for every use its leaves and all before them

    def walk(node, earlier):
        if isinstance(node, Leaf):
            before[node.name] = earlier
            return earlier | {node.name}
        ended = earlier
        for child in node.children:
            ended |= walk(child, ended if node.kind == "serial" else earlier)
        return ended

    for place, use in enumerate(program.uses):
        others = use.after if program.async_mode else range(place)
        earlier = frozenset().union(*(ends[other] for other in others))
        ends.append(walk(use.node, earlier) if is_used(program, use) else earlier)
    return before


class Walk:
    """Walks along a trace and refuses the first event that the contract does not allow there."""

    def __init__(self, program, trace):
        self.program, self.events, self.ctx = program, deque(trace), ModelContext()
        self.leaves, self.before = used_leaves(program), order_of(program)
        self.opened, self.failed = set(), set()  # generators at their yield; leaves that raised

    def to_the_end(self):
        for loop in range(self.program.max_step):
            self.loop = loop
            self.ctx.begin(loop)
            self.forward()
            if self.failed or self.back():
                break
        assert not self.opened, f"{self.opened} left open"
        assert not self.events, f"{self.events[0]} after the end"
        return self

    def forward(self):
        running, done, ended = set(), set(), set()
        # Where one has raised, the others may or may not have started, and this loop is the last.
        while self.events and (self.failed or len(done) < len(self.leaves)):
            name, phase, _, seen = event = self.next_event()
            leaf = self.leaves[name]
            fails = leaf.fault == ("forward", self.loop)
            match phase:
                case "start":
                    assert name not in running | ended and self.before[name] <= done, event
                    assert seen == self.ctx.look(leaf), event
                    running.add(name)
                    assert self.workers_suffice(running), event
                case "forward" | "raise" | "cancelled":
                    cancelled = phase == "cancelled" and leaf.is_async and self.failed
                    assert cancelled or phase == ("raise" if fails else "forward"), event
                    assert name in running and self.saw_what_it_must(leaf, *seen), event
                    running.remove(name)
                    ended.add(name)
                    done |= {name} if phase == "forward" else set()
                    self.opened |= {name} if phase == "forward" and leaf.opens(self.loop) else set()
                    self.failed |= {name} if phase == "raise" else set()
                case _:
                    self.close(event)
        assert not running, f"{running} never ended"
        assert self.failed or len(done) == len(self.leaves), f"{self.leaves.keys() - done} not run"

    def back(self):
        """Strictly in reverse; gives whether this loop is the last."""
        finish = self.loop == self.program.max_step - 1
        finish |= any(leaf.finish == ("forward", self.loop) for leaf in self.leaves.values())
        for leaf in [leaf for leaf in reversed(self.leaves.values()) if leaf.name in self.opened]:
            fails, twice = (leaf.fault == (way, self.loop) for way in ("back", "twice"))
            finish |= leaf.finish == ("back", self.loop)
            seen = (finish, self.ctx.follow(leaf, "back"))
            phase = "raise" if fails else "back"
            assert self.next_event() == Event(leaf.name, phase, self.loop, seen)
            self.opened -= set() if twice else {leaf.name}
            if fails or twice:
                self.failed = {leaf.name}
                while self.opened:
                    self.close(self.next_event())
                return True
        return finish

    def next_event(self):
        assert self.events, f"the trace ends in loop {self.loop}"
        assert self.events[0].loop == self.loop and self.events[0].name in self.leaves
        return self.events.popleft()

    def close(self, event):
        """A generator is closed because something raised, and before those it came after."""
        assert event.phase == "closed" and self.failed and event.name in self.opened, event
        assert not any(event.name in self.before[other] for other in self.opened), event
        self.opened.remove(event.name)

    def saw_what_it_must(self, leaf, finish, results):
        """On the way forward, ctx.finish may come from one that overlaps, or from a failure."""
        moment, before = ("forward", self.loop), self.before
        sure = [self.leaves[name] for name in {leaf.name} | before[leaf.name]]
        maybe = [other for name, other in self.leaves.items() if leaf.name not in before[name]]
        must = any(other.finish == moment for other in sure)
        may = any(moment in (other.finish, other.fault) for other in maybe)
        return must <= finish <= may and results == self.ctx.follow(leaf, "forward")

    def workers_suffice(self, running):
        singles = {use.node.name for use in self.program.uses if isinstance(use.node, Leaf)}
        on_threads = [name for name in running & singles if not self.leaves[name].is_async]
        return len(on_threads) <= (self.program.workers or len(self.leaves))


def check(program, log):
    """The trace is one that the contract allows, and the run ended as it says."""
    walk = Walk(program, log.events).to_the_end()
    assert not log.warnings(of_muster=False)
    # The contract has no word on whether a task that runs nothing may warn of it.
    texts = log.warnings() if walk.leaves else []
    hints = [re.search(r"not kept: call ctx\.keep\('(\w+)'\)", text) for text in texts]
    assert all(hints), texts
    hinted = [hint[1] for hint in hints]
    assert len(hinted) == len(set(hinted)), "a hint is given once"
    assert walk.ctx.hints_due <= set(hinted) <= walk.ctx.hints_allowed
    if not walk.failed:
        assert log.error is None, log.error
        last = {"total_step": walk.loop, "finish": True, **walk.ctx.now}
        assert dict(log.returned) == last
        return
    culprits = [fault.args[0] for fault in log.faults if fault is log.error]
    if not culprits:  # then muster itself has raised, about a second yield
        culprits = [name for name in walk.failed if walk.leaves[name].fault[0] == "twice"]
        assert culprits and culprits[0] in str(log.error), log.error
    assert culprits[0] in walk.failed
    assert any(names(note, culprits[0], walk.loop) for note in log.error.__notes__)


def names(note, name, loop):
    """Whether a note names this middleware and no other, the loop and the node."""
    where = re.search(rf"\bloop {loop}\b", note) and re.search(r"\bnode 0\b", note)
    return bool(where) and set(re.findall(r"\bm\d+\b", note)) == {name}


# ---------------------------------------------------------------------------------- properties


def examples(number, shrink=True):
    """The same examples in every run. Shrinking pays only where a failure comes back for sure."""
    return settings(
        deadline=None,
        max_examples=number,
        derandomize=True,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )


@pytest.fixture(scope="module", autouse=True)
def threads_that_take_turns_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


one_at_a_time = st.one_of(
    programs(leaves(fault_odds=odds), ("serial",), own_keys=False) for odds in (6, 2)
)
calm = calm_leaves()


@given(one_at_a_time)
@examples(300)
def test_in_serial_mode_the_trace_is_exactly_the_one_the_contract_gives(program):
    check(program, run(program))


@given(programs() | programs(leaves(fault_odds=2)))
@examples(200, shrink=False)
def test_in_serial_mode_parallel_groups_overlap_and_all_else_keeps_its_order(program):
    check(program, run(program))


@given(programs(async_mode=True) | programs(leaves(fault_odds=2), async_mode=True))
@examples(300, shrink=False)
def test_in_async_mode_after_and_the_way_back_keep_their_order(program):
    check(program, run(program))


@given(programs(calm, label_odds=1))
@examples(40)
def test_run_0_does_nothing_and_leaves_the_task_ready(program):
    log = Log()
    with task_of(program, log) as task:
        task.run(0)
        assert not (log.events or log.exits or log.caught)
        log.returned = task.run(program.max_step)
    check(program, log)


@given(programs(calm, label_odds=1) | programs(calm, label_odds=1, async_mode=True))
@examples(100)
def test_filter_labels_and_nothing_else_choose_which_middleware_run(program):
    check(program, run(program))


@given(one_at_a_time, st.data())
@examples(80)
def test_the_model_itself_refuses_a_trace_with_two_events_swapped_or_one_lost(program, data):
    events = run(program).events
    assume(len(events) > 1)
    place = data.draw(st.integers(1, len(events) - 1), label="place")
    swapped = [*events[: place - 1], events[place], events[place - 1], *events[place + 1 :]]
    lost = [*events[:place], *events[place + 1 :]]
    for wrong in (swapped, lost):
        with pytest.raises(AssertionError):
            Walk(program, wrong).to_the_end()


def are_free(before, a, b):
    """Whether there is no order between two leaves."""
    return a not in before[b] and b not in before[a]


@given(programs(calm) | programs(calm, async_mode=True, workers=None), st.data())
@examples(60, shrink=False)
def test_any_two_with_no_order_between_them_run_at_the_same_time(program, data):
    before = order_of(program)
    free = [pair for pair in combinations(before, 2) if are_free(before, *pair)]
    assume(free)
    meeting = Meeting(*data.draw(st.sampled_from(free), label="who meet"))
    check(program, run(program, meeting))


slow = st.builds(
    Leaf,
    shape=st.sampled_from(["plain", "generator"]),
    dress=st.sampled_from(DRESSES),
    pauses=st.integers(1, 3),
)


@given(st.one_of(programs(slow, (), async_mode=True, workers=n) for n in (1, 2)))
@examples(40, shrink=False)
def test_no_more_than_n_async_workers_run_at_the_same_time(program):
    check(program, run(program))  # Walk.workers_suffice


@given(st.one_of(programs(slow, async_mode=True, workers=n) for n in (1, 2)))
@examples(100, shrink=False)
def test_with_few_workers_a_loop_still_waits_for_all_that_it_started(program):
    check(program, run(program))


def writer(shape, way, action, key):
    return Leaf(shape, "function", **{way: ((action, key),)})


writers = st.builds(
    writer,
    st.sampled_from(["generator", "async generator"]),
    st.sampled_from(["forward", "back"]),
    st.sampled_from(["assign", "store"]),
    st.sampled_from(KEYS),
)


@given(programs(writers, kinds=(), own_keys=False, async_mode=True))
@examples(80)
def test_two_that_write_one_key_with_no_order_between_them_are_named_in_a_warning(program):
    assume(used_leaves(program))
    before, texts = order_of(program), run(program).warnings()
    writes = {(name, key) for name, leaf in used_leaves(program).items() for _, key in leaf.forward}
    pairs = [
        (a, b, key)
        for (a, key), (b, other_key) in combinations(sorted(writes), 2)
        if key == other_key and are_free(before, a, b)
    ]

    def told(text, pair):
        return all(re.search(rf"\b{word}\b", text) for word in pair)

    assert all(any(told(text, pair) for text in texts) for pair in pairs), texts
    assert all(any(told(text, pair) for pair in pairs) for text in texts), texts


ODD_ERRORS = {  # and the shapes out of which Python itself lets them pass unchanged
    StopIteration: ["plain"],
    StopAsyncIteration: ["plain", "generator", "async"],
    TimeoutError: SHAPES,
    SystemExit: SHAPES,
    KeyboardInterrupt: SHAPES,
}


@pytest.mark.parametrize("async_mode", [False, True])
@pytest.mark.parametrize("error", ODD_ERRORS)
def test_an_exception_of_any_type_leaves_run_as_it_was_raised(error, async_mode):
    nodes = leaves(fault_odds=1, shapes_that_fail=ODD_ERRORS[error])

    @given(programs(nodes, async_mode=async_mode, error=error))
    @examples(20, shrink=not async_mode)
    def every_program(program):
        check(program, run(program))

    every_program()
