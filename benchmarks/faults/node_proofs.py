"""G2: a listener whose secrets the harness knows, and somebody who heard what was said to it."""

import os
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.node_scene import Broken

from muster.engines.local import handshake
from muster.engines.local.blocks import BlockPool
from muster.engines.local.handshake import LinkRequest, Secrets
from muster.engines.local.link_hub import LinkHub
from muster.engines.local.listener import socket_path
from muster.framework.labels import Labels
from muster.framework.node import Finish, Place
from muster.version import __version__

Outcome = dict[str, Any]


class Ears:
    """Notes what a node would hear."""

    def __init__(self) -> None:
        self.links: list[tuple[int, int]] = []
        self.heard = 0

    def linked(self, node: int, incarnation: int) -> None:
        """Hear that a node was let in."""
        self.links.append((node, incarnation))

    def lost(self, node: int) -> None:
        """Hear that one is away."""

    def gone(self, peer: int, incarnation: int | None = None) -> None:
        """Hear that one will not come back."""

    def joined(self, peer: int) -> None:
        """Hear that one is at work."""

    def received(self, delivery: Any) -> None:
        """Hear a message."""
        self.heard += 1

    def replaced(self, total: int) -> None:
        """Hear how many nodes were replaced."""

    def heard_driver(self, message: object) -> None:
        """Hear the process that started the run."""

    def told_to_finish(self, finish: Finish) -> None:
        """Hear the end."""


def _say(path: Path, first: bytes, then: Any) -> tuple[bytes, bytes]:
    """Say hello, answer the answer with `then(answer)`; return the answer and what was said."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(2.0)
        sock.connect(str(path))
        sock.sendall(first)
        answer = b""
        with suppress(OSError):
            while len(answer) < handshake.ANSWER_SIZE and (more := sock.recv(4096)):
                answer += more
        said: bytes = then(answer)
        with suppress(OSError):
            sock.sendall(said)
            sock.settimeout(0.02)
            sock.recv(1)
        return answer, said


def replayed(seed: int, faulty: bool) -> Outcome:
    """G2: hello and proof again, the listener's own proof, old and other tokens, old addresses."""
    place = Place(0, 2, None, (None, None), Labels(), (1,), (1,), incarnation=3)
    known = Secrets.fresh(__version__)
    ears = Ears()
    refusals: list[str] = []
    with tempfile.TemporaryDirectory(prefix="nodefault-") as directory:
        pool = BlockPool(lambda block: None)
        link_hub = LinkHub(
            place, known, Path(directory), pool, ears, refusals.append, pulse=lambda: None
        )
        link_hub.start()
        path = socket_path(Path(directory), 0)
        try:
            hello = LinkRequest.fresh(1, 5, 0, 3)
            first = handshake.pack_link_request(hello, known)
            answer, proof = _say(path, first, lambda a: handshake.read_answer(a, hello, known))
            deadline = time.monotonic() + 2.0
            while ears.links != [(1, 5)] and time.monotonic() < deadline:
                time.sleep(0.001)
            if ears.links != [(1, 5)]:
                raise Broken(f"the right one was not let in: {ears.links}, {refusals}")
            tries = 0
            for attempt in _attempts(hello, known, answer, proof) if faulty else ():
                _say(path, *attempt)
                tries += 1
            time.sleep(0.05)
            if ears.links != [(1, 5)] or ears.heard:
                raise Broken(f"let in: {ears.links[1:]}")
        finally:
            link_hub.stop(1.0)
            pool.close()
    if any(thread.name == "muster-links" for thread in threading.enumerate()):
        raise Broken("its thread was left")
    out = {"landed": int(tries > 0), "attempts": tries, "accepted": len(ears.links) - 1}
    return out | {"refused_in_the_log": len(refusals)}


def _attempts(hello: LinkRequest, known: Secrets, answer: bytes, proof: bytes) -> Any:
    first = handshake.pack_link_request(hello, known)
    newer = LinkRequest.fresh(1, 6, 0, 3)
    # Heard and said again: the listener's nonce is another one by now.
    yield first, lambda now: proof
    yield first, lambda now: answer[-32:]
    # The listener's own proof, given back to it.
    yield first, lambda now: now[-32:]
    yield handshake.pack_link_request(newer, known), lambda now: now[-32:]
    yield handshake.pack_link_request(newer, known), lambda now: proof
    # The right run, but no token, an old one, that of another run.
    for token in (bytes(32), known.token[::-1], os.urandom(32)):
        wrong = Secrets(known.run, token, known.version)
        proofs = handshake._prove

        def prove(now: bytes, wrong: Secrets = wrong, proofs: Any = proofs) -> bytes:
            value: bytes = proofs(b"newcomer", newer, now[26:58], wrong)
            return value

        yield handshake.pack_link_request(newer, wrong), prove
    # All is right but the address: another node, an incarnation that is no more.
    for to_node, to_incarnation in ((1, 3), (0, 2), (0, 4)):
        lost = LinkRequest.fresh(1, 6, to_node, to_incarnation)
        yield (
            handshake.pack_link_request(lost, known),
            lambda now, lost=lost: handshake._prove(b"newcomer", lost, now[26:58], known),
        )


KINDS = {"G2-replay": replayed}
