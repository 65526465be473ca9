"""The search space of a study: for each option some values, or a range.

    lr=0.01,0.001      these values
    gamma=0.9:0.999    any number in between; integers if the option is an integer
    lr=log:1e-5:1e-2   the same, spread evenly over orders of magnitude
    hidden=64+64,128   a list as a value is written with +

A value is parsed by the type of its option, so `1e5` is an integer where one is expected.
"""

import contextlib
import itertools
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin

import numpy as np

from muster.recipes.settings import all_options
from muster.spelling import nearest
from muster.tuning.errors import SpaceError

MOST_TRIALS = 10_000
"""Maximum number of trials of a study: each is a run with its own directory."""

FUNCTIONS = ("use", "wrapper")
"""Options that name the user's own functions: a study's file never makes them run."""
MAY_BE_CODE = ("model", "eval_env")
"""Options that name something that is known here, or code of the user as `module:name`."""

NOT_TUNED = frozenset(
    {"env_steps", "stop_at", "seconds", "seed", "engine", "address", "resources", "run_dir"}
    | {"resume", "from_checkpoint", "eval_every", "eval_episodes", "eval_max_steps", "quiet"}
    | {"eval_seconds", "checkpoint_every", "save_replay", "wandb", *FUNCTIONS}
    | {"eval_env", "eval_env_kwargs"}
)
"""Options that control how a run is executed or judged, not how it learns: same in all trials."""


@dataclass(frozen=True)
class Choices:
    """A list of values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Return one of the values."""
        return self.values[int(rng.integers(len(self.values)))]

    @property
    def samples(self) -> tuple[Any, ...]:
        """The values to validate before a study begins."""
        return self.values


@dataclass(frozen=True)
class Span:
    """A range of numbers, both ends included."""

    low: float
    high: float
    log: bool
    whole: bool

    def draw(self, rng: np.random.Generator) -> Any:
        """Return a number in the range."""
        if self.whole and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        low, high = (math.log(each) if self.log else each for each in (self.low, self.high))
        value = low + (high - low) * rng.random()
        value = min(max(math.exp(value) if self.log else value, self.low), self.high)
        return round(value) if self.whole else value

    @property
    def samples(self) -> tuple[Any, ...]:
        """The values to validate before a study begins."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)


Space = dict[str, Choices | Span]


def words_to_space(words: Sequence[str], where: str) -> dict[str, str]:
    """Parse `lr=0.01,0.001 gamma=0.9` into texts by option.

    Args:
        words: One for each option.
        where: `grid` or `space`, for messages.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not equals or not name or not text:
            raise SpaceError(
                f"the {where} has {word!r:.80}, which is not an option with values",
                "an option is followed by = and its values, without a space",
                _example(where, name or "lr"),
            )
        if name in found:
            raise SpaceError(
                f"the {where} has {name} twice",
                "give all values of an option at once",
                f"--{where} {name}={found[name]},{text}",
            )
        found[name] = text
    return found


def read_space(algo: str, given: Mapping[str, Any], where: str) -> Space:
    """Return the validated search space of a study.

    Args:
        algo: The algorithm that has the options.
        given: By option, a text such as `log:1e-5:1e-2`, or a sequence of values.
        where: `grid`, which allows no ranges, or `space`.

    Raises:
        SpaceError: An option is unknown or cannot be tuned, or has an invalid value.
    """
    if not isinstance(given, Mapping) or not given:
        raise SpaceError(
            f"the {where} is empty",
            "it must name the options to try, and their values",
            _example(where, "lr"),
        )
    flat = all_options(algo)
    hints = typing.get_type_hints(flat)
    known = {field.name for field in fields(flat)} - NOT_TUNED
    found: Space = {}
    for name, values in given.items():
        if name in NOT_TUNED:
            raise SpaceError(
                f"{name} cannot be in the {where}",
                "it determines how runs are made and evaluated, which must be the same for all "
                "trials",
                f"--{str(name).replace('_', '-')} beside it; seeds are the study's own",
            )
        if name not in known:
            near = nearest(str(name), known)
            raise SpaceError(
                f"the {where} has {name!r:.80}, which is not an option of {algo}",
                f"the nearest is {near!r}" if near else f"see muster train {algo} --help",
                _example(where, near or "lr"),
            )
        found[name] = _one(name, values, hints[name], where)
    return found


