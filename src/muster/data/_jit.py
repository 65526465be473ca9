"""Compile a kernel with numba where that works, and use its NumPy twin where it does not.

A kernel is written twice: as loops, which numba compiles at the first call and keeps on disk, and
in NumPy. Both do the same float operations in the same order, so their results are the same bits
and a run does not depend on which of them it got. `MUSTER_NUMBA=0` asks for NumPy.
"""

import functools
import importlib
import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

ENVIRONMENT_VARIABLE = "MUSTER_NUMBA"

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_log = logging.getLogger("muster")


def jit(numpy_twin: Kernel) -> Callable[[Kernel], Kernel]:
    """Return a decorator that compiles loops, or puts `numpy_twin` in their place."""

    def decorate(loops: Kernel) -> Kernel:
        if os.environ.get(ENVIRONMENT_VARIABLE) == "0":
            return numpy_twin
        compiled: Kernel | None = _compile(loops)
        return numpy_twin if compiled is None else compiled

    return decorate


def _compile(loops: Callable[..., Any]) -> Any:
    try:
        numba = importlib.import_module("numba")
    except ImportError as error:  # absent, or not made for this NumPy
        _tell_once(f"numba cannot be imported ({error})")
        return None
    try:
        # The kernels keep the GIL: they take microseconds, and beside a busy Python thread getting
        # it back takes milliseconds.
        return numba.njit(cache=True, error_model="numpy")(loops)
    except RuntimeError as error:  # "cannot cache function ...: no locator available"
        _tell_once(f"numba has nowhere to keep what it compiles ({error}); set NUMBA_CACHE_DIR")
        return None


@functools.cache
def _tell_once(reason: str) -> None:
    _log.warning("replay runs on NumPy alone, which is slower: %s", reason)
