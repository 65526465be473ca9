"""`ActorRegistry`: the driver's list of node actors: where each runs, and how one is replaced.

start_all   reserve resources -> start an actor for each node -> tell each where the others run
actor_of    a lost actor is replaced in its own bundle, and receives the others' shared memory
"""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from muster.engines.base import Launch
from muster.engines.local.handshake import Secrets
from muster.engines.ray.calls import call_until_answered
from muster.engines.ray.node_actor import ActorLocation, NodeLocation, RemoteNodeActor
from muster.engines.ray.placement import reserve
from muster.engines.ray.replicas import OtherMachine
from muster.engines.ray.versions import check_machines, check_versions
from muster.errors import OptionError, TaskError
from muster.framework.node import Place
from muster.version import __version__

_STANDARD = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
_LEAVE_SECONDS = 5.0


class ActorRegistry:
    """The node actors of a run.

    Args:
        launch: The program.
        needs: Resources of each node, by node id, as `num_cpus` and so on.
        is_own: Whether the cluster was started for this run.
    """

    def __init__(
        self, launch: Launch, needs: Mapping[int, Mapping[str, float]], is_own: bool
    ) -> None:
        self._launch = launch
        self._needs = needs
        self._is_own = is_own
        self._known = Secrets.fresh(__version__)
        self._lock = threading.Lock()
        self._node_actors: dict[int, Any] = {}
        self._where: dict[int, ActorLocation] = {}
        self._lost: set[int] = set(launch.late)
        self.places: dict[int, Place] = {place.node_id: place for place in launch.places}
        """The current place of each node, with its incarnation."""
        self._elastic = launch.places[0].elastic
        """Nodes that join and leave. A program that has such nodes has no shared memory."""
        self.is_spread = False
        """Whether nodes are on several machines."""
        self.memory_lost = False
        """Whether all node actors were lost at once, and with them the shared memory."""
        self._group: Any = None
        self._bundle_of: dict[int, int] = {}

    def start_all(self) -> None:
        """Start an actor for each node, on a machine that has the node's resources.

        Elastic nodes are not in the placement group: Ray would reserve room for all nodes of a lost
        machine together, although each of them can use any free room. `actor_of` starts late nodes,
        and waits until there is room.
        """
        wanted: list[dict[str, float]] = []
        for node, need in self._needs.items():
            bundle = {_STANDARD.get(name, name): amount for name, amount in need.items() if amount}
            if bundle and node not in self._elastic:  # a node without needs can be placed anywhere
                self._bundle_of[node] = len(wanted)
                wanted.append(bundle)
        if wanted:
            self._group = reserve(wanted, self._launch.start_within, self._is_own)
        for node in self._needs:
            if node not in self._launch.late:
                self._node_actors[node] = self._node_actor(node)
        for node, node_actor in self._node_actors.items():
            self._find(node, node_actor, self._launch.start_within)
        self.is_spread = len({where.machine for where in self._where.values()}) > 1
        if self._elastic:
            return
        for nodes in self._machines().values():
            first = self._where[nodes[0]]
            for node in nodes[1:]:
                call_until_answered(
                    partial(self._node_actors[node].join_memory.remote, first.pid, first.memory)
                )
        self._share_machines()

    def actor_of(self, node: int) -> Any:
        """Return the actor of a node that is about to start; replace it first if it was lost."""
        if node in self._lost:
            self._replace(node)
        return self._node_actors[node]

    def lose(self, node: int) -> None:
        """Mark a node's actor as lost: it no longer answers."""
        self._lost.add(node)

    def is_lost(self, node: int) -> bool:
        """Whether a node's actor no longer answers."""
        return node in self._lost

    def end(self, node: int) -> None:
        """Kill a node's actor, if there is one."""
        if node in self._node_actors:
            ray.kill(self._node_actors[node], no_restart=True)

    def threads_of(self, node: int) -> int:
        """Return the number of threads that numeric libraries may use in a node."""
        return max(1, int(self._needs[node].get("num_cpus", 1)))

    def position(self, node: int) -> tuple[int, int]:
        """Return the index of a node among the nodes of its machine, and their number."""
        beside = sorted(self._machines()[self._where[node].machine])
        return beside.index(node), len(beside)

    def locations(self, nodes: Sequence[int]) -> list[NodeLocation]:
        """Return where some nodes run."""
        return [
            NodeLocation(
                self.places[node],
                self._where[node].machine,
                self._where[node].directory,
                self._node_actors[node],
            )
            for node in nodes
        ]

    def stop_all(self) -> None:
        """Stop all node actors, and release their resources."""
        node_actors = list(self._node_actors.values())
        left = {node_actor.leave.remote(): node_actor for node_actor in node_actors}
        if left:
            ray.wait(list(left), num_returns=len(left), timeout=_LEAVE_SECONDS)
        for node_actor in left.values():
            ray.kill(node_actor, no_restart=True)
        for node_actor in left.values():
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(node_actor.location.remote(), timeout=_LEAVE_SECONDS)  # until it has exited
        if self._group is not None:
            remove_placement_group(self._group)

    def ask_all_to_stop(self) -> None:
        """Ask all node actors to stop, without waiting: their cluster is lost."""
        for node_actor in list(self._node_actors.values()):
            with contextlib.suppress(ray.exceptions.RayError):
                node_actor.leave.remote()

    # ---- replacing a lost node actor

    def _replace(self, node: int) -> None:
        self.end(node)  # it may only have been unreachable, and must not live beside the new one
        node_actor = self._node_actor(node)
        self._node_actors[node] = node_actor
        try:
            # This waits until there is room: for an elastic node, without a limit.
            seconds = None if node in self._elastic else self._launch.start_within
            where = self._find(node, node_actor, seconds)
            with self._lock:
                if self._elastic:
                    self._lost.discard(node)
                else:
                    self._bring_up_to_date(node, node_actor, where)
        except BaseException:
            self._lost.add(node)
            self.end(node)
            raise

    def _bring_up_to_date(self, node: int, node_actor: Any, where: ActorLocation) -> None:
        """Give a new node actor the shared memory, and the locations of the others."""
        machines = self._machines()  # its node still counts as lost
        beside = machines.get(where.machine, [])
        if beside:
            elder = self._where[beside[0]]
            call_until_answered(partial(node_actor.join_memory.remote, elder.pid, elder.memory))
        elif machines and self.is_spread:
            call_until_answered(node_actor.expect.remote)
        else:
            self.memory_lost = True
        self._lost.discard(node)
        self._share_machines()
        if self.memory_lost:
            return
        source = self._share_last_of(node, [nodes[0] for nodes in machines.values()])
        if not beside:
            image = self._node_actors[source].image
            call_until_answered(
                lambda: node_actor.fill.remote(image.remote())
            )  # directly from one actor to the other

    def _share_last_of(self, node: int, asked: Sequence[int]) -> int:
        """Replicate a lost node's last publication to all machines; return a node on one of them.

        The publication may have reached only some of them.
        """
        known = {
            other: call_until_answered(partial(self._node_actors[other].known_of.remote, node))
            for other in asked
            if other not in self._lost
        }
        most = max(count for count, _ in known.values())
        last = [what for _, what in known.values() if what is not None and what[2] == most]
        for other, (count, _) in known.items():
            if count < most:
                if not last:
                    raise TaskError(
                        f"the last publication of {self.places[node].name} is lost",
                        "all machines that had a copy are lost",
                        "--resume, which continues from the last checkpoint",
                    )
                call_until_answered(partial(self._node_actors[other].copy.remote, *last[0]))
        return next(other for other in known)

    # ---- helpers

    def _node_actor(self, node: int) -> Any:
        options: dict[str, Any] = {"num_cpus": 0}
        need = dict(self._needs[node])
        options.update({name: need.pop(name) for name in _STANDARD if name in need})
        if need:
            options["resources"] = need
        if node in self._bundle_of:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=self._bundle_of[node]
            )
        return RemoteNodeActor.options(**options).remote(self.places[node], self._known)

    def _find(self, node: int, node_actor: Any, seconds: float | None) -> ActorLocation:
        """Wait until a node actor runs, at most this many seconds, and record its location."""
        try:
            where: ActorLocation = call_until_answered(node_actor.location.remote, seconds)
        except ray.exceptions.GetTimeoutError:
            raise OptionError(
                f"{self.places[node].name} has no machine",
                f"in {seconds:g} s no machine had room for {dict(self._needs[node])}",
                "a larger cluster, or fewer nodes; ray status shows who uses what",
            ) from None
        except ray.exceptions.RayError as error:
            if _is_of_the_machine(error):
                check_machines(ray)
            raise
        check_versions(where.versions, f"the machine {where.address}")
        self._where[node] = where
        return where

    def _machines(self) -> dict[str, list[int]]:
        """Return the nodes of each machine whose actors are alive."""
        found: dict[str, list[int]] = {}
        for node, where in sorted(self._where.items()):  # a copy: other threads may add nodes
            if node not in self._lost:
                found.setdefault(where.machine, []).append(node)
        return found

    def _share_machines(self) -> None:
        """Tell every node actor which actors run on other machines; wait until it knows."""
        machines = self._machines()
        known = {name: self._other_machine(nodes) for name, nodes in machines.items()}
        asked = {}
        for machine, nodes in machines.items():
            others = [there for name, there in known.items() if name != machine]
            asked.update(
                {
                    node: partial(self._node_actors[node].set_machines.remote, others)
                    for node in nodes
                }
            )
        under_way = {node: call() for node, call in asked.items()}
        for node, call in asked.items():
            try:
                call_until_answered(call, begun=under_way[node])
            except ray.exceptions.RayError:  # lost too; its own thread will notice
                self._lost.add(node)
                self.end(node)

    def _other_machine(self, nodes: Sequence[int]) -> OtherMachine:
        """Return a machine as other machines see it; it listens only if there are other machines.

        Args:
            nodes: The nodes on it.
        """
        first, port = nodes[0], 0
        for node in nodes if self.is_spread else ():
            with contextlib.suppress(ray.exceptions.RayError):  # lost, or cannot listen: Ray calls
                listen = self._node_actors[node].listen
                port = max(port, call_until_answered(partial(listen.remote, node == first)))
        node_actors = [self._node_actors[each] for each in nodes]
        return OtherMachine(node_actors, first, self._where[first].address, port)


def _is_of_the_machine(error: Exception) -> bool:
    """Whether its machine may be the cause: the actor could not start, or Ray cannot say why."""
    return not isinstance(error, ray.exceptions.RayActorError) or "creation task" in str(error)
