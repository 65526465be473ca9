"""The model of the contract for test_model.py: what a run may do, and whether one did."""

import re
from collections import deque
from fnmatch import fnmatchcase

from model_programs import Event, Leaf
from model_runs import value_of

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
