"""`RayEngine`: one actor per node, on a Ray cluster."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from muster.engines.base import Launch
from muster.engines.progress import ProgressPage
from muster.engines.supervisor import Supervisor
from muster.errors import ClusterError

if TYPE_CHECKING:
    from muster.engines.ray.actor_registry import ActorRegistry
    from muster.engines.ray.watch import ClusterWatch

_BY_DEFAULT = {"num_cpus": 1.0}


class RayEngine:
    """One actor per node, on an existing Ray cluster or on one that the run starts."""

    def prepare(self, modules: Sequence[str], address: str | None) -> None:
        """Raise OptionError for an address at which there is no cluster to join.

        Nodes import their modules when they start: their machines are not known before.
        """
        from muster.engines.ray.cluster import look_at, ray_here

        is_joined = ray_here().is_initialized()
        if address is not None and not is_joined:
            look_at(address)

    def run(self, launch: Launch) -> list[Any]:
        """Return the results of `main`, one per node. Leaves nothing behind when it ends."""
        from muster.engines.ray.cluster import ray_here

        ray_here()
        from muster.engines.ray.placement import NotPlacedError

        try:
            return self._run(launch)
        except NotPlacedError:
            # A lost call left Ray stuck before any node was started: a new cluster is not stuck.
            return self._run(launch)

    def _run(self, launch: Launch) -> list[Any]:
        from muster.engines.ray.cluster import check_supply, joined, ray_here
        from muster.engines.ray.side_effects import messages_in
        from muster.engines.ray.watch import ClusterWatch

        needs = _needs(launch)
        wanted = {
            place.name: needs[place.node_id]
            for place in launch.places
            if place.node_id not in launch.late
        }
        cpus = sum(need.get("num_cpus", 0.0) for need in wanted.values())
        with ExitStack() as stack:
            # A cluster of its own has as many CPUs as nodes request by default, as with processes.
            own = max(int(cpus), os.cpu_count() or 1) if not launch.resources else None
            stack.enter_context(messages_in(launch.log_dir))
            there = stack.enter_context(joined(launch.address, own))
            watch = ClusterWatch(ray_here(), there.address, there.is_own)
            stack.callback(watch.close)
            from muster.engines.ray.actor_registry import ActorRegistry
            from muster.engines.ray.member import RayMember
            from muster.engines.ray.process import program_of

            watch.call(lambda: check_supply(wanted))
            registry = ActorRegistry(launch, needs, there.is_own)
            stack.callback(_stop_all, registry, watch)
            watch.call(registry.start_all)
            page = ProgressPage.create(len(launch.places))
            stack.callback(page.close)
            program = program_of(launch)
            members = [
                RayMember(place, launch, page, registry, program, watch) for place in launch.places
            ]
            return Supervisor(launch, members, page, watch).run()


def _stop_all(registry: "ActorRegistry", watch: "ClusterWatch") -> None:
    """Stop all node actors, or at least ask those that can still be reached."""
    with contextlib.suppress(ClusterError):
        watch.call(registry.stop_all)
        return
    registry.ask_all_to_stop()


def _needs(launch: Launch) -> dict[int, Mapping[str, float]]:
    return {
        place.node_id: {**_BY_DEFAULT, **launch.resources.get(place.node_id, {})}
        for place in launch.places
    }
