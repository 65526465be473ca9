"""How the ranks of a run meet: rank 0 listens, the others connect, and all learn of a mistake.

    guest -> handshake -> HELLO: world, versions, settings
    host  -> checks; ABORT to everyone if they do not fit together
          -> WELCOME when all are there (or ABORT: who did not come)

A connection that does not know the token changes nothing: it is refused, and named only if the run
does not come together. After the meeting rank 0 keeps listening, to tell a late rank why it is not
taken.
"""

import contextlib
import json
import platform
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import Any, NamedTuple, NoReturn

from muster.engines.accepting import Accepting
from muster.engines.join.terms import Terms
from muster.engines.join.wire import Kind, Wire, error_of, error_text, text
from muster.engines.local.authentication import authenticate, introduce
from muster.engines.local.handshake import HandshakeError
from muster.errors import ClusterError, MusterError, OptionError
from muster.version import __version__

_HELLO_SECONDS = 10.0
_AGAIN_SECONDS = 0.2
_CONNECT_SECONDS = 3.0
_SLACK_SECONDS = 5.0
"""Seconds that a guest waits longer than rank 0 does: rank 0 knows who is missing."""
_PACKAGES = ("torch", "numpy", "numba", "gymnasium")
_SHOWN = 3
"""Differences between two ranks' settings that a message names."""

Settings = Mapping[str, Any] | None
"""The settings of a command, by name; None for a guest that takes those of rank 0 (a resume)."""


