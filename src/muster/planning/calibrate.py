"""Measures `RunCosts` in short runs here, or takes them from a finished run or a file.

calibrate       in step: one worker, twice (num_envs, and twice as many)
                in roles: one process, then a learner with one actor
costs_of_run    result.json of a run directory
read_costs      a file that `write_costs` wrote
"""

import json
from pathlib import Path
from typing import Any

from muster.container import whole_cores
from muster.errors import MusterError, OptionError
from muster.planning.costs import RunCosts
from muster.planning.derive import CalibratedRun, costs_in_roles, costs_in_step
from muster.planning.exchange_time import GUESS, ExchangeTime, measure_exchange
from muster.planning.measurement import Measurement
from muster.planning.shape import shape_of
from muster.recipes.options import MOST_ENVS
from muster.recipes.settings import Settings
from muster.run import RunDirectory
from muster.run.files import read_regular, write_atomic
from muster.shown import shown

_NETWORK = ("model", "hidden", "activation", "shared", "dueling", "sequence", "bf16", "compile")
"""The options that determine the network."""
_MOST_BYTES = 1 << 20
_TIMES, _MOST_TIMES = 2, 5
"""Number of short runs of which the fastest counts, and the maximum with those that were too short
to count."""
_LEAST_LOOPS = 10
"""A run with fewer loops may have waited for its actors, which compiled kernels."""


def calibrate(
    algo: str, env: str, settings: Settings, options: dict[str, Any], seconds: float
) -> RunCosts:
    """Measure the costs of a run in short runs here.

    Args:
        algo: Name of the algorithm.
        env: Id of the environment.
        settings: Its checked settings.
        options: Options of `train`, as given, without those of processes.
        seconds: How long to train in each short run.
    """
    shape = shape_of(settings)

    def measured(**more: Any) -> Measurement:
        return measure(algo, env, {**options, "num_envs": shape.num_envs, **more}, seconds)

    if shape.in_step:
        base = measured(workers=1)
        about = _about(algo, env, settings, measure_exchange())
        twice = 2 * shape.num_envs
        larger = measured(workers=1, num_envs=twice) if twice <= MOST_ENVS else None
        return costs_in_step(about, shape, base, larger)
    alone = measured(workers=0)
    about = _about(algo, env, settings, measure_exchange())
    together = measured(workers=shape.apart + 1)
    return costs_in_roles(about, shape, alone, together, whole_cores())


def measure(algo: str, env: str, options: dict[str, Any], seconds: float) -> Measurement:
    """Train for some seconds, several times, and return the numbers of the fastest run.

    The first run of a process may compile kernels, and other programs may slow down any. The time
    of a run includes the start of its processes: a run that hardly trained is repeated for longer.

    Args:
        algo: Name of the algorithm.
        env: Id of the environment.
        options: Options of `train`.
        seconds: How long to train.
    """
    from muster.recipes.bench import BenchReport, bench

    asked, found, short = seconds, list[BenchReport](), list[BenchReport]()
    while len(found) < _TIMES and len(found) + len(short) < _MOST_TIMES:
        report = bench(algo, env, seconds=asked, **options)
        if report.stop_signal is not None:
            raise SystemExit(128 + report.stop_signal)
        trained: float = report.details["train_s"]
        is_enough = trained >= seconds / 2 and report.details["loops"] >= _LEAST_LOOPS
        (found if is_enough else short).append(report)
        asked += 0.0 if is_enough else seconds
    best = max(found or short, key=lambda each: each.steps_per_s)
    return Measurement.of_report(best)


def costs_of_run(path: Path, settings: Settings, algo: str, env: str) -> RunCosts:
    """Return the costs of a finished run, of which only one size was measured.

    Raises:
        OptionError: The run has no result, or was not measured.
    """
    saved = RunDirectory.open(path).read_result()
    if saved is None:
        raise OptionError(
            f"the run in {shown(path)} has not ended: it has no result.json",
            "how a run has spent its time is written when it ends",
            f"muster resume {shown(path)}",
        )
    shape = shape_of(settings)
    found = Measurement.of_result(saved, shape.num_envs)
    about = _about(algo, env, settings, GUESS)
    if shape.in_step:
        return costs_in_step(about, shape, found)
    if found.workers:
        return costs_in_roles(about, shape, None, found, found.cores)
    return costs_in_roles(about, shape, found, None, found.cores)


def network_of(settings: Settings) -> dict[str, Any]:
    """Return the options that determine the network, as a file holds them."""
    found = {name: getattr(settings.config, name, None) for name in _NETWORK}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in found.items()
        if value is not None
    }


def write_costs(costs: RunCosts, path: str | Path) -> None:
    """Write a calibration as JSON."""
    write_atomic(Path(path), (json.dumps(costs.as_json(), indent=2) + "\n").encode())


def read_costs(path: str | Path) -> RunCosts:
    """Read a calibration.

    Raises:
        OptionError: The file is absent, damaged, or something else.
    """
    name = f"calibration {shown(path)!r:.120}"
    try:
        return RunCosts.from_json(json.loads(read_regular(Path(path), _MOST_BYTES)))
    except OptionError as error:
        what, why, fix = error.args
        raise OptionError(f"{name} cannot be used: {what}", why, fix) from None
    except (OSError, MusterError) as error:
        why = getattr(error, "strerror", None) or str(error.args[0])
        raise OptionError(f"{name} cannot be read", why, _SAVE) from None
    except ValueError as error:
        raise OptionError(f"{name} is damaged", f"it is no JSON: {error}", _SAVE) from None


_SAVE = "muster plan ppo CartPole-v1 --save-calibration costs.json"


def check_costs(costs: RunCosts, algo: str, env: str, settings: Settings) -> None:
    """Raise OptionError if a calibration is of another algorithm, environment or network."""
    for kind, there, here in (
        ("algorithm", costs.algo, algo),
        ("environment", costs.env_id, env),
        ("program", costs.program, settings.config.PROGRAM),
    ):
        if there != here:
            raise OptionError(
                f"the calibration is of the {kind} {there!r:.80}",
                f"this plan is of {here!r:.80}, which has other costs",
                f"muster plan {costs.algo} {costs.env_id} --calibration ..., or calibrate anew",
            )
    now = network_of(settings)
    for name in sorted({*now, *costs.network}):
        if now.get(name) != costs.network.get(name):
            raise OptionError(
                f"the calibration is of another network: {name} was "
                f"{costs.network.get(name)!r:.60}, and is {now.get(name)!r:.60}",
                "the costs of acting and learning depend on the network",
                f"muster plan {algo} {env} without --calibration, which measures here",
            )


def _about(algo: str, env: str, settings: Settings, exchange: ExchangeTime) -> CalibratedRun:
    return CalibratedRun(algo, env, network_of(settings), exchange.barrier_s, exchange.message_s)


def described(costs: RunCosts) -> str:
    """Return one line about where a calibration comes from."""
    found = costs.measured
    workers, rate = found.get("workers"), found.get("steps_per_s")
    if workers is None or rate is None:
        return "calibrated by hand"
    how = "in one process" if not workers else f"with {workers} worker{'s' * (workers > 1)}"
    text = f"calibrated {how}: {rate:,.0f} steps/s"
    busy = found.get("busy_elsewhere", 0.0)
    if busy >= 0.15:
        text += f"; other programs took {100 * busy:.0f} % of the core"
    return text
