"""A table of text in columns."""

from collections.abc import Sequence


def in_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a head and rows, each column as wide as its widest text."""
    table = [head, *rows]
    widths = [max(len(row[k]) for row in table) for k in range(len(head))]
    lines = ["  ".join(text.ljust(widths[k]) for k, text in enumerate(row)) for row in table]
    return "\n".join(line.rstrip() for line in lines)
