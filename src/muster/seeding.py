"""One seed for a run, from which every consumer of random numbers derives its own seed.

    derive_seed(seed, "env", 3, "episode", 17) -> seed of the reset of env 3 for its episode 17

A consumer is named by its path, so a new consumer never shifts the numbers of another. The result
depends on the seed and the path only: not on the process, the order of calls, Python's hash seed,
or the number of workers.
"""

import hashlib
import operator
from collections.abc import Callable

import numpy as np

from muster.errors import OptionError


def derive_seed(seed: int, *path: str | int) -> int:
    """Return the seed of the consumer at `path`: 0 <= result < 2**63.

    Args:
        seed: The seed of the run: any integer.
        path: Names and numbers that identify the consumer, such as `"env", 3, "episode", 17`. The
            string "3" and the integer 3 are different.
    """
    return _hash("".join([_encode(part) for part in (seed, *path)]))


def numbered_seeds(seed: int, *path: str | int) -> Callable[[int], int]:
    """Return a faster `lambda number: derive_seed(seed, *path, number)`."""
    head = "".join([_encode(part) for part in (seed, *path)])
    return lambda number: _hash(head + _encode(number))


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """Return a new generator for the consumer at `path`; the same path gives the same numbers."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *path)))


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _encode(part: str | int) -> str:
    # The length keeps ("a", "b") and ("ab",) apart.
    if type(part) is str:
        return f"s{len(part)}:{part}"
    if type(part) is not int:
        part = _integer(part)
    return f"i{part};"


def _integer(part: object) -> int:
    # True would be taken for 1, and is always a mistake here.
    if not isinstance(part, bool | np.bool_):
        try:
            return operator.index(part)  # type: ignore[arg-type]  # this is the check
        except TypeError:
            pass
    raise OptionError(
        f"a seed cannot be derived from {part!r}",
        "seeds are integers, and paths are made of strings and integers",
        'derive_seed(0, "env", 3)',
    )
