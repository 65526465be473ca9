"""`EnvServer`: serves environments to whoever knows the token, each in a process of its own.

    connection -> handshake -> process of `served.py`, which has the socket -> one environment

The environments of a server compute side by side, and one that crashes takes no other with it.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.algos.options import check_whole
from muster.engines.accepting import Accepting
from muster.engines.local.authentication import authenticate
from muster.engines.local.handshake import HandshakeError
from muster.engines.logs import say
from muster.envs import remote_wire
from muster.envs.make import REMOTE
from muster.envs.space_json import space_to_json
from muster.errors import OptionError
from muster.recipes.env_options import parse_env_kwargs, texts_of_kwargs
from muster.serving.served import EnvChoice, make_one

MOST_ENVS = 1024


class EnvServer:
    """Serves environments of one kind, until it is closed; a context manager.

    Args:
        env: Id of a Gymnasium environment.
        host: The address to listen at. Other machines reach any but the default.
        port: The port; 0 for a free one.
        wrapper: Wrappers, as `module:Wrapper`; the first is innermost.
        env_kwargs: Arguments of the environment, by name or as texts `key=value`.
        most: Maximum number of environments at a time; more are refused.
        quiet: Do not print who comes and goes.

    Attributes:
        address: HOST:PORT, where it listens.

    Raises:
        OptionError: An argument is invalid, there is no token, or it cannot listen there.
        EnvError: The environment cannot be made, or its spaces cannot be sent.
    """

    def __init__(
        self,
        env: str,
        host: str = "127.0.0.1",
        port: int = 0,
        wrapper: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] | Sequence[str] = (),
        most: int = MOST_ENVS,
        quiet: bool = False,
    ) -> None:
        check_whole("most", most)
        self._known = remote_wire.secrets_here()
        kwargs = parse_env_kwargs(tuple(texts_of_kwargs(env_kwargs)))
        self._choice = EnvChoice(env, tuple(wrapper), kwargs)
        one = make_one(self._choice)  # its mistakes are told before anybody connects
        try:
            space_to_json(one.observation_space), space_to_json(one.action_space)
        finally:
            one.close()
        self._most, self._quiet = most, quiet
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._closed = threading.Event()
        listener = _listening(host, port)
        self.address = _shown(host, listener.getsockname()[1])
        self._accepting = Accepting(listener, self._receive, "muster-serve-env")

    def serve(self) -> None:
        """Wait until `close` is called, or a signal raises an exception."""
        while not self._closed.wait(0.2):  # in short waits, so that a signal is noticed
            pass

    def close(self) -> None:
        """Stop listening, and end all environments."""
        self._closed.set()
        self._accepting.close()
        with self._lock:
            processes = list(self._processes)
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
                continue
            process.kill()
            process.wait()

    def __enter__(self) -> "EnvServer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _receive(self, sock: socket.socket, address: str, known: Callable[[], None]) -> None:
        """Give a connection that knows the token to a new process, and wait for its end."""
        with sock:
            try:
                authenticate(sock, remote_wire.SERVER, self._known)
            except HandshakeError as error:
                self._say(f"{address} was refused: {error.args[1]}")
                return
            except OSError:
                return
            known()
            process = self._started(sock)
        if process is None:
            self._say(f"{address} was refused: {self._most} environments are the most")
            return
        self._say(f"{address} has environment {process.pid}")
        code = process.wait()
        with self._lock:
            self._processes.discard(process)
        how = "left" if code == 0 else f"lost it: exit code {code}"
        if not self._closed.is_set():
            self._say(f"{address} {how}, environment {process.pid}")

    def _started(self, sock: socket.socket) -> "subprocess.Popen[bytes] | None":
        sock.settimeout(None)
        with self._lock:
            if self._closed.is_set() or len(self._processes) >= self._most:
                return None
            words = [str(sock.fileno()), str(os.getpid()), json.dumps(self._choice)]
            process = subprocess.Popen(
                [sys.executable, "-m", "muster.serving.served", *words],
                stdin=subprocess.DEVNULL,
                pass_fds=[sock.fileno()],
                process_group=0,  # Ctrl-C reaches only the server, which then ends them
            )
            self._processes.add(process)
            return process

    def _say(self, line: str) -> None:
        if not self._quiet:
            say(line)


def serve_env(env: str, **options: Any) -> None:
    """Serve an environment to runs elsewhere, until a signal ends it.

    Args:
        env: Id of a Gymnasium environment.
        **options: As for `EnvServer`.
    """
    with EnvServer(env, **options) as server:
        say(f"{env} is served at {server.address}; Ctrl-C ends it")
        if not server.address.startswith(("127.", "localhost", "[::1]")):
            say("what is sent is not encrypted: only in a network that you trust")
        say(f"there, with the same MUSTER_TOKEN: muster train ppo {REMOTE}{server.address}")
        server.serve()


def _listening(host: str, port: int) -> socket.socket:
    if not host:  # to the system it means every address of this machine
        raise OptionError("host='' is no address", "it says who can connect", "--host 127.0.0.1")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"this machine cannot listen at {_shown(host, port)}",
            getattr(error, "strerror", None) or str(error),
            "--port 0, for a free one; --host must be an address of this machine",
        ) from None


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
