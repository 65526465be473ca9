"""The navigation of the site, from `mkdocs.yml`."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

MKDOCS = Path(__file__).parent.parent / "mkdocs.yml"


@cache
def titles() -> dict[str, str]:
    """Return the title of every page of the navigation by its file, in order."""
    settings = yaml.safe_load(MKDOCS.read_text())
    return dict(_entries(settings["nav"]))


def _entries(nav: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for entry in nav:
        for title, what in entry.items():
            if isinstance(what, str):
                yield what, title
            else:
                yield from _entries(what)
