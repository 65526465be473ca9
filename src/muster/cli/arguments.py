"""Command-line options from a dataclass: tyro parses them; a mistake gets three lines.

argv -> unknown options? -> tyro -> object
└ rejected -> which option alone is rejected? -> OptionError
"""

import contextlib
import io
import re
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar, get_args, get_origin

import tyro

from muster.errors import OptionError
from muster.spelling import nearest

T = TypeVar("T")

_HELP = ("-h", "--help")
_LOOKS_LIKE_AN_OPTION = re.compile(r"--|-[A-Za-z]")


@dataclass(frozen=True)
class _Option:
    """The command-line option of one field."""

    kind: Any
    """Its type, without None."""
    positional: bool
    required: bool

    @property
    def takes(self) -> int | None:
        """How many words follow the option; None for any number."""
        if get_origin(self.kind) is tuple:
            return None
        return 0 if self.kind is bool else 1

    @property
    def description(self) -> str:
        """What a value has to be, as the end of "it is ..."."""
        if get_origin(self.kind) is Literal:
            return f"one of {', '.join(get_args(self.kind))}"
        if get_origin(self.kind) is tuple:
            things = "whole numbers" if int in get_args(self.kind) else "names"
            return f"{things} with spaces between them"
        names = {int: "a whole number", float: "a number", bool: "a switch, without a value"}
        return names.get(self.kind, "a text")

    def meant(self, words: Sequence[str]) -> str | None:
        """Return the value that was probably meant by invalid words."""
        if get_origin(self.kind) is Literal:
            return nearest(" ".join(words), get_args(self.kind))
        numbers = re.findall(r"\d+", " ".join(words))
        is_list = re.fullmatch(r"[\d\s,x()\[\]]+", " ".join(words)) is not None
        listed = get_origin(self.kind) is tuple and int in get_args(self.kind)
        return " ".join(numbers) if listed and numbers and is_list else None


def parse(cls: type[T], argv: Sequence[str], prog: str, default: T | None = None) -> T:
    """Return an object of `cls` from `argv`, or show its help and exit.

    Raises:
        OptionError: An option is unknown, lacks its value or has one of another type, or a word is
            left over. Values are not validated here, because tyro takes any error of `cls` for its
            own.
    """
    if not set(_HELP).isdisjoint(argv):
        tyro.cli(cls, args=["--help"], prog=prog, default=default)
    options = _options(cls)
    _check_names(argv, options, prog)
    argv = list(_whole_numbers(argv, options))
    parsed = _try(cls, argv, prog, default)
    if parsed is None:
        raise _mistake(cls, argv, prog, default, options)
    return parsed


def value_of(option: str, argv: Sequence[str]) -> str | None:
    """Return the value in `argv` of an option that is needed before the others are parsed."""
    found = None
    for place, word in enumerate(argv):
        if word == option and place + 1 < len(argv) and not _is_option(argv[place + 1]):
            found = argv[place + 1]
        elif word.startswith(f"{option}="):
            found = word.partition("=")[2]
    return found


def given_names(cls: type, argv: Sequence[str]) -> list[str]:
    """Return the fields of `cls` that `argv` names, in their order there."""
    options = _options(cls)
    names = [name for name, _ in _split(argv, options) if name]
    return [(_without_no(name, options) or name)[2:].replace("-", "_") for name in names]


def choices_of_options(cls: type) -> dict[str, tuple[str, ...] | None]:
    """Return the values that each option may have: none for a switch; None if they are not listed.

    Positional arguments are left out; `--no-NAME` is listed with each switch.
    """
    found: dict[str, tuple[str, ...] | None] = {}
    for name, option in _options(cls).items():
        if option.positional:
            continue
        if option.takes == 0:
            found[name] = found[f"--no-{name[2:]}"] = ()
        else:
            found[name] = get_args(option.kind) if get_origin(option.kind) is Literal else None
    return found


def _options(cls: type) -> dict[str, _Option]:
    hints = typing.get_type_hints(cls, include_extras=True)
    found = {}
    for field in fields(cls):
        hint = hints[field.name]
        positional = tyro.conf.Positional in getattr(hint, "__metadata__", ())
        kind = get_args(hint)[0] if get_origin(hint) is typing.Annotated else hint
        if get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(each for each in get_args(kind) if each is not type(None))
        required = field.default is MISSING and field.default_factory is MISSING
        name = field.name.replace("_", "-")
        found[name if positional else f"--{name}"] = _Option(kind, positional, required)
    return found


def _is_option(word: str) -> bool:
    """Whether a word is an option, and not a value such as -1 or -inf."""
    if _LOOKS_LIKE_AN_OPTION.match(word) is None:
        return False
    with contextlib.suppress(ValueError):
        float(word)
        return False
    return True


