"""Configurations as YAML text and back; every mistake is reported with its key.

    to_yaml(config)        -> text, in the order of the fields
    from_yaml(text, Class) -> an object of the class; absent keys get their defaults

The text is a subset of YAML without features that a configuration does not need and an attacker may
use: no tags, no anchors, no duplicate keys (muster.run.yaml_text). msgspec checks the types,
strictly.
"""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from muster.errors import MusterError, OptionError
from muster.run import yaml_text

T = TypeVar("T")

_AT = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")


def to_yaml(config: object) -> str:
    """Return a configuration as text.

    Args:
        config: A dataclass object, or a dict of plain values.

    Raises:
        OptionError: It holds a value that has no plain form in YAML.
    """
    try:
        plain = msgspec.to_builtins(config, enc_hook=_encode)
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(
            f"a {type(config).__name__} cannot be written as YAML: {error}",
            "a configuration holds numbers, strings, lists and nested configurations",
            "remove the object from the configuration",
        ) from error
    if not isinstance(plain, dict):
        raise OptionError(
            f"a {type(config).__name__} is not a configuration",
            "a configuration is a dataclass object or a dict",
            "to_yaml(cfg)",
        )
    return yaml_text.dump(plain)


def from_yaml(text: str, cls: type[T]) -> T:
    """Read a configuration; absent keys get the defaults of the class.

    Args:
        text: The YAML text; it may be partial.
        cls: The dataclass.

    Raises:
        OptionError: The text is not a valid configuration; the message names the key.
    """
    data = yaml_text.load(text)
    return from_dict(data, cls)


def from_dict(data: Mapping[str, Any], cls: type[T]) -> T:
    """Make a dataclass object from plain values, as `from_yaml` does."""
    _check_keys(dict(data), cls, "")
    try:
        return msgspec.convert(data, cls, strict=True, dec_hook=_decode)
    except msgspec.ValidationError as error:
        # The class's own error about a value is more helpful.
        if isinstance(error.__cause__, MusterError):
            raise error.__cause__ from None
        found = _AT.search(str(error))
        key = found.group(1) if found else ""
        problem = _AT.sub("", str(error))
        what = f"the configuration has a wrong {key!r}" if key else "the configuration is wrong"
        raise OptionError(
            f"{what}: {problem}",
            f"{_at(data, key)!r:.80} is of another type or out of range"
            if key
            else "a key is missing, or has an invalid value",
            _example(cls, key),
        ) from error


def _encode(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as plain values")


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, Path) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def _check_keys(value: object, kind: Any, path: str) -> None:
    """Reject unknown keys; msgspec would ignore them silently."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        for each in get_args(kind):
            if dataclasses.is_dataclass(each):
                _check_keys(value, each, path)
    elif dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        names = [each.name for each in dataclasses.fields(kind) if each.init]
        for key, inner in value.items():
            here = f"{path}.{key}" if path else str(key)
            if key not in names:
                near = difflib.get_close_matches(str(key), names, n=1)
                raise OptionError(
                    f"the configuration has an unknown key {here!r:.120}",
                    f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(names)}",
                    f"{near[0]}: ..." if near else f"take {here!r:.80} out",
                )
            _check_keys(inner, hints[key], here)
    elif isinstance(value, dict) and get_origin(kind) is dict:
        for key, inner in value.items():
            _check_keys(inner, get_args(kind)[1], f"{path}.{key}")
    elif isinstance(value, list) and get_args(kind):
        for number, each in enumerate(value):
            _check_keys(each, get_args(kind)[0], f"{path}[{number}]")


def _at(data: Any, key: str) -> Any:
    """Return the value at a path such as `algo.hidden[1]`, as far as the path exists."""
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", key):
        try:
            data = data[int(number)] if number else data[name]
        except (KeyError, IndexError, TypeError):
            break
    return data


def _example(cls: Any, key: str) -> str:
    """Return one valid line: the default of the field, if it has one."""
    kind: Any = cls
    name = ""
    for name in re.findall(r"[^.\[\]]+", re.sub(r"\[.*", "", key)):
        fields = {each.name: each for each in dataclasses.fields(kind)}
        if name not in fields:
            break
        default = fields[name].default
        inner = typing.get_type_hints(kind)[name]
        if not dataclasses.is_dataclass(inner):
            if default is not dataclasses.MISSING:
                return yaml_text.dump(
                    {name: msgspec.to_builtins(default, enc_hook=_encode)}
                ).strip()
            break
        kind = inner
    return f"{name}: ..." if name else f"the keys of {cls.__name__}"
