"""Detects ids that EnvPool lacks without importing EnvPool, which takes more than a second.

EnvPool spells out most of its ids in its `registration.py` files, and composes others: those of
Atari games (`Pong-v5`) and of dm_control. So the text is trusted only for an id that looks like a
misspelling of a Gymnasium id, and never where it could be an Atari game.
"""

import functools
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

from muster.spelling import is_one_slip

_VERSION = re.compile(r"-v\d+$")


def surely_not_in_envpool(env_id: str, known: Iterable[str]) -> bool:
    """Whether `env_id` is a misspelling of one of the ids `known`, and not an id of EnvPool.

    False does not mean that EnvPool has the id: then EnvPool itself has to be asked.
    """
    name = _VERSION.sub("", env_id)
    names = {_VERSION.sub("", each).lower() for each in known}
    same_name = name.lower() in names
    if env_id.endswith("-v5") or not (
        same_name or any(is_one_slip(name.lower(), each) for each in names)
    ):
        return False
    text = _registrations()
    written_out = re.escape(env_id if same_name else name)
    return bool(text) and re.search(rf"\b{written_out}\b", text) is None


def probably_in_envpool(env_id: str) -> bool:
    """Whether EnvPool is installed and spells out the id, or its name without the version."""
    name = _VERSION.sub("", env_id)
    return re.search(rf"\b{re.escape(name)}\b", _registrations()) is not None


def ids_of_envpool() -> list[str]:
    """Return all ids of EnvPool (imports it); empty if it is not installed."""
    if importlib.util.find_spec("envpool") is None:
        return []
    import envpool

    return list(envpool.list_all_envs())


@functools.cache
def _registrations() -> str:
    spec = importlib.util.find_spec("envpool")
    if spec is None or spec.origin is None:
        return ""
    files = sorted(Path(spec.origin).parent.rglob("registration.py"))
    return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
