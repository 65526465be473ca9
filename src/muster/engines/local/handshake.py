"""Two nodes authenticate each other before either reads anything else.

    newcomer -> HELLO   version, run, identity, a nonce
    listener -> ANSWER  version, a nonce, proof that it knows the run's token
    newcomer -> PROOF   proof that it knows the token too

A proof is an HMAC of both nonces and both identities, so a recorded message cannot be replayed.
All messages have a fixed size; nothing is decoded before the proof.
"""

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass

from muster.errors import MusterError

PROTOCOL = 1
"""Increased whenever frames, heads or trees change."""

_MAGIC = b"MUSTER\r\n"
_HELLO = struct.Struct("<8sH16s16sIIII32s")
_ANSWER = struct.Struct("<8sH16s32s32s")
HELLO_SIZE = _HELLO.size
ANSWER_SIZE = _ANSWER.size
PROOF_SIZE = 32


class HandshakeError(MusterError, ConnectionError):
    """The other side is not a node of this run."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets and the version that all nodes of one run share."""

    run: bytes
    token: bytes
    version: bytes
    """Version of muster, at most 16 bytes."""

    @classmethod
    def fresh(cls, version: str) -> "Secrets":
        """Make the secrets of a new run."""
        return cls(secrets.token_bytes(16), secrets.token_bytes(32), version.encode()[:16])


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """A request to link two nodes."""

    node: int
    incarnation: int
    to_node: int
    to_incarnation: int
    nonce: bytes

    @classmethod
    def fresh(cls, node: int, incarnation: int, to_node: int, to_incarnation: int) -> "LinkRequest":
        """Make a request with a new nonce."""
        return cls(node, incarnation, to_node, to_incarnation, secrets.token_bytes(32))


def pack_link_request(hello: LinkRequest, known: Secrets) -> bytes:
    """Return the newcomer's first message."""
    return _HELLO.pack(
        _MAGIC,
        PROTOCOL,
        known.version,
        known.run,
        hello.node,
        hello.incarnation,
        hello.to_node,
        hello.to_incarnation,
        hello.nonce,
    )


def read_link_request(data: bytes, known: Secrets) -> LinkRequest:
    """Return the request, if it has the same version and run."""
    magic, protocol, version, run, node, incarnation, to_node, to_inc, nonce = _HELLO.unpack(data)
    _check_same(magic, protocol, version, known)
    if not hmac.compare_digest(run, known.run):
        raise _stranger("it is of another run")
    return LinkRequest(node, incarnation, to_node, to_inc, nonce)


def pack_answer(hello: LinkRequest, nonce: bytes, known: Secrets) -> bytes:
    """Return the listener's answer."""
    proof = _prove(b"listener", hello, nonce, known)
    return _ANSWER.pack(_MAGIC, PROTOCOL, known.version, nonce, proof)


def pack_refusal(known: Secrets) -> bytes:
    """Return an answer without proof, which tells the other side the version here."""
    return _ANSWER.pack(_MAGIC, PROTOCOL, known.version, bytes(32), bytes(32))


def read_answer(data: bytes, hello: LinkRequest, known: Secrets) -> bytes:
    """Check the listener's proof, and return the newcomer's proof."""
    magic, protocol, version, nonce, proof = _ANSWER.unpack(data)
    _check_same(magic, protocol, version, known)
    if not hmac.compare_digest(proof, _prove(b"listener", hello, nonce, known)):
        raise _stranger("it does not know the token of this run")
    return _prove(b"newcomer", hello, nonce, known)


def check_proof(proof: bytes, hello: LinkRequest, nonce: bytes, known: Secrets) -> None:
    """Check the newcomer's proof."""
    if not hmac.compare_digest(proof, _prove(b"newcomer", hello, nonce, known)):
        raise _stranger("it does not know the token of this run")


def _prove(who: bytes, hello: LinkRequest, nonce: bytes, known: Secrets) -> bytes:
    said = pack_link_request(hello, known) + nonce + who
    return hmac.new(known.token, said, hashlib.sha256).digest()


def _check_same(magic: bytes, protocol: int, version: bytes, known: Secrets) -> None:
    if magic != _MAGIC:
        raise _stranger("it does not speak muster's protocol")
    if (protocol, version.rstrip(b"\0")) != (PROTOCOL, known.version.rstrip(b"\0")):
        theirs, ours = version.rstrip(b"\0").decode(errors="replace"), known.version.decode()
        raise HandshakeError(
            f"a node runs muster {theirs} (protocol {protocol}), this one {ours} "
            f"(protocol {PROTOCOL})",
            "all nodes of a run must have the same version",
            f"pip install muster-rl=={ours} for both",
        )


def _stranger(why: str) -> HandshakeError:
    return HandshakeError(
        "a connection was refused", why, "let only Parallel.runner start the nodes of a run"
    )
