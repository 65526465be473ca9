"""Tables and numbers as the pages in docs/ show them, and the results that they come from."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
NOTHING = "-"


def result(name: str) -> dict[str, Any]:
    """Return a committed result by the name of its file, without the ending."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def link(name: str, text: str = "result") -> str:
    """Return a link from a page in docs/ to a result."""
    return f"[{text}](../benchmarks/results/{name}.json)"


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, and commas where it is large."""
    if value and abs(value) < 10 ** (digits - 1):
        return f"{value:.{digits}g}"
    return f"{value:,.0f}"


def score(value: float) -> str:
    """Return a return: with one decimal, or none where it is in the thousands."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.1f}"
