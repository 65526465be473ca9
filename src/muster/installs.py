"""How an extra of muster is installed, from where muster itself came from."""

import importlib.metadata
import json
from pathlib import Path

from muster.shown import program, shown


def install(extra: str) -> str:
    """Return the command that adds an extra, such as `envs` or `ray`.

    From a clone, the name of the distribution alone would mean that of a package index.
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
        again = "-e " if editable else ""  # without it, edits of the clone would count no more
        return f'{program("pip")} install -c {versions} {again}"{shown(folder)}[{extra}]"'
    return f'{program("pip")} install "muster-rl[{extra}]"'
