"""The options that `muster eval` and `muster play` share: number of episodes, and seed."""

import shlex

from muster.algos.options import check_whole
from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.recipes.options import MOST_SEED
from muster.run import RunDirectory


def check_played(verb: str, run: str, episodes: int, seed: int) -> None:
    """Validate the options, with errors in command-line syntax, before torch is imported.

    Raises:
        OptionError: The number of episodes, or the seed, is invalid.
        RunDirectoryError: There is no such run.
    """
    prog = f"muster {verb} {shlex.quote(run)}"
    try:
        check_whole("episodes", episodes, high=1_000_000)
        check_whole("seed", seed, low=0, high=MOST_SEED)
    except OptionError as error:
        raise as_typed(error, prog, ("episodes", "seed")) from None
    RunDirectory.open(run)
