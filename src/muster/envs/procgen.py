"""Procgen's games (Cobbe et al. 2020) under their usual names, run by EnvPool.

    procgen:coinrun              easy, the first 200 levels: for training
    procgen:coinrun-test         easy, all levels: measures generalisation
    procgen:coinrun-hard         hard, the first 500 levels; procgen:coinrun-hard-test: all levels
    procgen:procgen-coinrun-v0   an id of the package procgen: hard, all levels

The package procgen is no longer maintained, so it is not used, even if it is installed.
"""

import re
from typing import Any

from muster.envs.errors import UnknownEnvError
from muster.spelling import nearest

PREFIX = "procgen:"
GAMES = (
    "bigfish", "bossfight", "caveflyer", "chaser", "climber", "coinrun", "dodgeball", "fruitbot",
    "heist", "jumper", "leaper", "maze", "miner", "ninja", "plunder", "starpilot",
)  # fmt: skip

_OF_PACKAGE = re.compile(r"(?:procgen:)?procgen-([a-z]+)-v\d+")
_ID = re.compile(r"procgen:([a-z]+)(-hard)?(-test)?")
_TRAINING_LEVELS = {"Easy": 200, "Hard": 500}
"""Numbers of training levels in the paper, for measuring generalisation."""


def is_procgen(env_id: str) -> bool:
    """Whether an id refers to Procgen; its prefix is not a module to import."""
    return env_id.startswith(PREFIX) or _OF_PACKAGE.fullmatch(env_id) is not None


def find_procgen(env_id: str) -> tuple[str, dict[str, Any]]:
    """Return EnvPool's id of a game, and the arguments that select its levels.

    Raises:
        UnknownEnvError: There is no such game; the message names the nearest.
    """
    of_package = _OF_PACKAGE.fullmatch(env_id)
    found = of_package or _ID.fullmatch(env_id)
    if found is None or found[1] not in GAMES:
        name = (found[1] if found else env_id.removeprefix(PREFIX)).partition("-")[0]
        near = nearest(name, GAMES)
        raise UnknownEnvError(
            f"No environment {env_id!r:.120}." + (f" Nearest: '{PREFIX}{near}'" if near else ""),
            f"the games are {', '.join(GAMES)}; -hard and -test may follow",
            f"make_envs('{PREFIX}{near or 'coinrun'}')",
            f"{PREFIX}{near or 'coinrun'}",
        )
    mode = "Hard" if of_package or found[2] else "Easy"
    levels = 0 if of_package or found[3] else _TRAINING_LEVELS[mode]
    return f"{found[1].capitalize()}{mode}-v0", {"num_levels": levels, "start_level": 0}
