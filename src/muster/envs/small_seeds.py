"""`SmallSeeds`: for environments with NumPy's old generator, whose seeds have 32 bits.

muster's seeds of episodes have 63 bits. Of these the lower 32 are used, so that every episode still
has a seed of its own.
"""

from typing import Any

import gymnasium as gym


class SmallSeeds(gym.Wrapper[Any, Any, Any, Any]):
    """Resets an environment with the lower 32 bits of a seed."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        return self.env.reset(seed=None if seed is None else seed % 2**32, options=options)