def versions() -> dict[str, str]:
    """Return the versions that all ranks must have in common."""
    found = {"muster": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


class _Guest(NamedTuple):
    rank: int
    wire: Wire
    hello: Mapping[str, Any]


class Host:
    """Rank 0's side.

    Args:
        terms: Where to listen, and for how many.
        settings: The settings of this command.
        resumes: Whether the run is resumed: then a guest needs no settings of its own.

    Raises:
        OptionError: This machine cannot listen there.
    """

    def __init__(self, terms: Terms, settings: Mapping[str, Any], resumes: bool) -> None:
        self._terms = terms
        self._settings = dict(settings)
        self._resumes = resumes
        self._wires: dict[int, Wire] = {}
        self._news: queue.SimpleQueue[_Guest] = queue.SimpleQueue()
        self._refused: list[str] = []
        self._begun = False
        self._problem_found: MusterError | None = None
        self._lock = threading.Lock()
        """Held to decide whether a guest is still in time."""
        self._listener = _listening(terms)
        self._accepting = Accepting(self._listener, self._receive, "muster-join-host")

    def gather(self) -> dict[int, Wire]:
        """Wait for all ranks, and return a wire to each.

        Raises:
            OptionError: Ranks do not fit together, or one did not come in time. All know it.
        """
        deadline = time.monotonic() + self._terms.seconds
        while not self._all_here():
            try:
                # In short waits, so that Ctrl-C is noticed.
                guest = self._news.get(timeout=min(0.2, max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() < deadline:
                    continue
                self._end(self._missing())
            self._forget_who_left()
            problem = self._problem(guest)
            if problem is not None:
                self._news.put(guest)
                self._end(problem)
            self._wires[guest.rank] = guest.wire
        with self._lock:
            self._begun = True
        for wire in self._wires.values():
            with contextlib.suppress(OSError):  # the first frame that is awaited tells
                wire.send(Kind.WELCOME)
        return self._wires

    def _all_here(self) -> bool:
        self._forget_who_left()
        return len(self._wires) == self._terms.world - 1

    def _forget_who_left(self) -> None:
        """Forget ranks that have ended before the run began: they may be started again."""
        for rank, wire in list(self._wires.items()):
            if wire.is_closed():
                wire.close()
                del self._wires[rank]

    def close(self) -> None:
        """Stop listening, and close all connections."""
        self._begun = True
        self._accepting.close()
        for wire in (*self._wires.values(), *self._unread()):
            wire.close()

    def _end(self, problem: MusterError) -> NoReturn:
        """Tell everyone who is here what is wrong; `_receive` tells those who are about to be."""
        with self._lock:
            self._problem_found = problem
        for wire in (*self._wires.values(), *self._unread()):
            with contextlib.suppress(OSError):
                wire.send(Kind.ABORT, error_text(problem))
            wire.close()
        self._wires.clear()
        raise problem

    def _unread(self) -> Iterator[Wire]:
        """Yield the wires of guests that have not been looked at."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._news.get_nowait().wire

    def _receive(self, sock: socket.socket, address: str, known: Callable[[], None]) -> None:
        wire = None
        try:
            asked = authenticate(sock, 0, self._terms.secrets)
            wire = Wire(sock, 0, asked.node)
            head = wire.head(_HELLO_SECONDS)
            if head.kind != Kind.HELLO:
                raise ConnectionError("it does not say hello")
            hello = wire.text(head)
            if not isinstance(hello, dict):
                raise ConnectionError("its hello is no table")
        except OSError as error:
            why = error.args[0] if isinstance(error, HandshakeError) else str(error)
            about = error.args[1] if isinstance(error, HandshakeError) else "has it the token?"
            self._refused.append(f"{address} ({why}: {about})")
            (wire or sock).close()
            return
        known()
        with self._lock:
            problem = self._problem_found
            if not self._begun and problem is None:
                self._news.put(_Guest(asked.node, wire, hello))
                return
        late = problem or OptionError(
            f"rank {asked.node} is too late for the run at {self._terms.address}",
            f"its {self._terms.world} ranks have met, and a run does not take another",
            "another port for another run, or start all ranks again",
        )
        with contextlib.suppress(OSError):
            wire.send(Kind.ABORT, error_text(late))
        wire.close()

    def _missing(self) -> OptionError:
        terms = self._terms
        absent = [str(rank) for rank in range(1, terms.world) if rank not in self._wires]
        ranks = f"rank{'s' * (len(absent) > 1)} {', '.join(absent[:8])}"
        why = f"rank 0 waited at {terms.address}"
        here = self._listener.getsockname()[0]
        if here.startswith("127.") and here != terms.host:
            why += f", which is {here} here: other machines cannot reach that"
        if self._refused:
            why += f", and refused {len(self._refused)}: {self._refused[-1]:.300}"
        return OptionError(
            f"{ranks} of {terms.world} did not come within {terms.seconds:g} s",
            why,
            f"join={terms.address} rank={absent[0]} world={terms.world} there, with the same token",
        )

    def _problem(self, guest: _Guest) -> OptionError | None:
        """Return why a guest cannot take part, or None."""
        rank, world, hello = guest.rank, self._terms.world, guest.hello
        if hello.get("world") != world:
            return OptionError(
                f"rank {rank} has world={hello.get('world')}, rank 0 has world={world}",
                "all ranks of a run agree on how many they are",
                f"world={world} on every rank",
            )
        if not 1 <= rank < world or rank in self._wires:
            free = next(each for each in range(1, world) if each not in self._wires)
            return OptionError(
                f"two processes are rank {rank} of this run",
                "every rank is started once",
                f"rank={free} for one of them",
            )
        return _other_versions(rank, hello.get("versions")) or self._other_settings(
            rank, hello.get("settings")
        )

    def _other_settings(self, rank: int, theirs: Any) -> OptionError | None:
        if (theirs is None) != self._resumes:
            does = ("resumes a run", "starts a new one")
            first, second = does if self._resumes else does[::-1]
            return OptionError(
                f"rank 0 {first}, and rank {rank} {second}",
                "all ranks of a run do the same",
                "muster resume RUN with join=..., on every rank",
            )
        if theirs is None:
            return None
        # Through JSON, as the guest's settings came: a tuple is a list there.
        mine = _plain(self._settings)
        names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        if not names:
            return None
        here = ", ".join(f"{name}={mine.get(name)!r:.60}" for name in names[:_SHOWN])
        there = ", ".join(f"{name}={theirs.get(name)!r:.60}" for name in names[:_SHOWN])
        return OptionError(
            f"rank {rank} has {there}; rank 0 has {here}",
            "all ranks of a run have the same settings",
            f"{here.replace(', ', ' ')} on every rank",
        )


@contextmanager
def guest(terms: Terms, settings: Settings) -> Iterator[Wire]:
    """Connect to rank 0, and yield the wire once all ranks have met.

    Args:
        terms: Where rank 0 listens.
        settings: The settings of this command; None to take those of rank 0.

    Raises:
        OptionError: Rank 0 is not there, or the ranks do not fit together.
    """
    deadline = time.monotonic() + terms.seconds
    wire = _connected(terms, deadline)
    try:
        hello = {"world": terms.world, "versions": versions(), "settings": settings}
        try:
            wire.send(Kind.HELLO, text(hello))
            left = deadline - time.monotonic() + _SLACK_SECONDS
            head = wire.head(max(left, _SLACK_SECONDS))
        except OSError as error:
            raise _left(terms, error) from error
        if head.kind == Kind.ABORT:
            raise error_of(wire.text(head))
        yield wire
    finally:
        wire.close()


def _connected(terms: Terms, deadline: float) -> Wire:
    """Connect to rank 0, which may still be starting."""
    while True:
        try:
            address = (terms.host, terms.port)
            sock = socket.create_connection(address, _CONNECT_SECONDS)
        except OSError as error:
            unknown = isinstance(error, socket.gaierror)
            if unknown or time.monotonic() > deadline:
                raise _no_host(terms, error, unknown) from None
            time.sleep(_AGAIN_SECONDS)
            continue
        try:
            introduce(sock, terms.rank, 0, terms.secrets)
            return Wire(sock, terms.rank, 0)
        except HandshakeError as error:
            sock.close()
            raise _refused(terms, error) from None
        except OSError as error:  # it ended just now, or something else listens there
            sock.close()
            if time.monotonic() > deadline:
                raise _no_host(terms, error, False) from None
            time.sleep(_AGAIN_SECONDS)


def _listening(terms: Terms) -> socket.socket:
    try:
        family = socket.getaddrinfo(terms.host, terms.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((terms.host, terms.port), family=family)
    except OSError as error:
        raise OptionError(
            f"rank 0 cannot listen at {terms.address}: {error.strerror or error}",
            "another run has the port, or the host is not an address of this machine",
            "join=HOST:PORT with an address of rank 0's machine and a free port, on every rank",
        ) from None


def _no_host(terms: Terms, error: OSError, unknown: bool) -> OptionError:
    why = f"{error.strerror or error}"
    if not unknown:
        why += "; rank 0 has not started there, or a firewall is in between"
    return OptionError(
        f"rank {terms.rank} found no rank 0 at {terms.address} within {terms.seconds:g} s",
        why,
        f"join={terms.address} rank=0 world={terms.world} on that machine",
    )


def _refused(terms: Terms, error: HandshakeError) -> OptionError:
    what, why, fix = error.args
    if "token" in why:
        return OptionError(
            f"rank 0 at {terms.address} has another token than rank {terms.rank}",
            "only processes with the same token are one run",
            "the same MUSTER_TOKEN, or file of MUSTER_TOKEN_FILE, on every rank",
        )
    return OptionError(f"rank 0 at {terms.address} does not fit: {what}", why, fix)


def _left(terms: Terms, error: OSError) -> ClusterError:
    silent = isinstance(error, TimeoutError)
    return ClusterError(
        f"rank 0 at {terms.address} {'does not answer' if silent else 'has left'}",
        "it waits for another rank" if silent else "it failed, or was ended, before the run began",
        "look at what rank 0 said last",
    )


def _other_versions(rank: int, theirs: Any) -> OptionError | None:
    mine = versions()
    theirs = theirs if isinstance(theirs, dict) else {}
    other = [name for name in mine if mine[name] != theirs.get(name)]
    if not other:
        return None
    have = ", ".join(f"{name} {theirs.get(name) or '(none)'}" for name in other)
    want = ", ".join(f"{name} {mine[name]}" for name in other)
    return OptionError(
        f"rank {rank} has {have}; rank 0 has {want}",
        "other versions may compute other bits, so the weights of the ranks would drift apart",
        f"install {want} on every machine",
    )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(settings))
    return found
