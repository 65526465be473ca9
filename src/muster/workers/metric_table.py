"""The environment's own metrics in memory that workers share: one row for each name.

    write(table, sums)   one process writes    read(table) -> sums   any other reads them

The first row without a name ends the table. So an environment without metrics costs one row, and
nothing has to be cleared.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.envs.step_metrics import LONGEST_NAME, MOST_NAMES, MetricSums, added

ROW = np.dtype([("name", f"S{LONGEST_NAME}"), ("sum", np.float64), ("count", np.int64)])
"""One row of a table."""
SIZE = MOST_NAMES + 1
"""Rows of a table: the last one is needed as an end."""

Table = NDArray[Any]


def write(table: Table, sums: MetricSums) -> int:
    """Write sums into a table, and return how many of its rows they take, with the end."""
    for row, (name, (amount, count)) in enumerate(sums.items()):
        table[row] = name.encode(), amount, count
    table[len(sums)]["name"] = b""
    return len(sums) + 1


def read_all(tables: Table) -> MetricSums:
    """Return the sums of several tables together, added in their order."""
    if not tables["name"][:, 0].tobytes().strip(b"\0"):  # the usual case, at once for all tables
        return {}
    return added(map(read, tables))


def read(table: Table) -> MetricSums:
    """Return the sums in a table."""
    found: MetricSums = {}
    for row in table:
        if not row["name"]:
            break
        found[row["name"].decode()] = float(row["sum"]), int(row["count"])
    return found
