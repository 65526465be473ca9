"""What a `RemoteEnv` and its server say to each other: packed values over one socket.

    client -> handshake with the token
    server -> what the environment is: id, spaces, render mode
    client -> ("reset", seed, options) | ("step", action) | ("render",)
    server -> (True, results...)  or  (False, what was raised, its traceback)

Values are those of `muster.flow.wire`: plain values and arrays, nothing that is executed.
"""

import os
import socket
from typing import Any

from muster.engines.join.terms import token
from muster.engines.join.wire import Kind, Message, Wire, packed
from muster.engines.local.authentication import introduce
from muster.engines.local.handshake import Secrets
from muster.errors import OptionError
from muster.flow.wire import WireError, buffer_sizes, pack, unpack
from muster.version import __version__

SERVER, CLIENT = 0, 1
"""The two ends, as nodes of the handshake."""
_RUN = b"muster env v0001"
_CONNECT_SECONDS = 5.0


def secrets_here() -> Secrets:
    """Return the token of this process's environment variables, as both ends need it.

    Raises:
        OptionError: There is none, or it is too short.
    """
    known = token(os.environ, "a remote environment and its server have")
    return Secrets(_RUN, known, __version__.encode()[:16])


def read_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raise OptionError if it is no address."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise OptionError(
            f"{text!r:.80} is not the address of a server",
            "an address is HOST:PORT, as muster serve-env prints it",
            "remote:127.0.0.1:5555",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def connect(host: str, port: int, known: Secrets) -> Wire:
    """Return a wire to a server that has proved that it knows the token.

    Raises:
        OSError: There is no such server, or it has another token or version.
    """
    sock = socket.create_connection((host, port), _CONNECT_SECONDS)
    try:
        introduce(sock, CLIENT, SERVER, known)
        return Wire(sock, CLIENT, SERVER)
    except BaseException:
        sock.close()
        raise


def send(wire: Wire, value: Any) -> None:
    """Send one value.

    Raises:
        OSError: The connection is broken.
        CannotTravelError: The value holds something else than plain values and arrays.
    """
    made = pack(value)
    wire.send(Kind.MESSAGE, packed(Message(b"", made.tree, made.buffers)))


def receive(wire: Wire, seconds: float | None = None) -> Any:
    """Wait for one value.

    Raises:
        OSError: The connection is broken or closed; TimeoutError after `seconds`.
    """
    found = wire.message(wire.head(seconds))
    try:
        if list(buffer_sizes(found.tree)) != [len(each) for each in found.buffers]:
            raise ConnectionError("a message whose buffers have other sizes than it says")
        return unpack(found.tree, found.buffers)
    except WireError as error:
        raise ConnectionError(f"a message that cannot be read ({error.args[0]})") from error
