"""`Terms`: where the ranks of a run meet, how many they are, and the token that they share."""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.engines.local.handshake import Secrets
from muster.errors import OptionError
from muster.version import __version__

ENV = "env"
"""`--join env`: the variables of torchrun say where, which rank, and how many."""
TOKEN, TOKEN_FILE = "MUSTER_TOKEN", "MUSTER_TOKEN_FILE"
MOST_WORLD = 1024
_RUN = b"muster join v001"
_SHORTEST_TOKEN = 16
_MOST_TOKEN = 4096
_MAKE_TOKEN = "export MUSTER_TOKEN=..., the same everywhere: openssl rand -hex 16 makes one"


@dataclass(frozen=True)
class Terms:
    """What one rank knows about the run before it has met the others."""

    host: str
    port: int
    rank: int
    world: int
    seconds: float
    """Maximum seconds until all ranks have met."""
    secrets: Secrets

    @property
    def address(self) -> str:
        """Where rank 0 listens, as typed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def terms_of(
    join: str, rank: int | None, world: int | None, seconds: float, environ: Mapping[str, str]
) -> Terms:
    """Return the terms that a command names.

    Args:
        join: `HOST:PORT` of rank 0; or `env`, for the variables that torchrun sets.
        rank: This rank; None only with `env`.
        world: Number of ranks; None only with `env`.
        seconds: Maximum seconds until all ranks have met.
        environ: The environment variables.

    Raises:
        OptionError: The address, a number or the token is missing or impossible.
    """
    if join == ENV:
        host, port = _variable("MASTER_ADDR", environ), _port(_variable("MASTER_PORT", environ))
        rank = _number("RANK", environ) if rank is None else rank
        world = _number("WORLD_SIZE", environ) if world is None else world
    else:
        host, port = _address(join)
    for name, value in (("rank", rank), ("world", world)):
        if value is None:
            raise OptionError(
                f"join={join} does not say {'which rank' if name == 'rank' else 'how many ranks'}",
                "each command of the run is one rank, from 0 to world - 1",
                "rank=0 world=2",
            )
    assert rank is not None and world is not None
    if not 1 <= world <= MOST_WORLD:
        raise OptionError(
            f"world={world} is not possible", f"it is from 1 to {MOST_WORLD:,}", "world=2"
        )
    if not 0 <= rank < world:
        raise OptionError(
            f"rank={rank} is not possible with world={world}",
            f"the ranks of this run are 0 to {world - 1}",
            f"rank={max(0, min(rank, world - 1))}, or world={max(rank, 0) + 1} on every rank",
        )
    known = Secrets(_RUN, token(environ), __version__.encode()[:16])
    return Terms(host, port, rank, world, seconds, known)


def token(environ: Mapping[str, str], whose: str = "the ranks of this run have") -> bytes:
    """Return the token that both ends share, from a variable or the file that a variable names.

    Args:
        environ: The environment variables.
        whose: Who needs it, for messages.

    Raises:
        OptionError: There is none, it is too short, or other users can read the file.
    """
    text, file = environ.get(TOKEN), environ.get(TOKEN_FILE)
    if text is None and file is not None:
        text = _from_file(Path(file))
    if text is None:
        raise OptionError(
            f"{whose} no token",
            f"only processes that know it may join: {TOKEN}, or {TOKEN_FILE} with a file's name",
            _MAKE_TOKEN,
        )
    text = text.strip()
    if len(text) < _SHORTEST_TOKEN:
        raise OptionError(
            f"the token has {len(text)} characters",
            f"whoever guesses it can join: it has {_SHORTEST_TOKEN} or more",
            _MAKE_TOKEN,
        )
    return hashlib.sha256(text.encode()).digest()


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(_MOST_TOKEN).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise OptionError(
            f"the file of {TOKEN_FILE}, {path}, cannot be read", why, f"ls -l {path}"
        ) from None
    if not stat.S_ISREG(mode) or mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise OptionError(
            f"other users can read the token in {path}",
            "whoever knows it can join the run",
            f"chmod 600 {path}",
        )
    return text


def _address(join: str) -> tuple[str, int]:
    host, colon, port = join.rpartition(":")
    if not colon or not host:
        raise OptionError(
            f"join={join!r:.80} is not possible",
            "it is HOST:PORT of rank 0, or env for the variables of torchrun",
            "join=127.0.0.1:29500",
        )
    return host.removeprefix("[").removesuffix("]"), _port(port)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise OptionError(
            f"the port {text!r:.40} is not possible",
            "it is a number from 1 to 65535, the same on every rank",
            "join=127.0.0.1:29500",
        )
    return int(text)


def _variable(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name)
    if not value:
        raise OptionError(
            f"join=env finds no variable {name}",
            "torchrun sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; a script can, too",
            f"export {name}=..., or join=HOST:PORT rank=0 world=2",
        )
    return value


def _number(name: str, environ: Mapping[str, str]) -> int:
    value = _variable(name, environ)
    if not value.isascii() or not value.isdigit():
        raise OptionError(
            f"the variable {name} is {value!r:.40}",
            "it is a whole number, 0 or more",
            f"export {name}=0",
        )
    return int(value)
