"""The sections of a page, each made from runs."""

from collections.abc import Sequence
from typing import Any

from muster.report import chart
from muster.report.groups import SeedGroup
from muster.report.html import Html, joined, tag
from muster.report.listing import differences
from muster.report.runs import RunSummary, number, text, whole
from muster.report.statistics import bootstrap, iqm
from muster.report.videos import videos

_FIRST = ("eval/return", "collect/return_100")
_ROOMS = ("eval", "collect", "train", "lag")
_MOST_CHARTS = 60
_LONGEST_VALUE = 200


def overview(runs: Sequence[RunSummary]) -> Html:
    """Return a table of the runs."""
    titles = [
        "run",
        "algo",
        "env",
        "seed",
        "status",
        "steps",
        "seconds",
        "steps/s",
        "best",
        "final",
    ]
    rows = []
    for run in runs:
        rate = number(run.result.get("env_steps_per_s"))
        rows.append(
            [run.name, run.algo, run.env, run.seed, run.status, _count(run.env_steps)]
            + [_short(each) for each in (run.seconds, rate, run.best_return, run.final_return)]
        )
    problems = [f"{run.name}: {each}" for run in runs for each in run.problems]
    noted = (tag("li", each) for each in problems[:50])
    return joined(
        [
            table(titles, rows, right=(3, 5, 6, 7, 8, 9), label="runs"),
            tag("ul", *noted, class_="soft") if problems else None,
        ]
    )


def returns(groups: Sequence[SeedGroup]) -> Html:
    """Return the interquartile mean of the final returns of each group, with its interval."""
    rows: list[list[Any]] = []
    for group in groups:
        scores = [run.final_return for run in group.runs if run.final_return is not None]
        if not scores:
            continue
        interval = bootstrap(iqm, scores, repetitions=1_000) if len(scores) > 1 else None
        edges = "one run has none" if interval is None else " to ".join(map(chart.short, interval))
        rows.append([group.env, _key(group), len(scores), _short(float(iqm(scores))), edges])
    if not rows:
        return tag("p", "No run has been evaluated yet.", class_="soft")
    titles = ["env", "group", "runs", "IQM of the final return", "95 % interval"]
    return table(titles, rows, right=(2, 3), label="returns")


def curves(groups: Sequence[SeedGroup]) -> Html:
    """Return a chart of each metric, separately for each environment."""
    pieces: list[Html] = []
    for env in dict.fromkeys(group.env for group in groups):
        inside = [group for group in groups if group.env == env]
        names = _metrics(inside)
        pieces.append(tag("h2", f"Curves on {env}"))
        pieces.append(tag("ul", *(tag("li", _key(each)) for each in inside), class_="legend"))
        figures = (
            chart.chart(name, [line for group in inside for line in group.lines(name)])
            for name in names
        )
        pieces.append(tag("div", *figures, class_="cards"))
    return joined(pieces)


def timing(runs: Sequence[RunSummary]) -> Html | None:
    """Return where the training time went, and how close to the machine's limit it was."""
    pieces = []
    for run in runs:
        speed = run.result.get("speed")
        split = speed.get("split") if isinstance(speed, dict) else None
        shares = [
            (name[:40], share)
            for name, value in (split.items() if isinstance(split, dict) else ())
            if (share := number(value)) is not None and share >= 0
        ]
        facts = [
            f"{name} {value:.2f}"
            for name in ("eta", "rho")
            if (value := number(run.result.get(name))) is not None
        ]
        if limit := text(run.result.get("limited_by")):
            facts.append(f"limited by {limit}")
        if shares or facts:
            bar = chart.bar(shares[:10], f"shares of time of {run.name}") if shares else None
            said = tag("p", ", ".join(facts))
            pieces.append(tag("figure", tag("figcaption", run.name), said, bar))
    if not pieces:
        return None
    meaning = (
        "eta: trained steps, as a share of the most that these cores could do. "
        "rho: as a share of what the bare environments do."
    )
    said = tag("p", meaning, class_="soft")
    return joined([tag("h2", "Where the time went"), said, tag("div", *pieces, class_="cards")])


