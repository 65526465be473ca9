"""`Ranks`: a run of several ranks, as one of them takes part in it.

    rank 0        hosting(...)   -> start(settings, state) -> run(main) -> end
    other ranks   attending(...) -> what rank 0 started    -> run(main)

The program that runs is that of workers in step on several machines; only the transport differs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from muster.engines.join.carrier import Carrier
from muster.engines.join.meeting import Host, guest
from muster.engines.join.place import place_of
from muster.engines.join.transport import JoinTransport
from muster.engines.join.wire import Kind, Message, Wire, error_of, failure_text, packed
from muster.errors import ClusterError
from muster.flow.node import run_node
from muster.flow.wire import WireError, pack, unpack
from muster.recipes.graceful import StopRequest
from muster.recipes.join_options import Membership

_CARRIER = "carrier"
"""Key of START: where the collective of torch meets."""


class Ranks:
    """All ranks of a run.

    Args:
        joined: How this command takes part.
        wires: On rank 0 a wire to every other rank, else one to rank 0.
        carrier: Carries published bytes; None for the wires.
    """

    def __init__(
        self, joined: Membership, wires: Mapping[int, Wire], carrier: Carrier | None = None
    ) -> None:
        self.rank, self.world = joined.terms.rank, joined.terms.world
        self._joined = joined
        self._wires = wires
        self._carrier = carrier
        self._transport: JoinTransport | None = None

    def start(self, told: Mapping[str, Any]) -> None:
        """Hand settings and state to all other ranks. Only rank 0 calls this.

        Args:
            told: Plain values and arrays, as `flow.wire.pack` accepts them.
        """
        where = None
        if self._joined.collective != "sockets" and self._wires:
            from muster.recipes.collective import listening

            self._carrier, where = listening(self._joined)
        message = pack({**told, _CARRIER: where}, "the state of the run")
        payload = packed(Message(b"", message.tree, message.buffers))
        for wire in self._wires.values():
            try:
                wire.send(Kind.START, payload)
            except OSError as error:
                raise ClusterError(
                    f"rank {wire.peer} has left before the run began: {error.strerror or error}",
                    "it failed, or was ended",
                    f"look at what rank {wire.peer} said last, and start all ranks again",
                ) from error

    def run(
        self,
        main: Callable[..., Any],
        job: Any,
        stop: StopRequest,
        resume: str,
        sha256: Callable[[Any], str],
    ) -> Any:
        """Run a program as this rank, together with all others, and return its result.

        Args:
            main: The program: `main(job)` as a rank, `main(job, stop)` alone.
            job: The job.
            stop: The signals of this process.
            resume: What to try when a rank is lost.
            sha256: Returns the hash of the weights in a result, which all ranks must agree on.

        Raises:
            ClusterError: A rank was lost or failed, or has other weights.
        """
        if self.world == 1:
            return main(job, stop)
        transport = self._transport = JoinTransport(
            place_of(self.rank, self.world),
            self._wires,
            resume,
            lambda: stop.signal,
            self._carrier,
        )
        try:
            result = run_node(transport, main, (job,), {})
            transport.done(sha256(result))
        except Exception as error:
            # A rank that waits for a lost one fails, too: the loss is the reason.
            if transport.failure not in (None, error):
                raise cast(Exception, transport.failure) from error
            raise
        stop.signal = stop.signal or transport.signal
        return result

    @property
    def options(self) -> str:
        """The options with which this command takes part, as typed."""
        address = self._joined.terms.address
        return f"--join {address} --rank {self.rank} --world {self.world}"

    def wait_for_end(self) -> None:
        """Wait until rank 0 has completed a run that needs no training."""
        if self.rank != 0:
            wire = self._wires[0]
            try:
                head = wire.head()
                if head.kind == Kind.ABORT:
                    raise error_of(wire.text(head))
            except OSError as error:
                raise _gone(self._joined, error) from error

    def end(self) -> None:
        """Tell the other ranks that the run is complete. Only rank 0 calls this."""
        if self._transport is not None:
            self._transport.end()
        else:
            for wire in self._wires.values():
                wire.post(Kind.END)

    def abort(self, error: BaseException) -> None:
        """Tell the other ranks that this one has failed."""
        if self._transport is not None:
            self._transport.abort(error)
        else:
            for wire in self._wires.values():
                wire.post(Kind.ABORT, failure_text(self.rank, error))

    def close(self) -> None:
        """Stop the collective, if there is one."""
        if self._carrier is not None:
            self._carrier.close()


@contextmanager
def hosting(
    joined: Membership | None, settings: Mapping[str, Any], resumes: bool
) -> Iterator[Ranks | None]:
    """Wait as rank 0 for all ranks; at the end of the block, tell them how the run ended.

    Args:
        joined: How this command takes part; None if it does not, then this yields None.
        settings: Settings that all ranks must have in common.
        resumes: Whether the run is resumed.
    """
    if joined is None:
        yield None
        return
    if joined.terms.world == 1:
        yield Ranks(joined, {})
        return
    host = Host(joined.terms, settings, resumes)
    try:
        ranks = Ranks(joined, host.gather())
        try:
            yield ranks
        except BaseException as error:
            ranks.abort(error)
            raise
        ranks.end()
        ranks.close()
    finally:
        host.close()


@contextmanager
def attending(
    joined: Membership, settings: Mapping[str, Any] | None
) -> Iterator[tuple[Ranks, dict[str, Any]]]:
    """Join rank 0; yield the ranks, and what rank 0 has handed over.

    Args:
        joined: How this command takes part.
        settings: The settings of this command; None to take those of rank 0.
    """
    with guest(joined.terms, settings) as wire:
        told = _start(wire, joined)
        carrier = None
        if (where := told.pop(_CARRIER, None)) is not None:
            from muster.recipes.collective import meeting_at

            carrier = meeting_at(joined, where)
        ranks = Ranks(joined, {0: wire}, carrier)
        try:
            yield ranks, told
        except BaseException as error:
            ranks.abort(error)
            raise
        ranks.close()


def _start(wire: Wire, joined: Membership) -> dict[str, Any]:
    """Wait until rank 0 has opened the run, and return what it hands over."""
    try:
        head = wire.head()
        if head.kind == Kind.ABORT:
            raise error_of(wire.text(head))
        if head.kind != Kind.START:
            raise ConnectionError(f"a frame of kind {head.kind} instead of the run")
        message = wire.message(head)
        told = unpack(message.tree, message.buffers)
    except (OSError, WireError) as error:
        raise _gone(joined, error) from error
    assert isinstance(told, dict)
    return told


def _gone(joined: Membership, error: Exception) -> ClusterError:
    return ClusterError(
        f"rank 0 at {joined.terms.address} has left: {error}",
        "it failed, or was ended",
        "look at what rank 0 said last",
    )
