"""Reads the few kinds of values in CIFAR's Python files from a pickle, without executing anything.

A pickle is a program that may name and call any function. `pickletools` disassembles it without
running it; the small interpreter here knows the instructions that build dict, list, tuple, bytes,
str, int and arrays of bytes. Any other name is rejected.
"""

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

_RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_NAMES = {*_RECONSTRUCT, "numpy ndarray", "numpy dtype", "_codecs encode"}
_VALUES = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG1", "BINUNICODE", "SHORT_BINUNICODE"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_TEXTS = {"BINSTRING", "SHORT_BINSTRING"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


@dataclass(frozen=True)
class _Named:
    """A function or class that the pickle names. It is never looked up."""

    name: str


class _Bytes:
    """An array of bytes that is being built."""

    def __init__(self) -> None:
        self.array: Any = None


def read_pickled(data: bytes) -> Any:
    """Return the value of a pickle.

    Raises:
        ValueError: It is damaged, or contains a value, name or instruction unknown here.
    """
    machine = _Machine()
    try:
        for code, argument, _ in pickletools.genops(data):
            machine.run(code.name, argument)
    except ValueError:
        raise
    except Exception as error:  # whatever a damaged file triggers in pickletools or here
        raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from error
    return _finished(machine.result)


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.result: Any = None

    def run(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif (
            name in _TEXTS
        ):  # of Python 2, whose texts are bytes; pickletools reads them as latin-1
            stack.append(argument.encode("latin-1") if isinstance(argument, str) else argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name not in ("PROTO", "FRAME"):
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "MARK":
            stack.append(_MARK)
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._since_mark()
            _checked(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self._since_mark()
            _checked(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            if name == "STACK_GLOBAL":
                argument = f"{stack.pop(-2)} {stack.pop()}"
            if argument not in _NAMES:
                raise ValueError(f"it names {argument!r:.80}, and a file may not choose code")
            stack.append(_Named(argument))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_made(_checked(stack.pop(), _Named).name, arguments))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], _Bytes):
                stack[-1].array = _array(state)
            elif stack[-1] != "u1":
                raise ValueError("it changes something else than an array of bytes")
        elif name == "STOP":
            self.result = stack.pop()
        else:
            raise ValueError(f"it has the instruction {name}, which such a file does not need")

    def _since_mark(self) -> list[Any]:
        stack = self._stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
        items = stack[place + 1 :]
        del stack[place:]
        return items


def _made(name: str, arguments: Any) -> Any:
    """Return the value that a call of a known name would produce."""
    if name in _RECONSTRUCT:
        return _Bytes()
    first = arguments[0]
    if name == "numpy dtype":
        text = first.decode() if isinstance(first, bytes) else first
        if text != "u1":
            raise ValueError(f"it has an array of {text!r:.20}, and images are bytes")
        return "u1"
    if name == "_codecs encode" and isinstance(first, str):
        return first.encode("latin-1")
    raise ValueError(f"it calls {name}")


def _array(state: Any) -> Any:
    _, shape, kind, is_fortran, raw = state
    if kind != "u1" or not isinstance(raw, bytes) or math.prod(shape) != len(raw):
        raise ValueError(f"it has an array of shape {shape!r:.60} with other data")
    order = shape[::-1] if is_fortran else shape
    array = np.frombuffer(raw, np.uint8).reshape(order)
    return array.T if is_fortran else array


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it is damaged: a {type(value).__name__} is no {kind.__name__}")
    return value


def _finished(value: Any) -> Any:
    """Return a value with its arrays in place of their builders."""
    if isinstance(value, dict):
        return {key: _finished(each) for key, each in value.items()}
    if isinstance(value, _Named):
        raise ValueError(f"it holds {value.name}")
    return value.array if isinstance(value, _Bytes) else value