def _check_names(argv: Sequence[str], options: dict[str, _Option], prog: str) -> None:
    known = {name for name, option in options.items() if not option.positional}
    for word in argv:
        name = word.partition("=")[0].replace("_", "-")
        if _is_option(word) and name not in known and _without_no(name, options) is None:
            near = nearest(name.lstrip("-"), [each[2:] for each in known])
            if name.startswith("--no-") and near is None:
                near = nearest(name[5:], [each[2:] for each in known])
            raise OptionError(
                f"there is no option {_shown(name)}",
                f"the nearest is --{near}" if near else "none is near",
                f"{prog} ... --{near}" if near else f"{prog} --help",
            )


def _whole_numbers(argv: Sequence[str], options: dict[str, _Option]) -> Iterator[str]:
    """Yield the words, with 1e5 and 100_000 written out where an integer is expected."""
    whole = False
    for word in argv:
        if not _is_option(word):
            yield _written_out(word) if whole else word
            continue
        name, equals, value = word.partition("=")
        known = options.get(name.replace("_", "-"))
        whole = known is not None and int in (known.kind, *get_args(known.kind))
        yield f"{name}={_written_out(value)}" if equals and whole else word


def _written_out(word: str) -> str:
    with contextlib.suppress(ValueError, OverflowError):
        number = float(word.replace("_", ""))
        if number.is_integer() and not word.lstrip("-").isdigit():
            return str(int(number))
    return word


def _without_no(name: str, options: dict[str, _Option]) -> str | None:
    """Return the switch that `--no-...` turns off."""
    switch = f"--{name[5:]}"
    is_switch = name.startswith("--no-") and switch in options and options[switch].takes == 0
    return switch if is_switch else None


def _try(cls: type[T], argv: Sequence[str], prog: str, default: T | None) -> T | None:
    """Return the parsed object, or None if tyro rejects it; tyro's own output is discarded."""
    unseen = io.StringIO()
    with (
        contextlib.redirect_stderr(unseen),
        contextlib.redirect_stdout(unseen),
        contextlib.suppress(SystemExit),
    ):
        parsed: T = tyro.cli(cls, args=list(argv), prog=prog, default=default)  # type: ignore[assignment]
        return parsed
    return None


def _mistake(
    cls: type, argv: Sequence[str], prog: str, default: object, options: dict[str, _Option]
) -> OptionError:
    """Return the mistake: the first option that tyro also rejects alone, or a word left over."""
    places = [name for name, option in options.items() if option.positional]
    left_over: list[tuple[str, str | None]] = []
    given: list[tuple[str, list[str]]] = []
    for name, words in _split(argv, options):
        if name.startswith("--"):
            given.append((name, words))
        else:
            left_over.append((words[0], given[-1][0] if given else None))
    stand_in = ["x"] * sum(options[name].required for name in places)
    for name, words in given:
        option = options[_without_no(name, options) or name]
        if option.takes == 1 and not words:
            return OptionError(
                f"{name} has no value", f"it must be {option.description}", f"{prog} --help"
            )
        if _try(cls, [*stand_in, name, *words], prog, default) is None:
            meant = option.meant(words)
            return OptionError(
                f"{name} {_shown(' '.join(words))} is not possible",
                f"it must be {option.description}",
                f"{prog} --help" if meant is None else f"{prog} {name} {meant}",
            )
    any_number = any(options[name].takes is None for name in places)
    if len(left_over) > len(places) and not any_number:
        word, before = left_over[len(places)]
        switch = before is not None and options[_without_no(before, options) or before].takes == 0
        return OptionError(
            f"{_shown(word)} belongs to no option",
            f"{before} is a switch, without a value" if switch else "options begin with --",
            f"{prog} --help",
        )
    absent = [name for name in places if options[name].required][len(left_over) :]
    if absent:
        return OptionError(
            f"{prog} needs a {absent[0]}",
            f"it is given after {prog}",
            f"{prog} {absent[0].upper()}",
        )
    return OptionError(
        f"{_shown(' '.join(argv))} cannot be read", "the options do not fit", f"{prog} --help"
    )


def _split(argv: Sequence[str], options: dict[str, _Option]) -> Iterator[tuple[str, list[str]]]:
    """Yield each option with its words, and each other word with an empty name."""
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not _is_option(word):
            yield "", [word]
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if equals:
            yield name, [value]
            continue
        takes = options[_without_no(name, options) or name].takes
        words: list[str] = []
        while rest and not _is_option(rest[0]) and (takes is None or len(words) < takes):
            words.append(rest.pop(0))
        yield name, words


def _shown(text: str) -> str:
    """Return a word as shown in a message: on one line, and not too long."""
    plain = text if text.isprintable() and text else repr(text)
    return plain if len(plain) <= 80 else f"{plain[:77]}..."
