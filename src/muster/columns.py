"""Tables of text that fit a terminal or a notebook, whatever the names of files contain."""

import html
import math
import shutil
from collections.abc import Sequence
from typing import Any

GAP = 2
LEAST_WIDTH = 80


def width() -> int:
    """Return the width of the terminal in columns; at least 80, also without a terminal."""
    return max(LEAST_WIDTH, shutil.get_terminal_size().columns)


def harmless(value: Any) -> str:
    """Return a value on one line, without characters that a terminal interprets as commands."""
    return "".join(each if each.isprintable() else "?" for each in str(value))


def cut(text: str, most: int, *, keep_end: bool = False) -> str:
    """Return a text of at most `most` characters, with `...` where some are left out."""
    if len(text) <= most:
        return text
    return f"...{text[3 - most :]}" if keep_end else f"{text[: most - 3]}..."


def lines(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns.

    Args:
        rows: All of the same length.
        right: Columns that are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (" " * GAP)
        .join(
            cell.rjust(size) if place in right else cell.ljust(size)
            for place, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in rows
    ]


def as_text(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names and values as lines with aligned columns."""
    return "\n".join(lines([(name, harmless(value)) for name, value in pairs]))


def as_html(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names and values as a small table, for a notebook."""
    rows = (
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(harmless(value))}</td></tr>"
        for name, value in pairs
    )
    return f"<table>{''.join(rows)}</table>"


def short_number(value: float | None) -> str:
    """Return a number in at most seven characters: 475.0, 1.2M, 1e-09; `-` for None."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1e15 or (size and size < 1e-3):
        return f"{value:.0e}"
    if size < 1e4:
        return f"{value:.1f}" if size >= 1 or not size else f"{value:.3f}"
    thousands = min(int(math.log10(size)) // 3, 4)
    return f"{value / 1000**thousands:.3g}{'kMGT'[thousands - 1]}"


def short_count(value: int | None) -> str:
    """Return a whole number in at most seven characters."""
    return str(value) if value is not None and abs(value) < 1e4 else short_number(value)
