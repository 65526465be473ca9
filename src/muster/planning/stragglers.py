"""How long N workers wait for the slowest of them, if the times of their work vary.

With normal times of mean d and standard deviation s, the slowest of N takes d + s * m(N) on
average, where m(N) is the expected maximum of N standard normal numbers:

    m(N) = integral of 1 - Phi(x)^N over x > 0, less that of Phi(x)^N over x < 0
"""

import functools
import math

_STEP, _REACH = 0.01, 9.0


@functools.lru_cache(maxsize=4_096)
def expected_maximum(count: int) -> float:
    """Return the expected maximum of `count` standard normal numbers: 0 of one, 0.564 of two."""
    if count <= 1:
        return 0.0
    total = 0.0
    for place in range(int(_REACH / _STEP)):
        x = (place + 0.5) * _STEP
        above = 0.5 * math.erfc(-x / math.sqrt(2))  # Phi(x); Phi(-x) is the rest
        total += (1 - above**count - (0.5 * math.erfc(x / math.sqrt(2))) ** count) * _STEP
    return total


def waiting(sections: float, seconds: float, variance_per_s: float, workers: int) -> float:
    """Return the seconds that workers wait for the slowest, over equal sections of their work.

    Delays are independent of each other, so the variance of a section grows with its length. The
    standard deviation of a section is at most its mean, as if delays came at random.

    Args:
        sections: Number of sections, each of which ends at a barrier.
        seconds: Mean seconds of a section.
        variance_per_s: Variance of the time of a section, for each second of it.
        workers: Number of workers.
    """
    deviation = min(math.sqrt(variance_per_s * seconds), seconds)
    return sections * deviation * expected_maximum(workers)
