"""What PPO's two workers send each other per update when they are on two machines.

    python -m benchmarks.ray.traffic --seconds 10

Prints one line of JSON. The two machines are two nodes of a private Ray cluster on this one: Ray,
and with it the engine, treats them as two. Each node actor counts the calls that others make to it,
and the bytes of their arguments as pickle has them; Ray's own headers are not seen. An update is
all that is learnt from one rollout: here 4 epochs of 4 minibatches, so 16 gradients.
"""

import argparse
import functools
import json
import logging
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from benchmarks.peers.libraries.muster import ppo_options
from benchmarks.peers.trial import ENV, MATCHED, Speed
from ray.cluster_utils import Cluster

from muster import train
from muster.engines.ray import actor_registry, node_actor

FOLDER = "MUSTER_BENCH_TRAFFIC"
"""Variable that tells node actors where to write their counts."""
CALLS = ("copy", "deliver", "link", "unlink", "counts", "image", "expect", "fill")
"""Methods of a node actor that node actors of other machines call."""


def _counting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)  # and with it the group that Ray runs it in
    def call(self: Any, *args: Any) -> Any:
        calls, size = self.seen.get(method.__name__, (0, 0))
        sent = len(pickle.dumps(args, protocol=5))
        self.seen[method.__name__] = calls + 1, size + sent
        return method(self, *args)

    return call


_leave: Any = node_actor.NodeActor.leave


class CountingNodeActor(node_actor.NodeActor):
    """A node actor that counts what others have it do."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.seen: dict[str, tuple[int, int]] = {}
        super().__init__(*args, **more)

    @ray.method(concurrency_group="orders")
    def leave(self) -> None:
        """Write down the counts, and leave."""
        where = Path(os.environ[FOLDER]) / f"{os.getpid()}.json"
        where.write_text(json.dumps(self.seen))
        _leave(self)


for _name in CALLS:
    if hasattr(node_actor.NodeActor, _name):
        setattr(CountingNodeActor, _name, _counting(getattr(node_actor.NodeActor, _name)))


def run(seconds: float) -> dict[str, Any]:
    """Train on two nodes of a cluster, and return what was sent."""
    actor: Any = ray.remote
    counting = actor(max_restarts=0, concurrency_groups=node_actor._GROUPS)(CountingNodeActor)
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ[FOLDER] = folder
        # A cluster of this kind names itself in a file that others look at, unless this is told.
        os.environ["RAY_TMPDIR"] = folder
        head = {"num_cpus": 1, "include_dashboard": False}
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(num_cpus=1)
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            setattr(actor_registry, "KeeperActor", counting)  # noqa: B010, where it makes them
            trial = Speed(MATCHED, seed=1, threads=1)
            done = train(
                "ppo",
                ENV,
                run_dir=f"{folder}/run",
                env_steps=10**9,
                seconds=seconds,
                stop_at=None,
                eval_every=0,
                eval_episodes=1,
                engine="ray",
                hidden=MATCHED.hidden,
                **ppo_options(trial, workers=2),
            )
        finally:
            ray.shutdown()
            cluster.shutdown()
        written = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    updates = done.env_steps / MATCHED.batch
    per_update: dict[str, float] = {}
    for seen in written:
        for name, (calls, size) in seen.items():
            for what, value in (("calls", calls), ("bytes", size)):
                key = f"{name}, {what}"
                per_update[key] = round(per_update.get(key, 0.0) + value / updates, 3)
    return {
        "node actors": len(written),
        "updates": updates,
        "steps_per_s on one machine's cores": round((done.speed or {})["steps_per_s"], 1),
        "per update": per_update,
    }


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description="What PPO sends between two machines.")
    parser.add_argument("--seconds", type=float, default=10.0, help="to train (10)")
    print(json.dumps(run(parser.parse_args().seconds)))


if __name__ == "__main__":
    # Ray sends classes of this module by name, so it has to have its own.
    from benchmarks.ray import traffic

    traffic.main()
