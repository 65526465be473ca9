"""The subset of YAML that a configuration needs.

Accepted: mappings with string keys, lists, and the plain values of YAML 1.2 (`3e-4` is a number and
`no` a string, unlike in YAML 1.1). Rejected: tags, anchors and aliases, duplicate keys, text that
is too long or nested too deep. Output: reads the same here and in a YAML 1.1 reader.
"""

import math
import re
from typing import Any

import yaml  # type: ignore[import-untyped]

from muster.errors import OptionError

MAX_TEXT = 64 << 10
MAX_DEPTH = 32

_NULL, _BOOL, _INT, _FLOAT, _STR, _SEQ, _MAP = (
    f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")
)
_PLAIN = {
    _NULL: (re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    _BOOL: (re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    _INT: (re.compile(r"[-+]?(?:[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+)$"), list("-+0123456789")),
    _FLOAT: (
        re.compile(
            r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"
            r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
        ),
        list("-+.0123456789"),
    ),
}


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Composes plain nodes only; `_value` interprets them."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  # as yaml declares it

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _Refused("an anchor or alias (& or *)", event.start_mark)
        # Quoted strings have the tag "!".
        if event.tag is not None and event.tag != "!":
            raise _Refused(f"the tag {event.tag!r:.60}", event.start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refused(f"more than {MAX_DEPTH} levels", event.start_mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes strings that either kind of reader would take for another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, (_pattern, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


class _Refused(Exception):
    def __init__(self, what: str, mark: Any) -> None:
        super().__init__(f"line {mark.line + 1}: {what}")


def load(text: str) -> dict[str, Any]:
    """Read a mapping.

    Raises:
        OptionError: It is not a mapping, or uses more than this subset of YAML; names the line.
    """
    if len(text) > MAX_TEXT:
        raise _error(f"{len(text)} characters", f"the limit is {MAX_TEXT}")
    try:
        node = _Loader(text).get_single_node()
        data = {} if node is None else _value(node)
    except _Refused as error:
        raise _error(str(error), "a configuration needs none, so none is read") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _error(" ".join(str(error).split())[:200], "it is not valid YAML") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise _error(f"a {type(data).__name__}", "a configuration is a mapping of keys to values")
    return data


def dump(data: dict[str, Any]) -> str:
    """Return a mapping of plain values as text, in its own order."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=False, default_flow_style=False
    )
    return text


def _value(node: Any) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_value(each) for each in node.value]
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _value(key_node)
            if not isinstance(key, str):
                raise _Refused(f"the key {key!r:.60} is not a word", key_node.start_mark)
            if key in mapping:
                raise _Refused(f"the key {key!r:.60} for the second time", key_node.start_mark)
            mapping[key] = _value(value_node)
        return mapping
    return _scalar(node.tag, node.value)


def _scalar(tag: str, word: str) -> Any:
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return word.lower() == "true"
    digits = word.replace("_", "").lower()
    if tag == _INT:
        base = 16 if "x" in digits else 8 if "o" in digits else 10
        return int(digits, base)
    if tag == _FLOAT:
        if digits.endswith("nan"):
            return math.nan
        return float(digits.replace(".inf", "inf"))
    return word


def _error(what: str, why: str) -> OptionError:
    return OptionError(f"the configuration cannot be read: {what}", why, "key: value, one per line")
