"""How often to sample: in proportion to inserts, like Reverb's rate limiter.

    error = (inserts - min_size) * ratio - samples

Below `min_size` inserts, no sample is allowed and every insert is. From then on, sampling must not
take the error below -error_buffer, nor inserting above +error_buffer. The limiter only counts: it
never waits and knows no threads. A caller that is refused asks again later.
"""

import math
from typing import Any

from muster.errors import OptionError


class SamplesPerInsert:
    """Counts inserted and sampled transitions, and decides which side may continue.

    With blocks of `m` inserts and `n` samples, an error_buffer below (n + m * ratio) / 2 could stop
    both sides at once: `may_insert` then raises OptionError. A loop that never calls `may_insert`
    (one thread, which samples as much as it may after each insert) does not need this margin.

    Args:
        ratio: Samples per insert, in transitions: a batch of 64 per 8 environment steps is 8.
        min_size: Inserts before the first sample.
        error_buffer: How far samples may be ahead or behind, in samples.
    """

    def __init__(self, ratio: float, min_size: int, error_buffer: float) -> None:
        _check("ratio", ratio, ratio > 0)
        _check("min_size", min_size, min_size >= 1)
        _check("error_buffer", error_buffer, error_buffer >= max(1.0, ratio))
        self.ratio = ratio
        self.min_size = min_size
        self.error_buffer = error_buffer
        self.inserts = 0
        self.samples = 0
        self._largest_sample = 1

    def may_sample(self, n: int = 1) -> bool:
        """Whether `n` more transitions may be sampled now."""
        self._largest_sample = max(self._largest_sample, n)
        return self.inserts >= self.min_size and self._error() - n >= -self.error_buffer

    def missing(self, n: int = 1) -> int:
        """Return the inserts that are missing before `n` may be sampled; 0 if they may now."""
        if self.may_sample(n):
            return 0
        for_ratio = (n - self.error_buffer + self.samples) / self.ratio
        return max(1, self.min_size - self.inserts + max(0, math.ceil(for_ratio)))

    def may_insert(self, n: int = 1) -> bool:
        """Whether `n` more transitions may be inserted now.

        Raises:
            OptionError: The two sides could block each other forever.
        """
        room = (self._largest_sample + n * self.ratio) / 2
        if room > self.error_buffer:
            raise OptionError(
                f"error_buffer={self.error_buffer} is not possible here",
                f"inserts of {n} and samples of {self._largest_sample} at ratio {self.ratio} "
                "could wait for each other forever",
                f"error_buffer={math.ceil(room)}",
            )
        return self.inserts < self.min_size or (self._error() + n * self.ratio <= self.error_buffer)

    def note_insert(self, n: int = 1) -> None:
        """Count `n` transitions that were inserted."""
        self.inserts += n

    def note_sample(self, n: int = 1) -> None:
        """Count `n` transitions that were sampled."""
        self.samples += n

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the counts."""
        return {**self._options(), "inserts": self.inserts, "samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the counts of `state`.

        Raises:
            OptionError: The options differ: with another ratio, the counts would cause a burst or a
                long pause.
        """
        ours = self._options()
        theirs = {key: state.get(key) for key in ours}
        if theirs != ours:
            raise OptionError(
                f"the state has {theirs}, this limiter has {ours}",
                "counts are valid only with the options under which they were made",
                "use the options of the run that saved the state",
            )
        self.inserts = int(state["inserts"])
        self.samples = int(state["samples"])

    def _error(self) -> float:
        # Computed from the counts each time, so that rounding errors do not accumulate.
        return (self.inserts - self.min_size) * self.ratio - self.samples

    def _options(self) -> dict[str, Any]:
        return {
            "ratio": self.ratio,
            "min_size": self.min_size,
            "error_buffer": self.error_buffer,
        }


def _check(name: str, value: float, fine: bool) -> None:
    if not fine or not math.isfinite(value):
        raise OptionError(
            f"{name}={value!r} is not possible",
            "ratio is above 0, min_size at least 1, error_buffer at least max(1, ratio)",
            "SamplesPerInsert(ratio=8.0, min_size=1000, error_buffer=256)",
        )
