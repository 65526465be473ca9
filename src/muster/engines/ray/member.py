"""`RayMember`: a node that a node actor runs, on any machine of a Ray cluster.

To the supervisor it looks like a local process: the node's messages, output and progress arrive
through pipes (relay.py), and every call here returns, whatever Ray does.
"""

import contextlib
import os
import threading
from collections.abc import Callable

import ray

from muster.engines.base import Launch
from muster.engines.member import Member
from muster.engines.orders import Present
from muster.engines.progress import ProgressPage
from muster.engines.ray.actor_registry import ActorRegistry
from muster.engines.ray.process import PortableProgram
from muster.engines.ray.relay import Relay
from muster.engines.ray.watch import ClusterWatch
from muster.framework.node import Place

_KILL_SECONDS = 5.0
"""Seconds for a node actor to end its node; then the actor is killed."""
_LOST_SECONDS = 2.0
"""The same for both, if the cluster is lost."""
_UPDATE_SECONDS = 1.0


class RayMember(Member):
    """One node, through all of its incarnations.

    Args:
        place: Its place at the start.
        launch: The program.
        page: Where the driver records the progress of nodes.
        actor_registry: The node actors.
        program: The program of the node.
        watch: Knows whether the cluster is lost.
    """

    def __init__(
        self,
        place: Place,
        launch: Launch,
        page: ProgressPage,
        actor_registry: ActorRegistry,
        program: PortableProgram,
        watch: ClusterWatch,
    ) -> None:
        super().__init__(place, launch, page)
        self._registry = actor_registry
        self._program = program
        self._watch = watch
        limits = (launch.hang_after, launch.start_within, launch.grace)
        self._ask_every = min(_UPDATE_SECONDS, *(limit / 4 for limit in limits))

    def _begin(self) -> None:
        self._registry.places[self.place.node_id] = self.place
        self._timers: list[threading.Timer] = []
        self._relay = Relay(
            self.place,
            self._program,
            self._launch.threads,
            self._launch.pin,
            self._page,
            self._registry,
            self._ask_every,
            self._watch.lose,
        )
        self.pipe = self._relay.pipe
        self.logs = (self._log(self._relay.out, False), self._log(self._relay.err, True))

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable once the node has ended."""
        return self._relay.sentinel

    @property
    def has_place(self) -> bool:
        """Whether Ray has put it on a machine."""
        return self._relay.node_actor is not None

    @property
    def has_lost_place(self) -> bool:
        """Whether its node actor is lost."""
        return self._registry.is_lost(self.place.node_id)

    def tell(self, order: object) -> None:
        """Send an order; ignored if the node has exited."""
        about = [node for node, _ in order.nodes] if isinstance(order, Present) else []
        with contextlib.suppress(ray.exceptions.RayError):
            self._relay.tell(order, self._registry.locations(about))

    def kill(self) -> None:
        """Kill the node; if that takes too long, kill its actor; finally stop waiting for Ray."""
        relay = self._relay
        if not self.alive or relay.unwanted:
            return
        relay.unwanted = True
        if self._watch.is_lost():
            self._in(_LOST_SECONDS, relay.give_up, "its Ray cluster is lost")
        else:
            if relay.node_actor is None:  # it waits for room: there is no actor to ask
                self._in(0.0, self._end_node_actor, relay)
            self._in(_KILL_SECONDS, self._end_node_actor, relay)
            self._in(2 * _KILL_SECONDS, relay.give_up, "Ray does not say how it ended")
        if relay.node_actor is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                relay.node_actor.kill.remote(self.place.incarnation)

    def join(self) -> None:
        """Wait until it has ended."""
        while not self._relay.wait(0.05):
            for log in self.logs:  # a full pipe would block the relay's thread
                log.read()

    def exit_status(self) -> str:
        """Describe how it ended."""
        self.join()
        return self._relay.status

    def _release(self) -> None:
        if not self._relay.wait(0.0):
            self.kill()
        self.join()
        for timer in self._timers:
            timer.cancel()
        os.close(self._relay.sentinel)

    def _in(self, seconds: float, what: Callable[..., None], *args: object) -> None:
        timer = threading.Timer(seconds, what, args)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _end_node_actor(self, relay: Relay) -> None:
        """Kill the node actor of that incarnation, on a thread: Ray may block."""
        with contextlib.suppress(ray.exceptions.RayError):
            if relay.node_actor is None:
                self._registry.end(self.place.node_id)
            else:
                ray.kill(relay.node_actor, no_restart=True)