def replaced(runs: Sequence[RunSummary]) -> Html | None:
    """Return how often a node of a run was replaced."""
    counts = [(run.name, whole(run.result.get("replacements"), 0)) for run in runs]
    if not any(count for _, count in counts):
        return None
    rows = [[name, count] for name, count in counts if count]
    return joined(
        [tag("h2", "Replaced nodes"), table(["run", "replaced"], rows, right=(1,), label="nodes")]
    )


def settings(runs: Sequence[RunSummary]) -> Html:
    """Return the settings that differ, and all settings of each run."""
    differing = differences(*runs)
    rows = [[name, *map(_value, values)] for name, values in differing.items()]
    names = ["setting", *(run.name for run in runs)]
    same = tag("p", "No setting differs.", class_="soft") if len(runs) > 1 else None
    folded = [
        tag(
            "details",
            tag("summary", f"All settings of {run.name}"),
            table(["setting", "value"], [[k, _value(v)] for k, v in run.options.items()]),
            id=f"settings-{place}",
        )
        for place, run in enumerate(runs)
    ]
    found = table(names, rows, label="settings that differ") if rows else same
    return joined([tag("h2", "Settings that differ") if found else None, found, *folded])


def machines(runs: Sequence[RunSummary]) -> Html:
    """Return the hardware and software of the runs."""
    pieces = [tag("h2", "System")]
    for place, run in enumerate(runs):
        versions = run.machine.get("versions")
        plain = {k: v for k, v in run.machine.items() if not isinstance(v, dict | list)}
        rows = [[name, _value(value)] for name, value in plain.items()]
        rows += [
            [k, _value(v)] for k, v in (versions if isinstance(versions, dict) else {}).items()
        ]
        summary = tag("summary", f"{run.name}: {text(run.machine.get('cpu')) or 'unknown machine'}")
        facts = table(["", ""], rows[:100]) if rows else None
        pieces.append(tag("details", summary, facts, id=f"system-{place}"))
    return joined(pieces)


def films(runs: Sequence[RunSummary]) -> Html | None:
    """Return the videos of all runs."""
    found = [each for run in runs for each in videos(run.path)]
    if not found:
        return None
    return joined([tag("h2", "Videos"), tag("div", *found, class_="cards")])


def commands(runs: Sequence[RunSummary]) -> Html:
    """Return the commands that made the runs."""
    written = "\n".join(line[:2000] for run in runs for line in run.commands()[:20])
    return joined(
        [tag("h2", "To repeat these runs"), tag("pre", written or "not known", tabindex=0)]
    )


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
    right: Sequence[int] = (),
    label: str | None = None,
) -> Html:
    """Return a table that scrolls if it is too wide."""

    def line(cells: Sequence[Any], kind: str) -> Html:
        sides = ("n" if place in right else None for place in range(len(cells)))
        shown = zip(cells, sides, strict=True)
        return tag("tr", *(tag(kind, _cell(cell), class_=side) for cell, side in shown))

    head = tag("thead", line(titles, "th")) if any(titles) else None
    body = tag("tbody", *(line(row, "td") for row in rows))
    inside = tag("table", head, body)
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=label)


def _cell(value: Any) -> Any:
    return "-" if value is None else value if isinstance(value, Html) else str(value)


def _value(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}..."


def _short(value: float | None) -> str | None:
    if value is None or not 1 <= abs(value) < 1e4:
        return None if value is None else chart.short(value)
    return f"{value:.1f}"  # so that the numbers of a column are aligned


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _key(group: SeedGroup) -> Html:
    many = f" ({len(group.runs)} seeds)" if len(group.runs) > 1 else ""
    return joined(
        [tag("i", class_=f"key c{group.colour % chart.COLOURS}"), f" {group.label}{many}"]
    )


def _room(name: str) -> str:
    return name.partition("/")[0] if "/" in name else "other"


def _metrics(groups: Sequence[SeedGroup]) -> list[str]:
    """Return the metrics of some groups: returns first, then by prefix."""
    names = dict.fromkeys(k for group in groups for each in group.curves for k in each.metrics)

    def order(name: str) -> tuple[bool, int]:
        room = _room(name)
        return name not in _FIRST, _ROOMS.index(room) if room in _ROOMS else len(_ROOMS)

    return sorted(names, key=order)[:_MOST_CHARTS]
