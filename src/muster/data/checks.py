"""What replay refuses to be told, in one message for each kind of value."""

import numpy as np

from muster.errors import OptionError


def check_count(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or too small a one."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise OptionError(
            f"{name}={value!r} is not possible",
            f"it is a whole number, {least} or more",
            f"{name}={max(least, 1)}",
        )


def check_fraction(name: str, value: object) -> None:
    """Refuse what is no number from 0 to 1."""
    if not isinstance(value, int | float | np.floating) or not 0 <= value <= 1:
        raise OptionError(
            f"{name}={value!r} is not possible", "it is a number from 0 to 1", f"{name}=0.5"
        )


def check_reachable(name: str, wanted: int, capacity: int) -> None:
    """Refuse to wait for more transitions than fit."""
    if wanted > capacity:
        raise OptionError(
            f"{name}={wanted} is not possible",
            f"the buffer holds {capacity} transitions at most, so it would wait for ever",
            f"capacity={2 * wanted}",
        )
