"""Validation of options: one function per kind of value, one format of message for all.

Imports nothing slow, so that the command line can reject a value before it loads anything else.
"""

import math
from typing import Any, Literal, get_args

from muster.errors import OptionError
from muster.spelling import nearest

Activation = Literal["relu", "tanh", "gelu", "silu"]
"""The activations that may follow a hidden layer."""
MOST_LR = 1_000.0
"""Largest learning rate: Adam moves a weight by about this much; more soon overflows float32."""
MOST_STEPS = 10**15
"""Largest count of steps or updates: a thousand years of one machine, and exact in a float."""
MOST_ROWS = 10**10
"""Most transitions in a buffer. The memory limit is checked later, when their size is known."""
WIDEST = 65_536
"""Widest layer."""
MOST_LAYERS = 256


def check_whole(name: str, value: object, low: int = 1, high: int = MOST_STEPS) -> None:
    """Raise OptionError unless `value` is an integer from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise OptionError(
            f"{name}={value!r} is not possible",
            f"it must be a whole number from {low} to {high:,}",
            f"{name}={_near_whole(value, low, high)}",
        )


def _near_whole(value: object, low: int, high: int) -> int:
    """Return the intended integer, 10000 for 1e4 or "10000"; else an integer that is allowed."""
    value = _number_in(value)
    if isinstance(value, float) and math.isfinite(value) and low <= round(value) <= high:
        return round(value)
    return max(low, 1)


def _number_in(value: object) -> object:
    """Return the number in a string; return any other value unchanged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def check_number(
    name: str,
    value: object,
    low: float = 0.0,
    high: float = math.inf,
    low_too: bool = False,
    high_too: bool = False,
    example: float = 0.5,
) -> None:
    """Raise OptionError unless `value` is a finite number between `low` and `high`.

    Args:
        name: Name of the option.
        value: Its value.
        low: Lower bound.
        high: Upper bound.
        low_too: Whether `low` itself is allowed.
        high_too: Whether `high` itself is allowed.
        example: A valid value, for the message.
    """

    def fits(number: object) -> bool:
        if not isinstance(number, int | float) or isinstance(number, bool):
            return False
        above = number >= low if low_too else number > low
        below = number <= high if high_too else number < high
        return above and below  # NaN is neither

    if fits(value):
        return
    meant = _number_in(value)
    lower = "" if low == -math.inf else f", {low:g} or more" if low_too else f" above {low:g}"
    upper = "" if high == math.inf else f", {'up to' if high_too else 'below'} {high:g}"
    raise OptionError(
        f"{name}={value!r} is not possible",
        f"it must be a finite number{lower}{upper}",
        f"{name}={meant if fits(meant) else example:g}",
    )


def check_widths(name: str, value: object) -> None:
    """Raise OptionError unless `value` is a sequence of layer widths; it may be empty."""
    if (
        isinstance(value, tuple | list)
        and len(value) <= MOST_LAYERS
        and all(
            isinstance(width, int) and not isinstance(width, bool) and 0 < width <= WIDEST
            for width in value
        )
    ):
        return
    raise OptionError(
        f"{name}={value!r:.60} is not possible",
        f"it must have one width for each of at most {MOST_LAYERS} layers, "
        f"a whole number from 1 to {WIDEST:,}",
        f"{name}=(64, 64)",
    )


def check_flag(name: str, value: object) -> None:
    """Raise OptionError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise OptionError(
            f"{name}={value!r} is not possible", "it must be True or False", f"{name}=True"
        )


def check_choice(name: str, value: object, choices: Any) -> None:
    """Raise OptionError unless `value` is one of the values of a Literal."""
    words = get_args(choices)
    if value not in words:
        raise OptionError(
            f"{name}={value!r} is not possible",
            f"it must be one of {', '.join(map(repr, words))}",
            f'{name}="{nearest(str(value), words) or words[0]}"',
        )


def check_text(name: str, value: object) -> None:
    """Raise OptionError unless `value` is None or a non-empty string."""
    if value is not None and not (isinstance(value, str) and value):
        raise OptionError(
            f"{name}={value!r} is not possible", "it must be a string, or None", f"{name}=None"
        )


def refuse_together(one: str, other: str, why: str, fix: str) -> None:
    """Raise OptionError for two options that contradict each other."""
    raise OptionError(f"{one} and {other} contradict each other", why, fix)


def check_roles(workers: int | None, acts: str) -> None:
    """Raise OptionError for fewer processes than there are roles; 0 is one process for all roles.

    Args:
        workers: The requested number; None if not given.
        acts: The role that acts, as the message names it.
    """
    if workers in (1, 2):
        raise OptionError(
            f"workers={workers} is not possible",
            f"a learner, an evaluator and {acts} need three processes; 0 means this process alone",
            "workers=3",
        )
