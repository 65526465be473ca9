"""Numbers that change while a run trains, by its environment steps."""

from collections.abc import Callable


def line(first: float, last: float | None, horizon: int) -> Callable[[float], float]:
    """Return a function of environment steps: from `first` to `last` over the horizon."""
    if last is None:
        return lambda env_step: first
    return lambda env_step: first + (last - first) * min(1.0, env_step / horizon)
