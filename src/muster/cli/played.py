"""What `muster eval` and `muster play` can be told alike: how many episodes, from which seed."""

import shlex

from muster.algos.options import check_whole
from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.recipes.options import MOST_SEED
from muster.run import RunDirectory


def check_played(verb: str, run: str, episodes: int, seed: int) -> None:
    """Refuse what cannot be played, in the words of the command, before torch is loaded.

    Raises:
        OptionError: So many episodes, or this seed, are not possible.
        RunDirectoryError: There is no such run.
    """
    prog = f"muster {verb} {shlex.quote(run)}"
    try:
        check_whole("episodes", episodes, high=1_000_000)
        check_whole("seed", seed, low=0, high=MOST_SEED)
    except OptionError as error:
        raise as_typed(error, prog, ("episodes", "seed")) from None
    RunDirectory.open(run)
