"""What a name that is not known was probably meant to be: one rule for options, models and files.

"lrr" -> "lr",  "bacth_size" -> "batch_size",  "learning_rate" -> nothing is near
"""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that this one is a slip of, or None if none is near.

    A slip of one key (a letter dropped, doubled, changed, or two swapped) is found in names of any
    length; difflib alone has no answer to "rl" for "lr".
    """
    candidates = sorted(known)
    near = difflib.get_close_matches(name, candidates, n=5, cutoff=0.6)
    slips = [each for each in candidates if is_one_slip(name, each)]
    if not slips:
        return near[0] if near else None
    return max(slips, key=lambda each: difflib.SequenceMatcher(None, name, each).ratio())


def is_one_slip(one: str, other: str) -> bool:
    """Whether the two differ by one slip: a letter more, less or other, or two swapped."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    rest, other_rest = one[start:], other[start:]
    return (
        rest[1:] == other_rest
        or rest == other_rest[1:]
        or rest[1:] == other_rest[1:]
        or (rest[1::-1] == other_rest[:2] and rest[2:] == other_rest[2:])
    )
