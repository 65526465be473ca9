"""The time of one loop of workers in step: PPO, A2C, PQN. Pure functions.

    loop = collect + rest + updates * update + barriers + stragglers + link

Every worker does the same with its own slots, and all meet at a barrier after collecting, after
preparing, after each update and at the end. On several machines each worker sends the gradients of
its slots to every other machine before it counts as arrived (`engines.ray.replicas`).
"""

import math
from dataclasses import dataclass

from muster.planning.costs import LEAST_S, RunCosts
from muster.planning.hardware import Hardware
from muster.planning.shape import RunShape
from muster.planning.stragglers import waiting

_OTHER_BARRIERS = 3
"""Barriers of a loop that belong to no update: collected, prepared, ended."""
_LOOK_S = 1e-7
"""Seconds to read the counter of one more worker in shared memory."""


@dataclass(frozen=True)
class LoopTime:
    """Seconds of one loop of the slowest worker, by activity."""

    env: float
    act: float
    learn: float
    rest: float
    exchange: float
    """At barriers, and waiting for the slowest worker."""
    link: float
    """Latency and transfer between machines."""
    updates: float
    """Updates in the loop; not seconds."""

    @property
    def parts(self) -> dict[str, float]:
        """All seconds by name."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def seconds(self) -> float:
        """Seconds of the whole loop."""
        return max(LEAST_S, sum(self.parts.values()))


PARTS = ("env", "act", "learn", "exchange", "link", "rest")


def loop_time(costs: RunCosts, shape: RunShape, workers: int, hardware: Hardware) -> LoopTime:
    """Return the time of one loop of `shape.steps * shape.num_envs` environment steps."""
    share = math.ceil(shape.slots / workers) / shape.slots  # of the worker with most slots
    slow = hardware.slowdown(workers)
    envs = share * shape.num_envs
    env = shape.steps * costs.env.of(envs) * slow
    act = shape.steps * costs.act.of(envs) * slow
    rest = costs.rest.of(shape.steps * envs) * slow
    updates = shape.steps * shape.num_envs * shape.updates_per_step * costs.learnt
    more_slots = max(0, shape.slots - costs.slots)  # every worker adds up the rows of all slots
    adding = more_slots * costs.weight_bytes / costs.copy_bytes_per_s
    update = (costs.learn.of(share * shape.rows) + adding) * slow
    exchange, link = exchange_time(
        costs, workers, hardware, (env + act + rest, update), updates, share * shape.slots
    )
    return LoopTime(env, act, updates * update, rest, exchange, link, updates)


def exchange_time(
    costs: RunCosts,
    workers: int,
    hardware: Hardware,
    sections: tuple[float, float],
    updates: float,
    slots: float,
) -> tuple[float, float]:
    """Return the seconds of a loop at barriers and for stragglers, and on the link.

    Args:
        costs: The costs of the run.
        workers: Number of workers.
        hardware: The machines.
        sections: Seconds of collecting, and of one update.
        updates: Updates of the loop.
        slots: Slots of the worker with most.
    """
    if workers == 1:
        return 0.0, 0.0
    collect, update = sections
    late = waiting(1, collect, costs.variance_per_s, workers)
    late += waiting(updates, update, costs.variance_per_s, workers)
    machines = hardware.machines_for(workers)
    here = math.ceil(workers / machines)
    barriers = updates + _OTHER_BARRIERS
    barrier = costs.barrier_s + (here - 1) * _LOOK_S
    if machines == 1:
        return late + barriers * barrier, 0.0
    # Each worker sends to each other machine; one process of a machine takes what all others send.
    barrier += costs.message_s * ((machines - 1) + (workers - here))
    row_bytes = slots * costs.weight_bytes * here * (machines - 1)
    link = barriers * 2 * hardware.latency_s + updates * row_bytes / hardware.bytes_per_s
    return late + barriers * barrier, link
