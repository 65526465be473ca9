"""The programs that the contract tests run on nodes: a new process has to find them in a file.

Whatever waits here has a deadline, so that a broken promise is a failure and not a hang.
"""

import time
from pathlib import Path

from muster import Parallel, Task

LONG = 200.0


def until(condition, what, seconds=LONG):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for: {what}")
        time.sleep(0.001)


def within(seconds=LONG):
    """Return a middleware that raises when the run takes too long."""
    deadline = time.monotonic() + seconds

    def in_time(ctx):
        if time.monotonic() > deadline:
            raise AssertionError(f"the run went on for {seconds} s")
        time.sleep(0.0005)

    return in_time


class WholeTeamReady:
    """A middleware that ends the run once every node has what it waits for."""

    def __init__(self, task, size, is_ready):
        self.task, self.size, self.is_ready = task, size, is_ready
        self.heard, self.sent = set(), False
        task.on("ready", self.heard.add)
        task.use(within())

    def __call__(self, ctx):
        if not self.sent and self.is_ready():
            self.sent = True
            self.task.emit("ready", self.task.router.node_id)
        if self.task.router.node_id == 0 and len(self.heard) == self.size:
            ctx.finish = True


def nothing(ctx): ...


# ---- nodes, labels, router


def echo(*args, **kwargs):
    with Task() as task:
        return task.router.node_id, args, kwargs


def returns_after_the_next_one(directory, size):
    """Return on the last node first, on node 0 last."""
    with Task() as task:
        me = task.router.node_id
    if me + 1 < size:
        until(Path(directory, str(me + 1)).exists, "the next node")
    Path(directory, str(me)).touch()
    return me


def describe(labels=()):
    with Task(labels=list(labels)) as task:
        router = task.router
        return {
            "labels": set(router.labels),
            "peers": list(router.peers),
            "node_id": router.node_id,
            "is_active": router.is_active,
        }


def filtered(filters):
    """Return which of the filters had their middleware run here."""
    ran = []
    with Task() as task:
        for filter_labels in filters:
            name = ",".join(filter_labels)
            task.use(lambda ctx, name=name: ran.append(name), filter_labels=filter_labels)
        task.run(1, end="own")
    return ran


def for_nobody(directory):
    with Task() as task:
        task.use(lambda ctx: Path(directory, "looped").touch())
        task.use(nothing, filter_labels=["role.critic"])
        task.run(1)


def for_a_label_of_one_task():
    ran = []
    with Task() as task:
        me = task.router.node_id
    with Task(labels=["special"] if me == 1 else []) as task:
        task.use(lambda ctx: ran.append(me), filter_labels=["special"])
        task.run(1, end="own")
    return ran


# ---- misuse


def touches(directory, argument=None):
    Path(directory, "touched").touch()


def starts_nodes_on_a_node(engine):
    Parallel.runner(2, engine=engine)(echo)
