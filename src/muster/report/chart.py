"""Curves as inline SVG: lines, bands of intervals, axes, and values that a pointer shows.

The size is fixed to that of a card, whose width hardly varies, so that text keeps its size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.report.html import Html, joined, tag

Numbers = NDArray[np.float64]

COLOURS = 8
"""Number of colours in the style sheet: `c0` to `c7`."""
WIDTH, HEIGHT = 440, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 28
_MOST = 1e100
"""Larger numbers are drawn at the edge: differences of the largest floats would be infinite."""
_BUCKETS = 150
"""A long curve is drawn as this many pairs of a minimum and a maximum."""


@dataclass(frozen=True)
class Line:
    """A curve. Faint curves are single seeds behind the curve of their group."""

    label: str
    colour: int
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    """The lower edge of its interval; `high` is the upper one."""
    high: Numbers | None = None
    faint: bool = False


def chart(title: str, lines: Sequence[Line], x_title: str = "env steps") -> Html:
    """Return a figure of curves over one axis."""
    drawn = [line for line in lines if len(line.x)]
    if not drawn:
        return Html("")
    across = _Axis.over([np.zeros(1), *(line.x for line in drawn)], _LEFT, WIDTH - _RIGHT)
    edges = [each for line in drawn for each in (line.y, line.low, line.high) if each is not None]
    up = _Axis.over(edges, HEIGHT - _BOTTOM, _TOP)
    shown = [line for line in drawn if not line.faint]
    last = ", ".join(f"{line.label}: {short(line.y[-1])}" for line in shown[:6])
    picture = tag(
        "svg",
        _axes(across, up, x_title),
        *(_band(line, across, up) for line in drawn if line.low is not None),
        *(_curve(line, across, up) for line in drawn if line.faint),
        *(_curve(line, across, up) for line in shown),
        tag("line", class_="cursor", y1=_TOP, y2=HEIGHT - _BOTTOM, x1=-9, x2=-9),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="chart",
        data_low=across.low,
        data_high=across.high,
        role="img",
        tabindex=0,
        aria_label=f"{title} over {x_title}. Last values: {last}. Arrow keys show values.",
    )
    return tag(
        "figure",
        tag("figcaption", title),
        picture,
        tag("output", class_="values", aria_live="polite"),
    )


@dataclass(frozen=True)
class _Axis:
    """Maps numbers to positions in the picture."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, numbers: Sequence[Numbers], start: float, end: float) -> "_Axis":
        low = max(min(float(np.min(each)) for each in numbers), -_MOST)
        high = min(max(float(np.max(each)) for each in numbers), _MOST)
        if high <= low:
            margin = abs(low) * 0.1 or 1.0
            low, high = low - margin, high + margin
        return cls(low, high, start, end)

    def places(self, numbers: Numbers) -> Numbers:
        share = (np.clip(numbers, self.low, self.high) - self.low) / (self.high - self.low)
        found: Numbers = self.start + share * (self.end - self.start)
        return found

    def ticks(self) -> list[float]:
        """Return a few round numbers."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(each for each in (1, 2, 5, 10) if (self.high - self.low) / (each * step) <= 5)
        first = math.ceil(self.low / step)
        return [each * step for each in range(first, math.floor(self.high / step) + 1)][:12]


def _axes(across: _Axis, up: _Axis, x_title: str) -> Html:
    pieces = []
    for value, place in _placed(up):
        pieces.append(tag("line", class_="grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=place, y2=place))
        pieces.append(tag("text", short(value), x=_LEFT - 6, y=place + 4, text_anchor="end"))
    for value, place in _placed(across):
        if place < WIDTH - 90:  # the axis title is there
            label = tag("text", short(value), x=place, y=HEIGHT - 8, text_anchor="middle")
            pieces.append(label)
    pieces.append(tag("text", x_title, x=WIDTH - _RIGHT, y=HEIGHT - 8, text_anchor="end"))
    return tag("g", *pieces, aria_hidden="true")


def _placed(axis: _Axis) -> list[tuple[float, float]]:
    ticks = axis.ticks()
    return list(zip(ticks, axis.places(np.array(ticks)).round(1).tolist(), strict=True))


def _curve(line: Line, across: _Axis, up: _Axis) -> Html:
    x, y = thinned(line.x, line.y)
    hidden = "" if line.faint else " ".join(f"{a:.7g},{b:.5g}" for a, b in zip(x, y, strict=True))
    name = f"curve c{line.colour % COLOURS}{' faint' if line.faint else ''}"
    places = _points(across.places(x), up.places(y))
    values = {} if line.faint else {"data_values": hidden, "data_label": line.label}
    if len(x) == 1:  # a line of one point is invisible
        dot = dict(zip(("cx", "cy"), places.split(","), strict=True))
        return tag("circle", r=3, class_=f"{name} dot", **dot, **values)
    return tag("polyline", points=places, class_=name, **values)


def _band(line: Line, across: _Axis, up: _Axis) -> Html:
    assert line.low is not None and line.high is not None
    x = across.places(line.x)
    edge = np.concatenate([x, x[::-1]])
    sides = np.concatenate([up.places(line.low), up.places(line.high)[::-1]])
    return tag("polygon", points=_points(edge, sides), class_=f"band c{line.colour % COLOURS}")


def _points(x: Numbers, y: Numbers) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def thinned(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return a curve of few points that keeps every spike, the first and the last point."""
    if len(x) <= 2 * _BUCKETS + 2:
        return x, y
    keep = {0, len(x) - 1}
    for part in np.array_split(np.arange(len(x)), _BUCKETS):
        keep |= {int(part[np.argmin(y[part])]), int(part[np.argmax(y[part])])}
    chosen = np.array(sorted(keep))
    return x[chosen], y[chosen]


def bar(parts: Sequence[tuple[str, float]], label: str) -> Html:
    """Return shares of a whole as one bar with a legend."""
    total = sum(share for _, share in parts) or 1.0
    pieces, start = [], 0.0
    for place, (_, share) in enumerate(parts):
        wide = 100 * share / total
        shape = {"x": f"{start:.2f}", "width": f"{wide:.2f}", "height": 10}
        pieces.append(tag("rect", class_=f"part c{place % COLOURS}", **shape))
        start += wide
    legend = (
        tag("li", tag("i", class_=f"key c{place % COLOURS}"), f" {name} {share / total:.0%}")
        for place, (name, share) in enumerate(parts)
    )
    picture = tag(
        "svg",
        *pieces,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label=label,
    )
    return joined([picture, tag("ul", *legend, class_="legend")])


def short(value: float) -> str:
    """Return a number as an axis label."""
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-3:
        return f"{value:.1e}"
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.4g}{name}"
    return f"{value:.4g}"
