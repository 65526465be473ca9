"""`Roll`: the driver's list of all keepers: where each is, who is beside it, who takes its place.

all keepers are there -> each knows the others -> nodes start
a keeper is lost      -> a new one in its bundle, which knows the others and what they know -> ...
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
from muster.engines.ray.calls import heard
from muster.engines.ray.keeper import KeeperActor, Neighbour, Whereabouts
from muster.engines.ray.placement import reserve
from muster.engines.ray.versions import check_machines, check_versions
from muster.errors import OptionError, TaskError
from muster.framework.node import Place
from muster.version import __version__

_STANDARD = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
_LEAVE_SECONDS = 5.0


class Roll:
    """All keepers of a run.

    Args:
        launch: The program.
        needs: What each node is to have, by node id, as `num_cpus` and the like.
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
        self._keepers: dict[int, Any] = {}
        self._where: dict[int, Whereabouts] = {}
        self._lost: set[int] = set()
        self.places: dict[int, Place] = {place.node_id: place for place in launch.places}
        """As they are now, with their incarnations."""
        self.is_spread = False
        """Whether nodes are on several machines."""
        self.memory_lost = False
        """Whether all keepers were lost at once, and so what nodes had in common."""
        self._group: Any = None
        self._bundle_of: dict[int, int] = {}

    def gather(self) -> None:
        """Have all keepers, each where it has what its node needs."""
        wanted: list[dict[str, float]] = []
        for node, need in self._needs.items():
            bundle = {_STANDARD.get(name, name): amount for name, amount in need.items() if amount}
            if bundle:  # a node that wants nothing is put anywhere
                self._bundle_of[node] = len(wanted)
                wanted.append(bundle)
        if wanted:
            self._group = reserve(wanted, self._launch.start_within, self._is_own)
        for node in self._needs:
            self._keepers[node] = self._keeper(node)
        for node, keeper in self._keepers.items():
            self._find(node, keeper)
        self.is_spread = len({where.machine for where in self._where.values()}) > 1
        for nodes in self._machines().values():
            first = self._where[nodes[0]]
            for node in nodes[1:]:
                heard(partial(self._keepers[node].join_memory.remote, first.pid, first.memory))
        self._tell_machines()

    def keeper_of(self, node: int) -> Any:
        """Return a node's keeper, for a node that is about to start: a new one if it was lost."""
        if node in self._lost:
            self._replace(node)
        return self._keepers[node]

    def lose(self, node: int) -> None:
        """Take note that a node's keeper does not answer any more."""
        self._lost.add(node)

    def end(self, node: int) -> None:
        """End a node's keeper at once."""
        ray.kill(self._keepers[node], no_restart=True)

    def threads_of(self, node: int) -> int:
        """Return how many threads numeric libraries may use in a node."""
        return max(1, int(self._needs[node].get("num_cpus", 1)))

    def position(self, node: int) -> tuple[int, int]:
        """Return which of how many nodes of its machine a node is."""
        beside = sorted(self._machines()[self._where[node].machine])
        return beside.index(node), len(beside)

    def neighbours(self, nodes: Sequence[int]) -> list[Neighbour]:
        """Return where some nodes are."""
        return [
            Neighbour(
                self.places[node],
                self._where[node].machine,
                self._where[node].directory,
                self._keepers[node],
            )
            for node in nodes
        ]

    def dismiss(self) -> None:
        """End all keepers, and give back what they had."""
        left = {keeper.leave.remote(): keeper for keeper in self._keepers.values()}
        if left:
            ray.wait(list(left), num_returns=len(left), timeout=_LEAVE_SECONDS)
        for keeper in left.values():
            ray.kill(keeper, no_restart=True)
        for keeper in left.values():
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(keeper.whereabouts.remote(), timeout=_LEAVE_SECONDS)  # until it is gone
        if self._group is not None:
            remove_placement_group(self._group)

    def bid_farewell(self) -> None:
        """Tell all keepers to leave, and wait for none: their cluster is lost."""
        for keeper in self._keepers.values():
            with contextlib.suppress(ray.exceptions.RayError):
                keeper.leave.remote()

    # ---- a keeper in place of a lost one

    def _replace(self, node: int) -> None:
        self.end(node)  # it may only have been out of reach, and must not live beside the new one
        keeper = self._keeper(node)
        self._keepers[node] = keeper
        try:
            where = self._find(node, keeper)  # which takes until there is room for it
            with self._lock:
                self._settle_in(node, keeper, where)
        except BaseException:
            self._lost.add(node)
            self.end(node)
            raise

    def _settle_in(self, node: int, keeper: Any, where: Whereabouts) -> None:
        """Have a new keeper know what the others know."""
        machines = self._machines()  # its node is still counted as lost
        beside = machines.get(where.machine, [])
        if beside:
            elder = self._where[beside[0]]
            heard(partial(keeper.join_memory.remote, elder.pid, elder.memory))
        elif machines and self.is_spread:
            heard(keeper.expect.remote)
        else:
            self.memory_lost = True
        self._lost.discard(node)
        self._tell_machines()
        if self.memory_lost:
            return
        source = self._spread_last_of(node, [nodes[0] for nodes in machines.values()])
        if not beside:
            image = self._keepers[source].image
            heard(lambda: keeper.fill.remote(image.remote()))  # from one to the other

    def _spread_last_of(self, node: int, asked: Sequence[int]) -> int:
        """Have all machines know as much of a lost node as any, and return the keeper of one.

        What it published last may have reached some of them only.
        """
        known = {
            other: heard(partial(self._keepers[other].known_of.remote, node))
            for other in asked
            if other not in self._lost
        }
        most = max(count for count, _ in known.values())
        last = [what for _, what in known.values() if what is not None and what[2] == most]
        for other, (count, _) in known.items():
            if count < most:
                if not last:
                    raise TaskError(
                        f"what {self.places[node].name} published last is lost",
                        "the machines that had it are gone",
                        "--resume, which goes on from the last checkpoint",
                    )
                heard(partial(self._keepers[other].copy.remote, *last[0]))
        return next(other for other in known)

    # ---- parts of it

    def _keeper(self, node: int) -> Any:
        options: dict[str, Any] = {"num_cpus": 0}
        need = dict(self._needs[node])
        options.update({name: need.pop(name) for name in _STANDARD if name in need})
        if need:
            options["resources"] = need
        if node in self._bundle_of:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=self._bundle_of[node]
            )
        return KeeperActor.options(**options).remote(self.places[node], self._known)

    def _find(self, node: int, keeper: Any) -> Whereabouts:
        """Wait until a keeper is there, and note where."""
        seconds = self._launch.start_within
        try:
            where: Whereabouts = heard(keeper.whereabouts.remote, seconds)
        except ray.exceptions.GetTimeoutError:
            raise OptionError(
                f"{self.places[node].name} has no machine",
                f"in {seconds:g} s there was none with room for {dict(self._needs[node])}",
                "a larger cluster, or fewer nodes; ray status shows who has what",
            ) from None
        except ray.exceptions.RayError as error:
            if _is_of_the_machine(error):
                check_machines(ray)
            raise
        check_versions(where.versions, f"the machine {where.address}")
        self._where[node] = where
        return where

    def _machines(self) -> dict[str, list[int]]:
        """Return the nodes of each machine whose keepers live."""
        found: dict[str, list[int]] = {}
        for node, where in self._where.items():
            if node not in self._lost:
                found.setdefault(where.machine, []).append(node)
        return found

    def _tell_machines(self) -> None:
        """Have every keeper know the others, and wait until it does."""
        machines = self._machines()
        asked = {}
        for machine, nodes in machines.items():
            others = [
                [self._keepers[each] for each in there]
                for name, there in machines.items()
                if name != machine
            ]
            asked.update(
                {node: partial(self._keepers[node].know_machines.remote, others) for node in nodes}
            )
        under_way = {node: call() for node, call in asked.items()}
        for node, call in asked.items():
            try:
                heard(call, begun=under_way[node])
            except ray.exceptions.RayError:  # lost, too; its own thread will find out
                self._lost.add(node)
                self.end(node)


def _is_of_the_machine(error: Exception) -> bool:
    """Whether an actor could not even begin where it was put, or not say so in our terms."""
    return not isinstance(error, ray.exceptions.RayActorError) or "creation task" in str(error)
