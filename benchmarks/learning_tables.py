"""What every algorithm has reached in every environment, over seeds, as tables.

The results are those that `benchmarks/learning.py` wrote. A run that has a target stops there, so
its return says that it got there, and its steps say how soon.
"""

import statistics
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.markdown import NOTHING, RESULTS, link, number, result, score, table

from muster.recipes.algorithms import ALGORITHMS
from muster.report.statistics import bootstrap, iqm

PROGRAM = "python -m benchmarks.learning "
FEWEST_SEEDS = 3
"""Fewer runs than these have no interval."""


@dataclass(frozen=True)
class Learned:
    """One result of `benchmarks.learning`, and what its command says."""

    name: str
    found: dict[str, Any]

    @property
    def command(self) -> str:
        """The command that measured it."""
        return str(self.found["command"])

    @property
    def algo(self) -> str:
        """The algorithm."""
        return self.command.removeprefix(PROGRAM).split()[0]

    @property
    def env(self) -> str:
        """The environment, without the module that registers it."""
        return self.command.split("--env ")[1].split()[0].rpartition(":")[2]

    @property
    def changed(self) -> str:
        """The options that differ from the preset; empty for the preset itself."""
        return self.command.partition(" -- ")[2]

    def values(self, name: str) -> list[float]:
        """Return one figure of every seed."""
        return [float(run[name]) for run in self.found["runs"]]


@cache
def learned() -> tuple[Learned, ...]:
    """Return all results of `benchmarks.learning`, in the order of algorithms and environments."""
    names = sorted(path.stem for path in RESULTS.glob("*.json"))
    found = [Learned(name, result(name)) for name in names]
    chosen = [each for each in found if each.found.get("command", "").startswith(PROGRAM)]
    return tuple(sorted(chosen, key=lambda each: (each.algo, each.env, len(each.changed))))


def every_result() -> str:
    """Return one row for each result: seeds, IQM with its interval, target, steps, command."""
    head = (
        "algorithm", "environment", "seeds", "IQM of the return", "95 % interval", "lowest",
        "highest", "reached the target", "steps, IQM", "seconds, median", "load before", "command",
    )  # fmt: skip
    return table(head, [_row(each) for each in learned()])


def _row(each: Learned) -> list[str]:
    returns, found = each.values("eval_return_mean"), each.found
    interval = NOTHING
    if len(returns) >= FEWEST_SEEDS:
        low, high = bootstrap(iqm, returns)
        interval = f"{score(low)} to {score(high)}"
    target = found.get("wanted", found["preset"].get("stop_at"))
    return [
        f"[{each.algo}]({each.algo}.md)",
        each.env,
        link(each.name, str(len(returns))),
        f"**{score(float(iqm(returns)))}**",
        interval,
        score(min(returns)),
        score(max(returns)),
        "-" if target is None else f"{found['solved']} ({target:g})",
        number(float(iqm(each.values("env_steps"))), 4),
        number(statistics.median(each.values("seconds"))),
        number(found["load_before"], 2) if "load_before" in found else NOTHING,
        f"`{each.command}`",
    ]


def algorithms_by_envs() -> str:
    """Return IQM and seeds of the preset of each algorithm in each environment."""
    envs = sorted({each.env for each in learned()})
    best: dict[tuple[str, str], Learned] = {}
    for each in learned():  # of several, the one that is nearest to the preset comes first
        best.setdefault((each.algo, each.env), each)

    def cell(algo: str, env: str) -> str:
        each = best.get((algo, env))
        if each is None:
            return NOTHING
        returns = each.values("eval_return_mean")
        return f"{score(float(iqm(returns)))} ({len(returns)})"

    rows = [[f"[{algo}]({algo}.md)", *(cell(algo, env) for env in envs)] for algo in ALGORITHMS]
    return table(["algorithm", *envs], rows)


LOOP = {
    "plain_above_bare_call_us": "a plain middleware, above the bare call",
    "generator_us": "a generator middleware",
    "timer_plain_extra_us": "`StepTimer` around a plain one, more",
    "timer_generator_extra_us": "`StepTimer` around a generator, more",
    "empty_loop_us": "a whole loop, empty",
    "async_loop_of_3_us": "a loop of three in async mode",
}
"""Figures of `benchmarks/task_overhead.py`, and what they are."""


def cost_of_the_loop() -> str:
    """Return what the loop itself costs."""
    found = result("task_overhead")
    rows = [
        [
            shown,
            f"{number(found['figures'][name]['median'], 2)} us",
            number(found["in_bare_calls"][name], 2),
        ]
        for name, shown in LOOP.items()
    ]
    rows.append(["`import muster`", f"{number(found['figures']['import_s']['median'], 2)} s", ""])
    return table(["", "time, median", "in bare Python calls"], rows)
