"""The resources of each node of a training program, as given on the command line.

--resources learner:num_gpus=1 actor:num_cpus=2,memory=1e9      role or node id : name=amount
"""

import math
from collections.abc import Sequence

from muster.errors import OptionError


def parse_resources(words: Sequence[str]) -> dict[str | int, dict[str, float]]:
    """Return amounts by name for each role or node id. Raises OptionError for another format."""
    found: dict[str | int, dict[str, float]] = {}
    if not isinstance(words, list | tuple):
        raise _unreadable(words)
    for word in words:
        if not isinstance(word, str):
            raise _unreadable(word)
        who, colon, wanted = word.partition(":")
        amounts = dict(_amount(word, part) for part in wanted.split(","))
        if not who or not colon:
            raise _unreadable(word)
        found.setdefault(int(who) if who.isdigit() else who, {}).update(amounts)
    return found


def _amount(word: str, part: str) -> tuple[str, float]:
    name, equals, text = part.partition("=")
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not name or not equals or not 0 <= amount < math.inf:
        raise _unreadable(word)
    return name, amount


def _unreadable(word: object) -> OptionError:
    return OptionError(
        f"resources={word!r:.80} is not possible",
        "it must be a role or the number of a node, then amounts",
        "--resources learner:num_gpus=1 actor:num_cpus=2",
    )
