"""Compile a kernel with numba where possible, or use its NumPy twin.

A kernel is written twice, as loops and in NumPy. numba compiles the loops at the first call and
caches the result on disk (beside the code, in the home directory, or among temporary files), so
that later processes load it in milliseconds. Without any place for the cache NumPy is the better
choice: it needs no warm-up. `MUSTER_NUMBA=0` selects NumPy.
"""

import contextlib
import functools
import importlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

ENVIRONMENT_VARIABLE = "MUSTER_NUMBA"

Rounding = Literal["exact", "contract", "reorder"]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

# Without "nnan" and "ninf": NaN and infinity must be preserved, because callers check for them.
_FASTMATH: dict[Rounding, set[str]] = {
    "exact": set(),
    "contract": {"contract"},
    "reorder": {"contract", "nsz", "reassoc"},
}

_log = logging.getLogger("muster")


def jit(
    numpy_twin: Kernel, rounding: Rounding = "exact", *, releases_lock: bool = False
) -> Callable[[Kernel], Kernel]:
    """Return a decorator that compiles loops, or replaces them by `numpy_twin`.

    Args:
        numpy_twin: The NumPy equivalent, with the same arguments.
        rounding: `exact` rounds as written, so the twin can give the same bits. `contract` allows a
            product and a sum to round once. `reorder` also allows sums in another order, which
            vectorises reductions. Each is the same in every call and process on one kind of CPU.
        releases_lock: Let other threads run Python meanwhile. Not for calls of microseconds:
            beside a busy thread it takes milliseconds to get the lock back.
    """

    def decorate(loops: Kernel) -> Kernel:
        if os.environ.get(ENVIRONMENT_VARIABLE) == "0":
            return numpy_twin
        compiled: Kernel | None = _compile(loops, rounding, releases_lock)
        return numpy_twin if compiled is None else compiled

    return decorate


def compiled_before(kernel: Callable[..., Any]) -> bool:
    """Whether the package's kernels were compiled here before; always True for NumPy twins."""
    statistics = getattr(kernel, "stats", None)
    return statistics is None or any(Path(statistics.cache_path).glob("*.nbi"))


def _compile(loops: Callable[..., Any], rounding: Rounding, releases_lock: bool) -> Any:
    try:
        numba = importlib.import_module("numba")
    except ImportError as error:  # not installed, or not built for this NumPy
        _tell_once(f"numba cannot be imported ({error})")
        return None
    if numba.config.DISABLE_JIT:  # the loops would run as Python, a thousand times slower
        return None
    compile_and_keep = numba.njit(
        cache=True,
        error_model="numpy",
        fastmath=_FASTMATH[rounding],
        nogil=releases_lock,
        no_cfunc_wrapper=True,  # never called from C, and compiling is faster without it
    )
    try:
        return compile_and_keep(loops)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        pass
    # Neither beside the code nor in the home: both may be read-only, as in many containers.
    place = _own_temporary()
    if place is not None:
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(place)
        with contextlib.suppress(RuntimeError):
            return compile_and_keep(loops)
        numba.config.CACHE_DIR = before  # the missing directory was not the reason
    _tell_once("numba has no directory for compiled code; set NUMBA_CACHE_DIR")
    return None


def _own_temporary() -> Path | None:
    """Return a directory for temporary files that only this user can write to, or None.

    Its files are executed as code, so a directory that another user made is not used.
    """
    place = Path(tempfile.gettempdir(), f"muster-{os.getuid()}")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return place if private and found.st_uid == os.getuid() else None


@functools.cache
def _tell_once(reason: str) -> None:
    _log.warning("kernels run on NumPy alone, which is slower: %s", reason)
