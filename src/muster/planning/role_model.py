"""The rate of a run with roles: DQN, SAC, Ape-X, R2D2, IMPALA, APPO, A3C. Pure functions.

    actors ──fragments──> learner (with replicas) ──weights──> actors

The run is as fast as its slowest stage: actors, learner, cores or link. An actor may have a few
fragments that are not learnt from yet (`in_flight`), so it also waits if the way to the learner and
back takes longer than collecting them. Weights are sent newest only: a slow link makes them older,
but nobody waits for them, except in the program `gradients`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from muster.planning.costs import LEAST_S, RunCosts
from muster.planning.hardware import Hardware
from muster.planning.shape import RunShape

_MESSAGES = 3
"""Messages of an update for each replica: the batch, its gradients, the sum."""


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline."""

    rate: float
    """The highest rate that the stage allows, in environment steps per second of the run."""
    parts: Mapping[str, float]
    """Seconds for each environment step, by activity."""

    @property
    def limited_by(self) -> str:
        """The activity that takes most of the stage's time."""
        return max(self.parts, key=self.parts.__getitem__)


def stages(
    costs: RunCosts, shape: RunShape, actors: int, learners: int, hardware: Hardware
) -> dict[str, Stage]:
    """Return the stages of a run by name: `actors`, `learner`, `cores` and `link`.

    Args:
        costs: The costs of the run.
        shape: The sizes of the run.
        actors: Processes that act.
        learners: Processes that learn: the learner and its replicas.
        hardware: The machines.
    """
    processes = actors + learners + shape.shards
    machines = hardware.machines_for(processes)
    remote = _remote_actors(actors, learners + shape.shards, machines)
    own = actor_parts(costs, shape)
    learning = _learner_parts(costs, shape, learners, hardware, machines > 1)
    learner_s = sum(learning.values())
    found = {
        "actors": _actor_stage(costs, shape, actors, own, learner_s, hardware, remote),
        "learner": Stage(_rate(1.0, learner_s), learning),
    }
    # Replicas compute their shares of each update at the same time as the learner.
    replicas_s = (learners - 1) * learning["learn"]
    busy = sum(own.values()) + learner_s + replicas_s
    found["cores"] = Stage(_rate(machines * hardware.cores, busy), {"cores": busy})
    sent = _bytes_per_step(costs, shape) * remote / actors / hardware.bytes_per_s
    found["link"] = Stage(_rate(1.0, sent), {"link": sent})
    return found


def actor_parts(costs: RunCosts, shape: RunShape) -> dict[str, float]:
    """Return the seconds of an actor for each of its environment steps, by activity."""
    envs = shape.num_envs
    parts = {
        "env": costs.env.of(envs) / envs,
        "act": costs.act.of(envs) / envs,
        "exchange": costs.send_s,
    }
    if shape.program == "gradients":
        parts["learn"] = costs.learn.of(shape.rows) / shape.rows
    return parts


def _actor_stage(
    costs: RunCosts,
    shape: RunShape,
    actors: int,
    own: Mapping[str, float],
    learner_s: float,
    hardware: Hardware,
    remote: int,
) -> Stage:
    """Return the stage of the actors, with their waiting for the learner and the link."""
    fragment = shape.steps * shape.num_envs
    busy = sum(own.values())
    if not remote:
        way = 0.0
    else:
        size = _bytes_per_step(costs, shape) * fragment
        if shape.program == "gradients":
            size *= 2  # the gradient there, the weights back
        way = (2 * hardware.latency_s + size / hardware.bytes_per_s) / fragment
    in_turn = (busy + way + learner_s) / shape.in_flight(actors)
    parts = dict(own)
    late = in_turn - busy
    if late > 0:  # shared by the two causes, in proportion
        parts["link"] = late * way / (way + learner_s)
        parts["pace"] = late - parts["link"]
    return Stage(_rate(actors, max(busy, in_turn)), parts)


def _learner_parts(
    costs: RunCosts, shape: RunShape, learners: int, hardware: Hardware, spread: bool
) -> dict[str, float]:
    """Return the seconds of the learner for each environment step of the run, by activity."""
    other = "replay" if shape.program == "replay" else "exchange"
    if shape.program == "gradients":  # workers compute the gradients
        return {"learn": 0.0, other: costs.rest.row}
    share = math.ceil(shape.learner_slots / learners) / shape.learner_slots
    updates = shape.updates_per_step
    parts = {"learn": updates * costs.learn.of(share * shape.rows), other: costs.rest.row}
    if learners > 1:
        replicas = learners - 1
        messages = _MESSAGES * replicas * costs.message_s
        parts["exchange"] = parts.get("exchange", 0.0) + updates * messages
        if spread:
            batch = shape.rows * costs.sample_bytes
            shares = shape.learner_slots * (1 - share) * costs.weight_bytes
            out = replicas * (batch + costs.weight_bytes)
            moved = max(out, shares) / hardware.bytes_per_s
            parts["link"] = updates * (2 * hardware.latency_s + moved)
    return parts


def _bytes_per_step(costs: RunCosts, shape: RunShape) -> float:
    """Return the bytes that an actor sends for each environment step."""
    if shape.program == "gradients":
        return costs.weight_bytes / (shape.steps * shape.num_envs)
    return costs.sample_bytes


def _remote_actors(actors: int, others: int, machines: int) -> int:
    """Return how many actors are on other machines than the learner.

    The learner's machine has the other roles first, then actors, up to its share of all processes.
    """
    if machines == 1:
        return 0
    of_first = math.ceil((actors + others) / machines)
    return actors - max(0, min(actors, of_first - others))


def _rate(count: float, seconds: float) -> float:
    return count / max(seconds, LEAST_S)
