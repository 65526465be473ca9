"""Random programs for test_model.py: what they are made of, and how Hypothesis draws them."""

from dataclasses import dataclass, fields, replace
from itertools import combinations, count, product
from typing import Any, NamedTuple

from hypothesis import strategies as st

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
