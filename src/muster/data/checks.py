"""Validation of replay's arguments, with one message for each kind of value."""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from muster.errors import OptionError


def check_count(name: str, value: object, least: int) -> None:
    """Raise OptionError unless `value` is an integer of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise OptionError(
            f"{name}={value!r} is not possible",
            f"it must be a whole number, {least} or more",
            f"{name}={max(least, 1)}",
        )


def check_fraction(name: str, value: object) -> None:
    """Raise OptionError unless `value` is a number from 0 to 1."""
    if not isinstance(value, int | float | np.floating) or not 0 <= value <= 1:
        raise OptionError(
            f"{name}={value!r} is not possible", "it must be a number from 0 to 1", f"{name}=0.5"
        )


def check_reachable(name: str, wanted: int, capacity: int) -> None:
    """Raise OptionError for a wait for more transitions than fit."""
    if wanted > capacity:
        raise OptionError(
            f"{name}={wanted} is not possible",
            f"the buffer holds {capacity} transitions at most, so sampling would wait forever",
            f"capacity={2 * wanted}",
        )


def check_many(count: object, prioritized: bool) -> None:
    """Raise OptionError for several batches at once, where each changes the priorities."""
    if prioritized:
        raise OptionError(
            "sample_many() of a prioritized buffer is not possible",
            "each batch changes the priorities by which the next one is drawn",
            "call sample() and update_priorities() in turn",
        )
    check_count("count", count, 1)


def check_made_for(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raise OptionError for the state of a buffer that was made with other options."""
    differing = [key for key in ours if ours[key] != theirs.get(key)]
    if differing:
        raise OptionError(
            f"the state has {_show(theirs, differing)}, this buffer has {_show(ours, differing)}",
            "a buffer can load only the state of a buffer with the same options",
            "make the buffer with the options of the run that saved the state",
        )


def check_complete(wanted: Set[str], state: Mapping[str, Any]) -> None:
    """Raise OptionError for an incomplete state."""
    absent = sorted(wanted - state.keys())
    if absent:
        raise OptionError(
            f"the state lacks {', '.join(absent)}",
            "every part is needed to continue exactly",
            "load a state that state_dict() returned",
        )


def _show(options: Mapping[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key}={options.get(key)!r}" for key in keys)
