"""Turns measurements into `RunCosts` with which the models return what was measured. Pure.

in step   one size: costs in proportion to rows; two sizes: also the constant part of each call
in roles  one process: what an actor and a learner do; with an actor: what they do in addition
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from muster.planning.costs import Affine, RunCosts
from muster.planning.hardware import Hardware
from muster.planning.in_step_model import exchange_time
from muster.planning.measurement import Measurement
from muster.planning.shape import ROLES_APART, RunShape

_HALVINGS = 200
"""Enough to find a variance to the last bit."""
_IDLE = 0.05
"""A learner that waits longer than this fraction of its time is limited by its actors."""


@dataclass(frozen=True)
class CalibratedRun:
    """What costs are of, and what was measured apart from training."""

    algo: str
    env_id: str
    network: dict[str, Any]
    barrier_s: float
    message_s: float


def costs_in_step(
    about: CalibratedRun, shape: RunShape, base: Measurement, larger: Measurement | None = None
) -> RunCosts:
    """Return the costs of workers in step.

    Args:
        about: The run.
        shape: Its sizes.
        base: A measurement with the environments of `shape`.
        larger: Another one with more environments, and as many workers.
    """
    workers = max(1, base.workers)
    share = math.ceil(shape.slots / workers) / shape.slots
    slow = Hardware(1, base.cores).slowdown(workers)
    loops = [_loop(shape, base, share, slow)]
    loops += [_loop(shape, larger, share, slow)] if larger is not None else []
    first = loops[0]
    costs = RunCosts(
        algo=about.algo,
        env_id=about.env_id,
        program=shape.program,
        network=about.network,
        env=_line("env", loops),
        act=_line("act", loops),
        learn=_line("learn", loops),
        rest=_line("rest", loops),
        barrier_s=about.barrier_s,
        message_s=about.message_s,
        variance_per_s=base.spread**2 * first.seconds,
        sample_bytes=base.sample_bytes,
        weight_bytes=base.weight_bytes,
        copy_bytes_per_s=base.copy_bytes_per_s,
        learnt=base.samples_per_step / shape.samples_per_step,
        slots=shape.slots,
        measured=base.shown(),
    )
    if workers == 1:
        return costs
    return _with_exchange(costs, shape, base, first, slow, share)


@dataclass(frozen=True)
class _Loop:
    """One measured loop of a worker, in calls and rows."""

    seconds: float
    calls: dict[str, float]
    """Number of calls by activity."""
    rows: dict[str, float]
    """Rows of each call by activity."""
    each: dict[str, float]
    """Seconds of each call by activity, on a core of its own."""


def _loop(shape: RunShape, found: Measurement, share: float, slow: float) -> _Loop:
    steps = shape.steps * found.num_envs
    rows = shape.rows * found.num_envs / shape.num_envs
    updates = steps * found.samples_per_step / rows
    calls = {"env": shape.steps, "act": shape.steps, "learn": updates, "rest": 1}
    seconds = {part: steps * found.seconds(part) / slow for part in calls}
    if found.workers < 2:  # it meets nobody, but arrives at its barriers
        seconds["rest"] += steps * found.seconds("exchange")
    envs = share * found.num_envs
    return _Loop(
        steps / found.steps_per_s,
        {part: float(count) for part, count in calls.items()},
        {"env": envs, "act": envs, "learn": share * rows, "rest": shape.steps * envs},
        {part: seconds[part] / count if count else 0.0 for part, count in calls.items()},
    )


def _line(part: str, loops: list[_Loop]) -> Affine:
    """Return the cost of a call: in proportion to rows if there is only one size."""
    rows, seconds = loops[0].rows[part], loops[0].each[part]
    if len(loops) == 1:
        return Affine(0.0, seconds / rows)
    return Affine.through(rows, seconds, loops[1].rows[part], loops[1].each[part])


def _with_exchange(
    costs: RunCosts,
    shape: RunShape,
    base: Measurement,
    loop: _Loop,
    slow: float,
    share: float,
) -> RunCosts:
    """Return costs whose barriers and stragglers take the measured time of `exchange`."""
    measured = loop.seconds * base.split["exchange"]
    updates = loop.calls["learn"]
    work = {part: loop.calls[part] * loop.each[part] * slow for part in loop.calls}
    sections = (work["env"] + work["act"] + work["rest"], loop.each["learn"] * slow)
    here = Hardware(1, base.cores)

    def exchange(each: RunCosts) -> float:
        slots = share * shape.slots
        return exchange_time(each, base.workers, here, sections, updates, slots)[0]

    waits = exchange(replace(costs, barrier_s=0.0))
    if waits > measured:
        low, high = 0.0, costs.variance_per_s
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            found = replace(costs, barrier_s=0.0, variance_per_s=middle)
            low, high = (middle, high) if exchange(found) < measured else (low, middle)
        return replace(costs, barrier_s=0.0, variance_per_s=high)
    each_barrier = exchange(replace(costs, barrier_s=1.0)) - waits
    return replace(costs, barrier_s=(measured - waits) / each_barrier)


def costs_in_roles(
    about: CalibratedRun,
    shape: RunShape,
    alone: Measurement | None,
    together: Measurement | None,
    cores: int,
) -> RunCosts:
    """Return the costs of a run with roles.

    Args:
        about: The run.
        shape: Its sizes.
        alone: A measurement of one process.
        together: A measurement of actors and one learner; one of the two has to be given.
        cores: Cores that both had.
    """
    base = together or alone
    assert base is not None
    if alone is not None:
        own = {part: alone.seconds(part) for part in ("env", "act", "learn", "rest")}
    else:
        own = {"env": base.bare_env_s, "act": base.bare_act_s, "learn": 0.0, "rest": 0.0}
    send = 0.0
    if together is not None:
        own, send = _in_addition(own, together, shape, cores)
    return RunCosts(
        algo=about.algo,
        env_id=about.env_id,
        program=shape.program,
        network=about.network,
        env=Affine(0.0, own["env"]),
        act=Affine(0.0, own["act"]),
        learn=Affine(0.0, own["learn"] / shape.samples_per_step),
        rest=Affine(0.0, own["rest"]),
        send_s=send,
        barrier_s=about.barrier_s,
        message_s=about.message_s,
        sample_bytes=base.sample_bytes,
        weight_bytes=base.weight_bytes,
        copy_bytes_per_s=base.copy_bytes_per_s,
        measured=base.shown(),
    )


def _in_addition(
    own: dict[str, float], together: Measurement, shape: RunShape, cores: int
) -> tuple[dict[str, float], float]:
    """Return the costs of both sides in a run with actors, and what actors spend on sending."""
    actors = together.workers - ROLES_APART - shape.shards
    waits = together.split["exchange"]
    learner = {"learn": together.seconds("learn"), "rest": together.seconds("rest")}
    acting = ("env", "act", "learn") if shape.program == "gradients" else ("env", "act")
    known = sum(own[part] for part in acting)
    # The time of actors for each environment step: all of it, if the learner waits for them, but
    # not more than the cores that the learner leaves.
    each = actors / together.steps_per_s
    if shape.in_flight(actors) == 1:  # an actor and the learner take turns
        each -= sum(learner.values())
    each = min(each, (cores - (1 - waits)) / together.steps_per_s)
    if waits < _IDLE and known:
        each = min(each, known)
    each = max(each, 0.0)
    scale = min(1.0, each / known) if known else 0.0
    found = {part: own[part] * scale for part in acting}
    found["rest"] = learner["rest"]
    if shape.program == "gradients":
        return found, each - sum(found[part] for part in acting)
    found["learn"] = learner["learn"]
    return found, each - found["env"] - found["act"]