def combinations(space: Space) -> Iterator[dict[str, Any]]:
    """Yield every combination of a grid, the last option changing fastest."""
    names = list(space)
    for values in itertools.product(*(space[name].samples for name in names)):
        yield dict(zip(names, values, strict=True))


def count(space: Space) -> int:
    """Return the number of combinations of a grid."""
    return math.prod(len(each.samples) for each in space.values())


def _one(name: str, given: Any, hint: Any, where: str) -> Choices | Span:
    if isinstance(given, str):
        if ":" in given and _plain_kind(hint) in (int, float):
            return _span(name, given, hint, where)
        words = given.split(",")
        return _choices(name, [_read(name, word.strip(), hint, where) for word in words], where)
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, Sequence):
        raise SpaceError(
            f"the {where} has {given!r:.80} for {name}",
            "it must be a string such as log:1e-5:1e-2, or a list of values",
            _example(where, name),
        )
    values = [tuple(each) if isinstance(each, list) else each for each in given]
    values = [each.item() if isinstance(each, np.generic) else each for each in values]
    return _choices(name, values, where)


def _choices(name: str, values: list[Any], where: str) -> Choices:
    if not values:
        raise SpaceError(
            f"the {where} has no value for {name}",
            "each option needs at least one",
            _example(where, name),
        )
    if len({repr(each) for each in values}) < len(values):
        raise SpaceError(
            f"the {where} has a value of {name} twice",
            "two trials would have the same settings",
            "each value once; --confirm repeats the best with other seeds",
        )
    return Choices(tuple(values))


def _span(name: str, text: str, hint: Any, where: str) -> Span:
    if where == "grid":
        raise SpaceError(
            f"the grid has a range, {name}={text:.60}",
            "a grid tries every value, and a range has too many",
            f"--space {name}={text:.60} --search random",
        )
    head, *rest = text.split(":")
    log = head == "log"
    ends = rest if log else [head, *rest]
    if len(ends) != 2:
        raise _wrong(name, text, "a range has two ends: LOW:HIGH, or log:LOW:HIGH", where)
    low, high = (_read(name, end, hint, where) for end in ends)
    if low is None or high is None or not low < high or not math.isfinite(high - low):
        raise _wrong(name, text, "its first end must be below its second one", where)
    if log and low <= 0:
        raise _wrong(name, text, "orders of magnitude begin above 0", where)
    return Span(low, high, log, _plain_kind(hint) is int)


def _plain_kind(hint: Any) -> Any:
    """Return the type of an option, without None."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return hint


def _read(name: str, word: str, hint: Any, where: str) -> Any:
    """Return one value, converted to its option's type."""
    kind = _plain_kind(hint)
    if word.lower() == "none" and kind is not hint:
        return None
    if get_origin(kind) is tuple:
        return tuple(_read(name, part, get_args(kind)[0], where) for part in word.split("+"))
    if get_origin(kind) is Literal:
        if word in get_args(kind):
            return word
        raise _wrong(name, word, f"it must be one of {', '.join(get_args(kind))}", where)
    if kind is bool:
        switch = {"true": True, "false": False}.get(word.lower())
        if switch is None:
            raise _wrong(name, word, "it must be true or false", where)
        return switch
    if kind in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(word)
            if kind is float:
                return number
            if number.is_integer():
                return int(word) if word.lstrip("-").isdigit() else int(number)
        raise _wrong(name, word, f"it must be a {'whole ' * (kind is int)}number", where)
    return word


def _wrong(name: str, text: str, why: str, where: str) -> SpaceError:
    return SpaceError(
        f"the {where} has {text!r:.60} for {name}, which is not possible",
        why,
        f"muster train ... --help shows what {name} may be",
    )


def _example(where: str, name: str) -> str:
    if where == "grid":
        return f"--grid {name}=..." if name != "lr" else "--grid lr=0.01,0.001"
    return f"--space {name}=..." if name != "lr" else "--space lr=log:1e-5:1e-2"
