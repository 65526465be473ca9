"""`JoinTransport`: connects a rank to the others through rank 0.

    main thread   publish -> the bytes go to rank 0, which passes them on -> counter
    one thread for each wire reads frames; it never waits for another rank's main thread

A rank is not replaced: when one is lost or fails, rank 0 tells the others, and every rank ends with
the same error. The run is resumed by starting all ranks again.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from muster.engines.base import Delivery, Parcel, Receiver
from muster.engines.join.arrays import RankArrays
from muster.engines.join.carrier import Carrier
from muster.engines.join.place import Seat, place_of
from muster.engines.join.pulse import Pulse
from muster.engines.join.wire import (
    FrameHead,
    JoinedParcel,
    Kind,
    Message,
    Wire,
    error_of,
    error_text,
    failure_text,
    packed,
    text,
)
from muster.engines.orders import AtRun, Go
from muster.engines.rendezvous import Rendezvous
from muster.errors import ClusterError, MusterError, raised_at, summary
from muster.framework.labels import Labels
from muster.framework.node import Finish, Place, Use

_LOOK_SECONDS = 0.1
_DONE_SECONDS = 300.0
"""Maximum seconds from the end of rank 0's training to that of the others: all end in step."""


class JoinTransport:
    """Implements `muster.engines.base.Transport` for a rank.

    Args:
        place: The place of this rank.
        wires: On rank 0 a wire to every other rank, else one to rank 0.
        resume: What to try when a rank is lost.
        asked_to_stop: Returns the number of the signal that this process has received, or None.
        carrier: Carries published bytes; None for the wires.
        hang_after: Seconds without progress after which a rank counts as hung.
    """

    is_spread = True

    def __init__(
        self,
        place: Place,
        wires: Mapping[int, Wire],
        resume: str,
        asked_to_stop: Callable[[], int | None],
        carrier: Carrier | None = None,
        hang_after: float = 300.0,
    ) -> None:
        self.place = place
        self.failure: MusterError | None = None
        """Why the run has failed, as far as this rank knows."""
        self._wires = dict(wires)
        self._resume = resume
        self._asked_to_stop = asked_to_stop
        self._carrier = carrier
        self._pulse = Pulse(hang_after)
        self._arrays = RankArrays(place.size)
        self._receiver: Receiver | None = None
        self._changed = threading.Condition(threading.RLock())
        self._met: dict[int, str | None] = {}
        self._sizes: dict[int, int] = {}
        self._hashes: dict[int, str] = {}
        self.signal: int | None = None
        """The signal that asks the run to stop, whichever rank received it."""
        self._over = False
        seats = [Seat(place_of(rank, place.size), self._teller(rank)) for rank in range(place.size)]
        self._seats = {seat.place.node_id: seat for seat in seats}
        self._rendezvous = Rendezvous(seats)

    # ---- as an engine's transport

    def start(self, receiver: Receiver) -> None:
        """Start receiving; all ranks are there."""
        self._receiver = receiver
        for rank in self.place.linked:
            receiver.linked(rank, 0)
        for wire in self._wires.values():
            threading.Thread(
                target=self._read, args=(wire,), name=f"muster-join-{wire.peer}", daemon=True
            ).start()
        threading.Thread(target=self._watch, name="muster-join-watch", daemon=True).start()

    def parcel(self, tree: bytes, buffers: Sequence[memoryview]) -> JoinedParcel:
        """Copy a message for sending."""
        return JoinedParcel(tree, buffers)

    def send(self, to: int, head: bytes, parcel: Parcel | None = None) -> bool:
        """Send without waiting. False if the run has failed."""
        if self.failure is not None:
            return False
        assert parcel is None or isinstance(parcel, JoinedParcel)
        tree, buffers = (b"", []) if parcel is None else (parcel.tree, parcel.buffers)
        self._toward(to).post(Kind.MESSAGE, packed(Message(head, tree, buffers)), target=to)
        return True

    def meet(self, task: int, uses: Sequence[Use], labels: Labels) -> str | None:
        """Wait until every rank has called this; return what is wrong with the program, or None."""
        told = {
            "task": task,
            "uses": [[use.name, use.filter_labels] for use in uses],
            "labels": sorted(labels),
            "size": self._arrays.size,
        }
        if self.place.node_id == 0:
            self._arrived(0, told)
        else:
            self._wires[0].post(Kind.AT_RUN, text(told))
        self._wait(lambda: task in self._met)
        return self._met[task]

    def finishing(self, by: str) -> None:
        """Do nothing: there is no supervisor."""

    def tell_driver(self, message: object) -> None:
        """Do nothing: no process has started the ranks, so none waits for a message."""

    def advance(self) -> None:
        """Count progress of the main thread."""
        self._pulse.advance()

    def reach(self, mark: int) -> None:
        """Do nothing: a rank is not replaced."""

    def looping(self, is_looping: bool) -> None:
        """Record that the main thread enters or leaves `Task.run`."""
        self._pulse.looping(is_looping)

    def wait_for(
        self, changed: threading.Condition, until: Callable[[], bool], timeout: float | None
    ) -> bool:
        """Wait until `until` holds, which a message makes true; False after `timeout` seconds."""
        with self._pulse.excused(), changed:
            return changed.wait_for(until, timeout)

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block the rank waits for others, and does not count as hung."""
        return self._pulse.excused()

    def saving(self) -> AbstractContextManager[None]:
        """Within this block the rank writes to disk, and does not count as hung."""
        return self._pulse.excused()

    def shared_memory(self, size: int) -> memoryview:
        """Return this rank's copy of the shared arrays."""
        memory = self._arrays.make(size)
        if self._carrier is not None:
            self._carrier.begin(self._arrays, self._fail_by)
        return memory

    def publish(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Send these bytes to all ranks, then set this rank's counter.

        The counter is set before the others have the bytes, because nobody replaces a rank.
        """
        if self._carrier is not None:
            self._carrier.publish(spans, count)
            return
        for wire in self._wires.values():
            try:
                wire.send(Kind.PUBLISH, self._arrays.payload(spans), count=count)
            except OSError as error:
                self._lose(wire.peer, error)
        self._arrays.count(self.place.node_id, count)

    def stop(self) -> None:
        """Do nothing: the wires are still needed for the end of the run."""

    # ---- the end of a run

    def done(self, sha256: str) -> None:
        """Report that this rank has trained, and wait: rank 0 for all others, these for its end.

        Args:
            sha256: Hash of this rank's weights.

        Raises:
            MusterError: A rank has failed, or has other weights than rank 0.
        """
        if self.place.node_id != 0:
            self._wires[0].post(Kind.DONE, text({"sha256": sha256}))
            self._wait(lambda: self._over)
            return
        self._wait(lambda: len(self._hashes) == len(self._wires), _DONE_SECONDS)
        for rank, theirs in sorted(self._hashes.items()):
            if theirs != sha256:
                raise ClusterError(
                    f"rank {rank} ended with other weights than rank 0",
                    "processors of different kinds, or other libraries, computed other bits",
                    "machines of one kind for all ranks; muster doctor shows what is there",
                )

    def end(self) -> None:
        """Tell the others that the run is complete. Only rank 0 calls this."""
        self._over = True
        for wire in self._wires.values():
            wire.post(Kind.END)

    def abort(self, error: BaseException) -> None:
        """Tell the others that this rank has failed."""
        if self.failure is not None or self._over:
            return
        self._over = True
        for wire in self._wires.values():
            wire.post(Kind.ABORT, failure_text(self.place.node_id, error))

    # ---- frames

    def _read(self, wire: Wire) -> None:
        try:
            while not self._over:
                self._obey(wire, wire.head())
        except OSError as error:
            self._lose(wire.peer, error)
        except Exception as error:
            self._fail_by(error)

    def _obey(self, wire: Wire, head: FrameHead) -> None:
        assert self._receiver is not None
        match head.kind:
            case Kind.PUBLISH:
                payload = self._arrays.take(wire, head)
                for other in self._wires.values():
                    if other is not wire:
                        with contextlib.suppress(OSError):  # the thread that reads it reports it
                            other.send(Kind.PUBLISH, payload, count=head.number, source=head.source)
            case Kind.MESSAGE:
                message, to = wire.message(head), head.target
                if to == self.place.node_id:
                    self._receiver.received(Delivery(head.source, *message, release=_nothing))
                else:
                    onward = packed(message)
                    self._toward(to).post(Kind.MESSAGE, onward, source=head.source, target=to)
            case Kind.AT_RUN:
                self._arrived(wire.peer, wire.text(head))
            case Kind.GO:
                told = wire.text(head)
                self._go(Go(int(told["task"]), told["problem"]))
            case Kind.BEAT:
                self._pulse.heard(wire.peer, head.number)
            case Kind.STOP:
                self._stop(head.number)
            case Kind.ABORT:
                self._fail(error_of(wire.text(head)))
            case Kind.DONE:
                found = wire.text(head)
                with self._changed:
                    self._hashes[wire.peer] = str(found["sha256"])
                    self._pulse.forget(wire.peer)
                    self._changed.notify_all()
            case Kind.END:
                with self._changed:
                    self._over = True
                    self._changed.notify_all()
            case _:
                raise ConnectionError(f"a frame of kind {head.kind}")

    def _arrived(self, rank: int, told: Mapping[str, Any]) -> None:
        """Record on rank 0 that a rank is about to run its task."""
        uses = tuple(Use(name, wanted and tuple(wanted)) for name, wanted in told["uses"])
        at = AtRun(int(told["task"]), uses, frozenset(told["labels"]))
        with self._changed:
            self._sizes[rank] = int(told["size"])
            if len(set(self._sizes.values())) > 1:
                sizes = ", ".join(f"{size:,} on rank {each}" for each, size in self._sizes.items())
                self._fail(
                    ClusterError(
                        f"the arrays of the ranks have different sizes: {sizes} bytes",
                        "their environments or networks differ: other versions, or other code",
                        "the same packages and files on every machine",
                    )
                )
                return
            self._rendezvous.arrive(self._seats[rank], at)

    def _teller(self, rank: int) -> Callable[[object], None]:
        def tell(order: object) -> None:
            assert isinstance(order, Go)
            if rank == self.place.node_id:
                self._go(order)
            else:
                told = {"task": order.task, "problem": order.problem}
                self._wires[rank].post(Kind.GO, text(told))

        return tell

    def _go(self, order: Go) -> None:
        with self._changed:
            self._met[order.task] = order.problem
            self._changed.notify_all()

    def _toward(self, rank: int) -> Wire:
        """Return the wire to a rank: others than rank 0 have only one."""
        return self._wires.get(rank) or self._wires[0]

    # ---- signals and failures

    def _watch(self) -> None:
        """Show that this rank lives, look for others that hang, and pass on a signal."""
        passed_on = False
        while not self._over and self.failure is None:
            if (count := self._pulse.beat()) is not None:
                for wire in self._wires.values():
                    wire.post(Kind.BEAT, count=count)
            if (rank := self._pulse.hung()) is not None:
                self._hangs(rank)
            signal = self._asked_to_stop()
            if signal is not None and not passed_on:
                passed_on = True
                if self.place.node_id == 0:  # which decides when the run stops
                    self._stop(signal)
                else:
                    self._wires[0].post(Kind.STOP, count=signal)
            time.sleep(_LOOK_SECONDS)

    def _hangs(self, rank: int) -> None:
        self._fail(
            ClusterError(
                f"rank {rank} hangs: no progress for {self._pulse.seconds:g} s",
                "its environment waits for something, or its process is stopped",
                self._resume,
            )
        )

    def _stop(self, signal: int) -> None:
        """Ask this rank to stop, and on rank 0 all others."""
        assert self._receiver is not None
        with self._changed:
            if self.signal is not None:
                return
            self.signal = signal
        if self.place.node_id == 0:
            for wire in self._wires.values():
                wire.post(Kind.STOP, count=signal)
        self._receiver.told_to_finish(Finish("a signal", signal))

    def _lose(self, rank: int, error: OSError) -> None:
        """End the run, because a rank has gone without saying that it is done."""
        if self._over or rank in self._hashes:
            return
        self._fail(
            ClusterError(
                f"rank {rank} is lost: {error.strerror or error}",
                "it was killed, or its machine or the network failed",
                self._resume,
            )
        )

    def _fail_by(self, error: Exception) -> None:
        if isinstance(error, MusterError):
            self._fail(error)
        else:
            what = f"rank {self.place.node_id} cannot go on: {summary(error)}"
            self._fail(ClusterError(what, f"it comes from {raised_at(error)}", self._resume))

    def _fail(self, error: MusterError) -> None:
        """End this rank with an error; on rank 0, the others as well."""
        with self._changed:
            if self.failure is not None or self._over:
                return
            self.failure = error
            self._changed.notify_all()
        if self.place.node_id == 0:
            for wire in self._wires.values():
                wire.post(Kind.ABORT, error_text(error))
        if self._receiver is not None:
            self._receiver.told_to_finish(Finish("a rank that is lost"))
            for rank in self.place.linked:
                self._receiver.gone(rank)

    def _wait(self, until: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait for the other ranks; raise the failure if there is one."""
        with self._changed:
            met = self._changed.wait_for(lambda: until() or self.failure is not None, seconds)
        if self.failure is not None:
            raise self.failure
        if not met:
            raise ClusterError(
                f"other ranks did not end within {seconds:g} s", "they hang", self._resume
            )


def _nothing() -> None:
    """Release a message: Python frees its memory."""
