"""`muster train ALGO ENV --seeds N`: a shell over `muster.train_seeds`."""

import shlex
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.shown import program, shown

if TYPE_CHECKING:
    from muster.tuning.seeds import SeedsResult

_USAGE = """usage: muster resume DIR [--jobs J] [--quiet]

Continues the runs of muster train --seeds that were interrupted; those that
have finished are not repeated. Code of your own is named again: --algo, --env,
--model, --use, --wrapper."""


def run(algo: str, env: str, given: dict[str, Any]) -> int:
    """Train with several seeds, and print the result.

    Args:
        algo: The algorithm.
        env: The environment.
        given: The options that were given.
    """
    from muster.tuning.seeds import train_seeds

    prog = f"muster train {algo} {env}"
    if given.pop("resume", False):
        raise OptionError(
            "--resume and --seeds contradict each other",
            "runs that were interrupted know their seeds",
            "muster resume DIR",
        )
    try:
        return _report(train_seeds(algo, env, **given))
    except OptionError as error:
        raise as_typed(error, prog, given) from None


def resume(path: str, argv: Sequence[str], algo: str | None, env: str | None) -> int:
    """Continue the runs in a directory, and print the result.

    Args:
        path: The directory.
        argv: More options.
        algo: The algorithm, if it is code of your own.
        env: The environment, if it is code of your own.
    """
    from muster.cli.arguments import given_names, parse
    from muster.cli.train import options_of
    from muster.tuning.seeds import train_seeds

    if not {"-h", "--help"}.isdisjoint(argv):
        print(_USAGE)
        return 0
    prog = f"muster resume {shlex.quote(path)}"
    kind = options_of(algo or "ppo")
    chosen = parse(kind, argv, prog)
    given = {name: getattr(chosen, name) for name in given_names(kind, argv)}
    try:
        return _report(train_seeds(algo, env, resume=path, **given))
    except OptionError as error:
        raise as_typed(error, prog, given) from None


def _report(result: "SeedsResult") -> int:
    place = shlex.quote(shown(result.path))
    if result.stop_signal is not None:
        print(f"{program('muster')} resume {place}")
        return 128 + signal.Signals(result.stop_signal)
    print(f"{result.algo} on {result.env}: mean return of the last evaluation")
    print(result.table())
    print(f"{program('muster')} report {place}")
    return 0
