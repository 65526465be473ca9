"""The handshake of `handshake.py`, carried out over a TCP socket."""

import secrets
import socket

from muster.engines.local import handshake
from muster.engines.local.handshake import HandshakeError, LinkRequest, Secrets

HANDSHAKE_SECONDS = 5.0
"""Maximum seconds between two messages of a handshake."""


def authenticate(sock: socket.socket, node: int, known: Secrets) -> LinkRequest:
    """Check that the newcomer at the other end knows the run's token, and return its request.

    Args:
        sock: A connection that was just accepted.
        node: The node that listens here.
        known: The run's secrets.

    Raises:
        HandshakeError: The newcomer is of another version or run, or does not know the token.
        OSError: The newcomer is silent, or has gone.
    """
    sock.settimeout(HANDSHAKE_SECONDS)
    said = bytes(receive(sock, handshake.HELLO_SIZE))
    try:
        hello = handshake.read_link_request(said, known)
    except HandshakeError:
        sock.sendall(handshake.pack_refusal(known))
        raise
    if hello.to_node != node:
        raise HandshakeError("a connection was refused", "it is for another node", "report it")
    nonce = secrets.token_bytes(32)
    sock.sendall(handshake.pack_answer(hello, nonce, known))
    proof = bytes(receive(sock, handshake.PROOF_SIZE))
    handshake.check_proof(proof, hello, nonce, known)
    return hello


def introduce(sock: socket.socket, node: int, to_node: int, known: Secrets) -> None:
    """Prove to the listener at the other end that this node knows the token, and check it too.

    Raises:
        HandshakeError: The listener is of another version or run, or does not know the token.
        OSError: The listener is silent, or has gone.
    """
    sock.settimeout(HANDSHAKE_SECONDS)
    hello = LinkRequest.fresh(node, 0, to_node, 0)
    sock.sendall(handshake.pack_link_request(hello, known))
    answer = bytes(receive(sock, handshake.ANSWER_SIZE))
    sock.sendall(handshake.read_answer(answer, hello, known))


def receive(sock: socket.socket, size: int) -> bytearray:
    """Receive exactly this many bytes.

    Raises:
        ConnectionError: The other side closed the connection.
    """
    data = bytearray(size)
    receive_into(sock, memoryview(data))
    return data


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill a view with the next bytes.

    Raises:
        ConnectionError: The other side closed the connection.
    """
    while view:
        count = sock.recv_into(view)
        if not count:
            raise ConnectionError("the other side closed the connection")
        view = view[count:]
