"""How to install an extra of muster, from a clone or a package index."""

import importlib.metadata
import json
from pathlib import Path

from muster.shown import program, shown


def install(extra: str) -> str:
    """Return the command that adds an extra, such as `envs` or `ray`.

    In a clone, the distribution name alone would refer to a package index.
    """
    try:
        origin = importlib.metadata.distribution("muster-rl").read_text("direct_url.json")
        about = json.loads(origin or "{}")
        url, editable = str(about.get("url", "")), about.get("dir_info", {}).get("editable")
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        url, editable = "", None
    if url.startswith("file://"):
        folder = Path(url.removeprefix("file://"))
        versions = shown(folder / "constraints.txt")
        again = "-e " if editable else ""  # otherwise later edits of the clone have no effect
        return f'{program("pip")} install -c {versions} {again}"{shown(folder)}[{extra}]"'
    return f'{program("pip")} install "muster-rl[{extra}]"'
