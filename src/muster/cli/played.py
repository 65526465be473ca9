"""What `muster eval` and `muster play` can be told alike: how many episodes, from which seed."""

from muster.algos.options import check_whole
from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.recipes.options import MOST_SEED


def check_played(episodes: int, seed: int, prog: str) -> None:
    """Raise OptionError unless these can be played, in the words of the command `prog`."""
    try:
        check_whole("episodes", episodes, high=1_000_000)
        check_whole("seed", seed, low=0, high=MOST_SEED)
    except OptionError as error:
        raise as_typed(error, prog, ("episodes", "seed")) from None
