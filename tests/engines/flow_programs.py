"""Programs for the tests of what moves between nodes: weights, gradients, replay, times."""

import io
import time
from dataclasses import replace

import numpy as np

from muster import Context, StepTimer, Task
from muster.data import ReplayBuffer, SamplesPerInsert, StepBlock
from muster.errors import TaskError
from muster.flow import Channel, GradientSum, ParameterServer


def pushes_versions(count):
    """Node 0 pushes, the others pull until the last; return versions and sums that were seen."""
    server = ParameterServer(home=0)
    if server.is_home:
        for number in range(1, count + 1):
            server.push({"w": np.full(1000, number, np.float32)}, train_iter=number)
        return server.version
    seen = []
    while not seen or seen[-1][1] < count:
        weights = server.pull(newer_than=seen[-1][0] if seen else None)
        values = np.unique(weights.values["w"])
        assert len(values) == 1  # whole
        seen.append((weights.version, int(values[0]), weights.info["train_iter"]))
    return seen


def pushes_from_everywhere():
    """Return what a node that is not home hears when it pushes."""
    server = ParameterServer(home="node.0")
    try:
        server.push({"w": 1})
    except Exception as error:
        return str(error)
    return server.version


def applies_gradients_once(count):
    """Nodes send numbered gradients; home adds each once. Return the total."""
    server = ParameterServer({"w": 0.0}, home=0)
    if not server.is_home:
        for number in range(count):
            server.push_gradients(np.float64(number + 1), version=server.pull().version)
        return None
    total, left = 0.0, 2 * count
    for version, gradient in server.gradients():
        assert version >= 1
        total += float(gradient)
        left -= 1
        if left == 0:
            return total
    return None


def sums_rows(members, rounds):
    """Return the bytes of the sums of random rows."""
    from muster.framework.node import current_node

    me = current_node().place.node_id
    group = GradientSum(members)
    rng = np.random.default_rng(me)
    sums = []
    for _ in range(rounds):
        time.sleep(rng.random() / 200)  # whoever comes first, the sum is the same
        sums.append(group.sum(rng.standard_normal(5000).astype(np.float32)).tobytes())
    return sums


def _transitions(node, start, steps=4, envs=2):
    number = start + np.arange(steps * envs).reshape(steps, envs)
    obs = np.stack([np.full_like(number, node), number], axis=-1).astype(np.float32)
    none = np.zeros((steps, envs), bool)
    return StepBlock.of(
        obs=obs,
        action=np.zeros((steps, envs), np.int64),
        reward=number.astype(np.float32),
        next_obs=obs + np.float32([0, 0.5]),
        terminated=none,
        truncated=none,
    )


def feeds_replay(pushes, samples):
    """Actors push numbered transitions, node 0 receives and samples; return what it found."""
    from gymnasium.spaces import Box, Discrete

    buffer = ReplayBuffer(
        10_000,
        Box(-1e9, 1e9, (2,), np.float32),
        Discrete(2),
        num_envs=2,
        n_step=3,
        gamma=1.0,
        min_size=32,
        home=0,
        limiter=SamplesPerInsert(2.0, 32, 64.0),
    )
    with Task() as task:
        if task.router.node_id:

            def push(ctx: Context) -> None:
                data = _transitions(task.router.node_id, 8 * ctx.total_step)
                ctx.finish = not buffer.push(data, version=ctx.total_step, note=ctx.total_step)

            task.use(push)
            task.run(max_step=pushes, end="own")
            return buffer.feed.waited
        found = {"next": True, "node": True, "ratio": []}

        def learn(ctx: Context) -> None:
            if not buffer.receive(samples):
                ctx.finish = True
                return
            batch = buffer.sample(samples)
            steps = batch.next_obs[:, 1] - batch.obs[:, 1]
            # Three steps of two environments; fewer before the half step that ends a fragment.
            found["next"] &= bool(np.isin(steps, [0.5, 2.5, 4.5, 6.0]).all())
            found["node"] &= bool((batch.next_obs[:, 0] == batch.obs[:, 0]).all())
            limiter = buffer.limiter
            found["ratio"].append((limiter.samples, limiter.inserts))

        task.use(learn)
        task.run(max_step=40)
    return found, buffer.feed.versions


def times_steps():
    """Return what a step timer prints on each node."""
    out = io.StringIO()
    with Task() as task:

        def work(ctx: Context) -> None:
            if task.router.node_id == 0 and ctx.total_step > 5:
                time.sleep(0.02)
                ctx.finish = ctx.total_step > 40

        task.use_step_wrapper(StepTimer(print_per_step=5, file=out))
        task.use(work)
        task.run()
    return out.getvalue()


def cores_and_threads():
    """Return the cores of this node, and how many threads numeric libraries may use."""
    import os

    return sorted(os.sched_getaffinity(0)), int(os.environ["OMP_NUM_THREADS"])


def two_buffers(count):
    """Node 1 pushes actions 0 into one buffer and 1 into another; return what each received."""
    from gymnasium.spaces import Box, Discrete

    spaces = Box(-1e9, 1e9, (2,), np.float32), Discrete(2)
    pieces = {"num_envs": 2, "home": 0, "min_size": 8 * count}
    buffers = [ReplayBuffer(1000, *spaces, name=name, **pieces) for name in "ab"]
    with Task() as task:
        if task.router.node_id:
            for number in range(count):
                for action, buffer in enumerate(buffers):
                    data = _transitions(1, 8 * number)
                    buffer.push(replace(data, action=np.full_like(data.action, action)))
            task.run(max_step=1, end="own")
            return None
        received = [buffer.receive(16) for buffer in buffers]
        task.run(max_step=1)
    assert received == [True, True]
    return [np.unique(buffer.sample(16).action).tolist() for buffer in buffers]


def opens_twice():
    """Return what each kind says to a second one of its name on this node."""
    from gymnasium.spaces import Box, Discrete

    spaces = Box(-1, 1, (2,), np.float32), Discrete(2)
    kinds = {
        "channel": lambda: Channel("twice"),
        "server": lambda: ParameterServer(name="twice"),
        "sum": lambda: GradientSum([0, 1], name="twice"),
        "replay": lambda: ReplayBuffer(10, *spaces, num_envs=1, home=0),
    }
    said = {}
    for kind, open_one in kinds.items():
        first = open_one()
        try:
            open_one()
        except TaskError as error:
            said[kind] = str(error)
        del first
    return said
