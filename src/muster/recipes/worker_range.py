"""`--workers 4..16`: the minimum and maximum number of processes of a run.

4..16, an engine whose nodes may join and leave   begins with 4, grows to 16, continues with fewer
4..16, on this machine                            as many as it has cores, at least 4, at most 16
"""

import re
from dataclasses import dataclass

from muster.container import whole_cores
from muster.errors import OptionError
from muster.framework.parallel import ELASTIC

MOST_WORKERS = 256
_RANGE = re.compile(r"(\d{1,6})\.\.(\d{1,6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """The number of processes that a run may have."""

    low: int
    """The minimum with which a run begins."""
    high: int
    """The maximum, which a run never exceeds."""

    @property
    def of_this_machine(self) -> int:
        """The number of cores of this machine, limited to the range."""
        return min(self.high, max(self.low, whole_cores()))


def check_workers(value: object) -> None:
    """Raise OptionError unless `value` is a number of processes, or a range of such numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= MOST_WORKERS:
            return
    elif isinstance(value, str) and (found := _RANGE.fullmatch(value)):
        _check_range(value, int(found[1]), int(found[2]))
        return
    raise OptionError(
        f"workers={value!r:.80} is not possible",
        f"it must be a whole number from 0 to {MOST_WORKERS}, or a range such as 4..16",
        "workers=4..16" if ".." in str(value) else "workers=4",
    )


def range_of(workers: int | str | None) -> WorkerRange | None:
    """Return the range that the option contains; None if it is a single number, or not given."""
    found = _RANGE.fullmatch(workers) if isinstance(workers, str) else None
    return None if found is None else WorkerRange(int(found[1]), int(found[2]))


def elastic_range(workers: int | str | None, engine: str) -> WorkerRange | None:
    """Return the range of a run whose nodes join and leave; None if their number is fixed."""
    return range_of(workers) if engine in ELASTIC else None


def about_range(error: OptionError, asked: WorkerRange, workers: int) -> OptionError:
    """Return an error about one number of processes, rewritten to be about the range."""
    what, why, fix = error.args
    given = f"workers={asked.low}..{asked.high}"
    if (better := re.fullmatch(r"workers=(\d+)", fix)) is not None:
        number = int(better[1])
        low, high = (number, max(number, asked.high)) if number > workers else (asked.low, number)
        fix = f"workers={min(low, high)}..{high}"
    return OptionError(re.sub(rf"\bworkers={workers}\b", given, what), why, fix)


def _check_range(text: str, low: int, high: int) -> None:
    if low > high:
        raise OptionError(
            f"workers={text} is not possible",
            f"the lower number comes first, and {low} is more than {high}",
            f"workers={high}..{low}",
        )
    if low == 0:
        raise OptionError(
            f"workers={text} is not possible",
            "0 means this process alone; a range begins with 1 or more",
            f"workers={min(3, high) or 3}..{max(3, high)}",
        )
    if high > MOST_WORKERS:
        raise OptionError(
            f"workers={text} is not possible",
            f"a run has at most {MOST_WORKERS} processes",
            f"workers={min(low, MOST_WORKERS)}..{MOST_WORKERS}",
        )
