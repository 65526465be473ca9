"""Clusters that serve one trial after another, because each takes long to start.

One on which a trial went wrong is not used again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_kept: dict[str, tuple[ExitStack, Any]] = {}


@contextmanager
def kept(name: str, make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """Use what was made for another trial, or make it, and keep it for the next one.

    Args:
        name: What it is kept by.
        make: Makes it.
    """
    if name in _kept:
        stack, made = _kept.pop(name)
    else:
        stack = ExitStack()
        made = stack.enter_context(make())
    try:
        yield made
    except BaseException:
        stack.close()
        raise
    _kept[name] = stack, made


def close_all() -> None:
    """End all that is kept."""
    while _kept:
        _, (stack, _) = _kept.popitem()
        stack.close()
