"""`PlanResult`: what `muster.plan` returns, and how it is printed."""

from dataclasses import asdict, dataclass, field
from typing import Any

from muster import columns
from muster.planning.costs import RunCosts
from muster.planning.forecast import PlanRow
from muster.planning.hardware import Hardware
from muster.recipes.worker_range import MOST_WORKERS

_HEAD = ("workers", "machines", "env steps/s", "updates/s", "efficiency", "limited by")


@dataclass(frozen=True)
class PlanResult:
    """The predicted rates of a run. `print(result)` shows a table."""

    algo: str
    env: str
    scaling: str
    """`grow`: each worker brings environments and slots; `fixed`: all share those of one run."""
    rows: list[PlanRow]
    """One for each number of workers, in rising order."""
    hardware: Hardware
    costs: RunCosts = field(repr=False)
    """The calibration, which `muster.plan(calibration=...)` accepts again."""
    about: tuple[str, ...] = ()
    """Lines above the table."""

    def row(self, workers: int) -> PlanRow:
        """Return the row of a value of `--workers`. Raises KeyError if there is none."""
        for each in self.rows:
            if each.workers == workers:
                return each
        raise KeyError(workers)

    def as_json(self) -> dict[str, Any]:
        """Return all numbers as plain values."""
        return {
            "algo": self.algo,
            "env": self.env,
            "scaling": self.scaling,
            "hardware": asdict(self.hardware),
            "rows": [asdict(row) for row in self.rows],
            "calibration": self.costs.as_json(),
        }

    def __str__(self) -> str:
        table = [_HEAD, *map(_cells, self.rows)]
        lines = [*self.about, *columns.lines(table, right=range(5))]
        if any(row.workers > MOST_WORKERS for row in self.rows):
            lines.append(
                f"train accepts up to {MOST_WORKERS} workers today; rows above are a study"
            )
        return "\n".join(columns.cut(line, columns.LEAST_WIDTH) for line in lines)


def _cells(row: PlanRow) -> tuple[str, ...]:
    return (
        f"{row.workers:,}",
        f"{row.machines:,}",
        f"{row.env_steps_per_s:,.0f}",
        f"{row.updates_per_s:,.1f}",
        f"{row.efficiency:.2f}",
        row.limited_by,
    )
