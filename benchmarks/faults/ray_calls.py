"""K7: calls between Ray's processes are lost on the way there or back, or come late.

All processes of the cluster, and the driver, are told by a variable to lose calls at random. That
it landed is proved by what Ray writes into its logs of every call that it loses.
"""

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.node_scene import Broken
from benchmarks.faults.ray_scene import Run, try_on
from benchmarks.machines import Machines

TO_ACTORS = "CoreWorkerService.grpc_client.PushTask"
"""Every call of an actor: all that driver and node actors say to each other."""
ALL = "*"
PREPARE = "NodeManagerService.grpc_client.PrepareBundleResources"
STARTING = [
    (method, kind)
    for method in (
        PREPARE,
        "NodeManagerService.grpc_client.CommitBundleResources",
        "ray::rpc::PlacementGroupInfoGcsService.grpc_client.CreatePlacementGroup",
        "ray::rpc::PlacementGroupInfoGcsService.grpc_client.WaitPlacementGroupUntilReady",
        "ray::rpc::ActorInfoGcsService.grpc_client.RegisterActor",
        "ray::rpc::ActorInfoGcsService.grpc_client.CreateActor",
        "NodeManagerService.grpc_client.RequestWorkerLease",
        "ray::rpc::ControlPlanePubSubGcsService.grpc_client.GcsSubscriberCommandBatch",
        "ray::rpc::ControlPlanePubSubGcsService.grpc_client.GcsSubscriberPoll",
        TO_ACTORS,
    )
    for kind in ("req", "resp")
]
"""Calls that Ray makes until a run has begun, on the way there and back."""
_LOOPS = 12
_STARTS = 5


def _lost(logs: Iterable[Path]) -> int:
    """Return how many calls Ray has lost on purpose."""
    count = 0
    for log in logs:
        with suppress(OSError):
            count += log.read_text(errors="replace").count("Inject RPC")
    return count


@contextmanager
def _cluster(variables: dict[str, str]) -> Iterator[Machines]:
    """Start two machines, again if need be: whether Ray comes up so is not what is tried."""
    with ExitStack() as stack:
        for left in reversed(range(_STARTS)):
            try:
                machines = stack.enter_context(Machines([1, 1], variables=variables))
                break
            except RuntimeError:
                if not left:
                    raise
        yield machines


def _losing(seed: int, faulty: bool, method: str, most: int = -1, **percent: int) -> dict[str, Any]:
    """Train on two machines while calls are lost: all of them, or so many in each process."""
    kinds = {f"{kind}_failure_prob": chance for kind, chance in percent.items()}
    config = json.dumps({method: {"num_failures": most, **kinds}})
    variables = {"RAY_testing_rpc_failure": config} if faulty else {}

    def fault(run: Run, rng: random.Random) -> dict[str, Any]:
        return {}  # it has been there from the start

    with _cluster(variables) as machines:  # new for each trial: Ray leaks what calls get lost about
        got = try_on(
            seed,
            fault if faulty else None,
            from_the_start=True,
            machines=machines,
            environment=variables,
            loops=_LOOPS,
        )
        lost = _lost(machines.logs())
    if bool(lost) != faulty:
        raise Broken(f"{lost} calls were lost: the fault did not land, or where it should not")
    return {**got, "calls_lost": lost}


def requests(seed: int, faulty: bool) -> dict[str, Any]:
    """Of all calls of actors 1 % are lost on the way there."""
    return _losing(seed, faulty, TO_ACTORS, req=1)


def responses(seed: int, faulty: bool) -> dict[str, Any]:
    """Of all answers of actors 1 % are lost on the way back, and 1 % are given up too early."""
    return _losing(seed, faulty, TO_ACTORS, resp=1, in_flight=1)


def everything(seed: int, faulty: bool) -> dict[str, Any]:
    """Of all calls among Ray's processes, whichever they are, 1 % are lost there and 1 % back."""
    return _losing(seed, faulty, ALL, req=1, resp=1)


def at_start(seed: int, faulty: bool) -> dict[str, Any]:
    """One call of those that start a run is lost, once in each process that makes it."""
    method, kind = STARTING[seed % len(STARTING)]
    return {**_losing(seed, faulty, method, most=1, **{kind: 100}), "call": f"{method} {kind}"}


KINDS = {
    "K7-requests": requests,
    "K7-responses": responses,
    "K7-all": everything,
    "K7-start": at_start,
}
