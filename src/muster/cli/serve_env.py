"""`muster serve-env ENV`: a shell over `muster.serve_env`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import tyro

from muster.cli.arguments import parse
from muster.cli.wording import as_typed
from muster.errors import OptionError


@dataclass(frozen=True)
class ServeEnvOptions:
    """Serve an environment to runs in other processes, or on other machines.

    There, the environment's id is remote:HOST:PORT. Ctrl-C ends it.

    Both sides need the same token, in MUSTER_TOKEN or MUSTER_TOKEN_FILE.
    """

    env: tyro.conf.Positional[str]
    """Id of a Gymnasium environment; module:Id-v0 imports the module first."""
    host: str = "127.0.0.1"
    """The address to listen at; other machines reach any but this one. Not encrypted."""
    port: int = 0
    """The port; 0 for a free one."""
    wrapper: tuple[str, ...] = ()
    """Wrappers, as module:Wrapper; the first is innermost."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment: key=value."""
    most: int = 1024
    """Maximum number of environments at a time."""
    quiet: bool = False
    """Do not print who comes and goes."""


def main(argv: Sequence[str]) -> int:
    """Serve until a signal arrives."""
    options = parse(ServeEnvOptions, argv, "muster serve-env")
    from muster.envs import UnknownEnvError
    from muster.serving.server import serve_env

    given = asdict(options)
    try:
        serve_env(**given)
    except UnknownEnvError as error:
        raise error.to_try("muster serve-env {}") from None
    except OptionError as error:
        raise as_typed(error, f"muster serve-env {options.env}", given) from None
    return 0
