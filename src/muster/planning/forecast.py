"""`forecast`: the predicted rates for several numbers of workers. Pure functions.

costs, shape, hardware -> in_step_model or role_model -> PlanRow for each number of workers
"""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.planning.costs import RunCosts
from muster.planning.hardware import Hardware
from muster.planning.in_step_model import PARTS, loop_time
from muster.planning.role_model import stages
from muster.planning.shape import RunShape


@dataclass(frozen=True)
class PlanRow:
    """The prediction for one number of workers."""

    workers: int
    """The value of `--workers`: it counts the learner, the evaluator and replay shards too."""
    actors: int
    """Processes that act: in step all workers, else `workers` without those other roles."""
    learners: int
    machines: int
    env_steps_per_s: float
    updates_per_s: float
    efficiency: float
    """Environment steps/s, relative to one actor's times the number of actors."""
    limited_by: str
    """`env`, `act`, `learn`, `exchange`, `link`, `replay`, `pace`, `cores` or `rest`."""
    shares: dict[str, float]
    """In step, how a worker spends its time; else how busy each stage is. From 0 to 1."""


def forecast(
    costs: RunCosts,
    shape: RunShape,
    hardware: Hardware,
    actors: Sequence[int],
    learners: int = 1,
    *,
    grow: bool = True,
) -> list[PlanRow]:
    """Return one row for each number of actors.

    Args:
        costs: The costs of the run.
        shape: The sizes of a run with one worker.
        hardware: The machines.
        actors: Processes that act; in step, the workers.
        learners: Processes that learn, where workers have roles.
        grow: In step: each worker brings environments and slots of its own. Otherwise all workers
            share those of `shape`.
    """
    predict = _in_step if shape.in_step else _in_roles
    alone = predict(costs, shape, hardware, 1, learners, grow)[0]
    rows = []
    for count in actors:
        rate, updates, limited_by, shares = predict(costs, shape, hardware, count, learners, grow)
        processes = count if shape.in_step else count + learners + shape.shards
        rows.append(
            PlanRow(
                workers=count + shape.apart,
                actors=count,
                learners=count if shape.in_step else learners,
                machines=hardware.machines_for(processes),
                env_steps_per_s=rate,
                updates_per_s=updates,
                efficiency=min(1.0, rate / (count * alone)),
                limited_by=limited_by,
                shares=shares,
            )
        )
    return rows


_Prediction = tuple[float, float, str, dict[str, float]]
"""Environment steps/s, updates/s, what limits, and the shares."""


def _in_step(
    costs: RunCosts, shape: RunShape, hardware: Hardware, workers: int, _: int, grow: bool
) -> _Prediction:
    run = shape.grown(workers) if grow else shape
    loop = loop_time(costs, run, workers, hardware)
    seconds = loop.seconds
    shares = {name: loop.parts[name] / seconds for name in PARTS}
    rate = run.steps * run.num_envs / seconds
    return rate, loop.updates / seconds, max(shares, key=shares.__getitem__), shares


def _in_roles(
    costs: RunCosts, shape: RunShape, hardware: Hardware, actors: int, learners: int, _: bool
) -> _Prediction:
    found = stages(costs, shape, actors, learners, hardware)
    slowest = min(found, key=lambda name: found[name].rate)
    rate = found[slowest].rate
    shares = {name: rate / stage.rate for name, stage in found.items()}
    return rate, rate * shape.updates_per_step, found[slowest].limited_by, shares
