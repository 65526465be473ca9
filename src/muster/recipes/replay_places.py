"""Where replay is stored: in the only process, at the learner, or in shards on nodes.

alone                 ReplayBuffer
--replay-shards 0     learner ReplayBuffer        actors the same class, which sends
--replay-shards K     learner ShardedReplay       actors ShardFeed        K nodes ReplayShard
"""

from typing import Any

from muster.data import (
    VERSION,
    Column,
    ReplayBuffer,
    ReplayShard,
    SamplesPerInsert,
    ShardedReplay,
    ShardFeed,
)
from muster.framework.node import nodes_here
from muster.framework.router import Router
from muster.recipes.job import Job, Spaces
from muster.seeding import derive_seed

ON_FAILURE = {
    "learner": "resume",
    "evaluator": "restart",
    "replay": "restart",
    "actor": "restart",
    "replica": "restart",
}


def roles_of(job: Job) -> dict[str, int]:
    """Return the number of nodes of each role, without replicas."""
    if not job.workers:
        return {"learner": 1}
    shards = job.cfg.replay_shards
    roles = {
        "learner": 1,
        "evaluator": 1,
        "replay": shards,
        "actor": job.workers - 2 - shards,
    }
    return {role: count for role, count in roles.items() if count}


def steps_of_fragment(job: Job) -> int:
    """Return the number of vector steps that an actor sends at once.

    All experience in flight was collected with older weights: the more actors there are, the less
    each sends at once, down to the smallest size that is worth a message.
    """
    return max(8, 16 // roles_of(job)["actor"])


def envs_of_actor(job: Job, router: Router) -> tuple[range, int]:
    """Return the numbers of an actor's environments among those of all actors, and their total.

    Actors are the last of the roles of `roles_of`. If actors join and leave, only those that are
    present count: whatever their number, their exploration covers the whole range.
    """
    count = job.options.num_envs
    if job.elastic:
        here = nodes_here("actor")
        first = here.index(router.node_id) * count
        return range(first, first + count), len(here) * count
    actors = roles_of(job)["actor"]
    first = (router.node_id - (job.workers - actors)) * count
    return range(first, first + count), actors * count


def buffer_alone(job: Job, spaces: Spaces) -> ReplayBuffer:
    """Return the buffer of a one-process run."""
    seed = derive_seed(job.options.seed, "replay")
    size = job.cfg.buffer_size
    return _buffer(job, spaces, size, min_size=job.cfg.learning_starts, seed=seed)


def replay_to_send_to(job: Job, spaces: Spaces, router: Router) -> ReplayBuffer | ShardFeed:
    """Return the replay that an actor pushes to."""
    if job.cfg.replay_shards:
        # Returns and sequences end with a turn; and no shard may fill while another is empty.
        steps = min(_rows(job) // 4, 16 * max(8, job.cfg.unit.steps))
        turn = max(1, steps * job.options.num_envs)
        return ShardFeed(_shards(job), first=router.node_id, turn=turn)
    return _buffer_at_learner(job, spaces)


def replay_to_learn_from(job: Job, spaces: Spaces, router: Router) -> ReplayBuffer | ShardedReplay:
    """Return the replay that the learner samples from."""
    cfg = job.cfg
    if not cfg.replay_shards:
        return _buffer_at_learner(job, spaces)
    return ShardedReplay(
        _shards(job),
        cfg.replay_shards * _rows(job) * job.options.num_envs,
        prioritized=cfg.prioritized,
        min_size=cfg.learning_starts,
        seed=derive_seed(job.options.seed, "replay"),
        limiter=_limiter(job),
        session=router.incarnation,
    )


def shard_of_replay(job: Job, spaces: Spaces, router: Router) -> ReplayShard:
    """Return the shard of a node of the role `replay`."""
    capacity = _rows(job) * job.options.num_envs
    return ReplayShard(
        lambda: _buffer(job, spaces, capacity, VERSION),
        router.node_id,
        generation=router.incarnation,
    )


def load_replay(replay: ReplayBuffer | ShardedReplay, state: dict[str, Any]) -> None:
    """Restore replay from a checkpoint; no actor continues the episodes in it."""
    replay.load_state_dict(state)
    if isinstance(replay, ReplayBuffer):
        replay.cut_episodes()


def _shards(job: Job) -> range:
    """Return the ids of the shard nodes: the learner and the evaluator come first."""
    return range(2, 2 + job.cfg.replay_shards)


def _rows(job: Job) -> int:
    rows: int = job.cfg.buffer_size // job.cfg.replay_shards // job.options.num_envs
    return rows


def _buffer_at_learner(job: Job, spaces: Spaces) -> ReplayBuffer:
    return _buffer(
        job,
        spaces,
        job.cfg.buffer_size,
        min_size=job.cfg.learning_starts,
        seed=derive_seed(job.options.seed, "replay"),
        home="role.learner",
        limiter=_limiter(job),
        in_flight=1,  # an actor collects the next while one is learnt from: more would be older
    )


def _buffer(
    job: Job, spaces: Spaces, capacity: int, *columns: Column, **options: Any
) -> ReplayBuffer:
    cfg = job.cfg
    return ReplayBuffer(
        capacity,
        *spaces,
        num_envs=job.options.num_envs,
        unit=cfg.unit,
        columns=(*cfg.schema, *columns),
        gamma=cfg.gamma,
        prioritized=cfg.prioritized,
        alpha=cfg.alpha,
        **options,
    )


def _limiter(job: Job) -> SamplesPerInsert:
    cfg = job.cfg
    ratio = float(cfg.batch_size * cfg.updates_per_step_exactly())
    # The learner inserts only when it may not sample, so this much room is enough.
    return SamplesPerInsert(
        ratio, max(cfg.learning_starts, cfg.batch_size), error_buffer=max(1.0, ratio)
    )
