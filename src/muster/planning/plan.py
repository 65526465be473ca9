"""`plan`: predicts how fast a run would train with other workers, learners, machines and links."""

from pathlib import Path
from typing import Any, Literal

from muster.algos.options import check_choice, check_number, check_whole
from muster.errors import OptionError
from muster.planning.calibrate import described
from muster.planning.costs import RunCosts
from muster.planning.forecast import forecast
from muster.planning.hardware import LATENCY_US, LINK_GBPS, Hardware, checked_hardware
from muster.planning.result import PlanResult
from muster.planning.shape import RunShape, shape_of
from muster.planning.source import CostSource
from muster.recipes.given import as_written
from muster.recipes.settings import Settings
from muster.recipes.worker_range import range_of

MOST_PLANNED = 1_000
"""The last row of a table without `workers`, and the most workers of a plan."""
Scaling = Literal["grow", "fixed"]


def plan(
    algo: str | None = None,
    env: str | None = None,
    *,
    workers: int | str | None = None,
    machines: int | None = None,
    cores_per_machine: int | None = None,
    learners: int | None = None,
    link_gbps: float = LINK_GBPS,
    latency_us: float = LATENCY_US,
    scaling: Scaling | None = None,
    learn_speedup: float = 1.0,
    seconds: float = 2.0,
    calibration: str | Path | RunCosts | None = None,
    from_run: str | Path | None = None,
    **options: Any,
) -> PlanResult:
    """Predict the speed of a run for 1, 2, 4, ... workers, and what limits it.

    The costs of the run are measured here first, in short runs, unless a calibration or a
    finished run is given. docs/plan.md has the equations.

    Args:
        algo: Name of the algorithm. Not needed with `from_run`.
        env: Id of the environment. Not needed with `from_run`.
        workers: The most workers, as for `train`, or a range such as `4..64`. None: up to 1,000.
        machines: Number of machines; None for as many as the processes need, one core each.
        cores_per_machine: None for those of this machine.
        learners: As for `train`: processes that compute gradients.
        link_gbps: Gigabits per second of each machine's link.
        latency_us: Microseconds that a message takes from one machine to another.
        scaling: For algorithms in step. `grow`: each worker brings the environments and slots of
            one run. `fixed`: all workers share them. None: `fixed` if `workers` is given.
        learn_speedup: How many times faster gradients are on the planned machines than here.
        seconds: How long each short run trains.
        calibration: Costs from an earlier plan (`result.costs`), or the file that holds them.
        from_run: A finished run directory, which has the settings and the costs.
        **options: As for `train`, such as `num_envs`, `hidden` or `slots`.

    Raises:
        OptionError: An option is invalid, or the calibration is of something else.
    """
    hardware = checked_hardware(machines, cores_per_machine, link_gbps, latency_us)
    check_number("learn_speedup", learn_speedup, example=10)
    check_number("seconds", seconds, high=3_600, example=2)
    if scaling is not None:
        check_choice("scaling", scaling, Scaling)
    if calibration is not None and from_run is not None:
        raise OptionError(
            "calibration and from_run cannot be used together",
            "each of them has the costs of a run",
            "from_run='runs/...'",
        )
    source = CostSource(algo, env, from_run, calibration)
    given = as_written(options)
    settings = source.settings(given, learners)
    shape = shape_of(settings)
    if shape.in_step and learners is not None:
        workers = _same(workers, learners, source.algo)
    counts, grow = _counts(workers, scaling, settings, shape)
    costs = source.costs(settings, given, seconds)
    return planned(costs, settings, hardware, counts, grow, learn_speedup)


def planned(
    costs: RunCosts,
    settings: Settings,
    hardware: Hardware,
    counts: list[int],
    grow: bool,
    learn_speedup: float = 1.0,
) -> PlanResult:
    """Return the prediction for these numbers of actors, from known costs."""
    shape = shape_of(settings)
    learners = settings.options.learners or 1
    faster = costs.with_faster_learning(learn_speedup)
    rows = forecast(faster, shape, hardware, counts, learners, grow=grow)
    scaling = "grow" if grow else "fixed"
    about = (
        f"{costs.algo} on {costs.env_id}: {_sizes(shape, grow)}",
        f"machines of {hardware.cores} core{'s' * (hardware.cores > 1)}, "
        f"link {hardware.link_gbps:g} Gbit/s, latency {hardware.latency_us:g} us",
        described(costs),
    )
    return PlanResult(costs.algo, costs.env_id, scaling, rows, hardware, costs, about)


def _counts(
    workers: int | str | None, scaling: str | None, settings: Settings, shape: RunShape
) -> tuple[list[int], bool]:
    """Return the numbers of actors, and whether environments and slots grow with them."""
    grow = scaling == "grow" or (scaling is None and workers is None)
    apart, asked = shape.apart, range_of(workers)
    if asked is not None:
        first, last = asked.low, asked.high
    elif isinstance(workers, str):
        raise OptionError(
            f"workers={workers!r:.80} is not possible",
            "it must be a whole number, or a range such as 4..64",
            "workers=4..64",
        )
    else:
        first, last = 1 + apart, MOST_PLANNED if workers is None else workers
    check_whole("workers", last, low=max(first, 1 + apart), high=MOST_PLANNED)
    check_whole("workers", first, low=1 + apart, high=MOST_PLANNED)
    if shape.in_step and not grow:
        if workers is None:
            last = min(last, shape.slots)
        settings.config.check_run(last, shape.num_envs)
    counts, count = [], first - apart
    while count < last - apart:
        counts.append(count)
        count *= 2
    return [*counts, last - apart], grow


def _same(workers: int | str | None, learners: int, algo: str) -> int:
    """Return the number of workers in step, each of which is a learner."""
    if workers not in (None, learners):
        raise OptionError(
            f"learners={learners} and workers={workers} contradict each other with {algo}",
            "every worker is a learner",
            f"workers={learners}",
        )
    return learners


def _sizes(shape: RunShape, grow: bool) -> str:
    envs = f"{shape.num_envs} environment{'s' * (shape.num_envs > 1)}"
    if not shape.in_step:
        return f"{envs} for each actor, updates of {shape.rows:,} samples"
    slots = f"{shape.slots} slot{'s' * (shape.slots > 1)}"
    who = "for each worker" if grow else "shared by all workers"
    return f"{envs} and {slots} {who}"
