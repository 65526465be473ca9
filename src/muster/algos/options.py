"""Checks of what a config says: one function per kind of value, one message for all of them."""

import math

from muster.errors import OptionError


def check_whole(name: str, value: object, low: int = 1) -> None:
    """Raise OptionError unless `value` is an integer from `low` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise OptionError(
            f"{name}={value!r} is not possible",
            f"it is a whole number from {low} on",
            f"{name}={max(low, 1)}",
        )


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
        name: What the option is called.
        value: What it was set to.
        low: Where the range begins.
        high: Where it ends.
        low_too: Whether `low` itself is allowed.
        high_too: Whether `high` itself is allowed.
        example: A value that would do.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        above = value >= low if low_too else value > low
        below = value <= high if high_too else value < high
        if above and below:  # NaN is neither
            return
    lower = f"from {low:g} on" if low_too else f"above {low:g}"
    upper = "" if high == math.inf else f", {'up to' if high_too else 'below'} {high:g}"
    raise OptionError(
        f"{name}={value!r} is not possible",
        f"it is a finite number {lower}{upper}",
        f"{name}={example:g}",
    )


def check_widths(name: str, value: object) -> None:
    """Raise OptionError unless `value` is a sequence of layer widths; it may be empty."""
    if isinstance(value, tuple | list) and all(
        isinstance(width, int) and not isinstance(width, bool) and width > 0 for width in value
    ):
        return
    raise OptionError(
        f"{name}={value!r} is not possible",
        "it holds one width for each layer, a whole number from 1 on",
        f"{name}=(64, 64)",
    )


def check_flag(name: str, value: object) -> None:
    """Raise OptionError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name}={value!r} is not possible", "it is a switch", f"{name}=True")


def refuse_together(one: str, other: str, why: str, fix: str) -> None:
    """Raise the OptionError of two options that contradict each other."""
    raise OptionError(f"{one} and {other} contradict each other", why, fix)
