"""The result of `python -m benchmarks.ray` as a table of at most 80 columns."""

from collections.abc import Iterator, Mapping
from typing import Any

Figures = Mapping[str, Mapping[str, float]]


def table(result: Mapping[str, Any]) -> str:
    """Return what a reader wants to see of it; all else is in the JSON."""
    figures: Mapping[str, Figures] = result["figures"]
    lines = [f"{'ratio, median of the rounds':<48}{'value':>8}{'bound':>10}{'met':>6}"]
    lines += [
        f"{name:<48}{ratio['median']:>8.2f}{_bound(ratio):>10}{'yes' if ratio['met'] else 'NO':>6}"
        for name, ratio in result["ratios"].items()
    ]
    speeds = {name: each for name, each in figures.items() if "steps_per_s" in each}
    if speeds:
        lines += ["", f"{'PPO CartPole-v1':<34}{'steps/s':>10}{'start s':>10}{'cpu share':>12}"]
        lines += [
            f"{name:<34}{_median(each, 'steps_per_s'):>10}{_median(each, 'start_s'):>10}"
            f"{_median(each, 'cpu_share'):>12}"
            for name, each in speeds.items()
        ]
    if "weights" in figures:
        lines += ["", f"{'10 MB to 4 readers, ms':<34}{'in hand':>10}{'read':>10}"]
        lines += [
            f"{way:<34}" + "".join(f"{_weights(figures, way, what):>10}" for what in _HAD)
            for way in ("nodes", "blocks", "bare")
        ]
    for name, each in figures.items():
        if name.startswith("replay"):
            lines += ["", *_replay(name, each)]
    if "traffic" in figures:
        lines += ["", "PPO on two machines, per update, of all workers"]
        lines += [
            f"{name:<48}{_median(figures['traffic'], name):>10}"
            for name in figures["traffic"]
            if name.startswith("per update: ")
        ]
    return "\n".join(lines)


_HAD = ("in hand", "read")


def _replay(title: str, figures: Figures) -> Iterator[str]:
    yield (
        f"{title:<16}{'inserts/s':>10}{'samples/s':>10}{'with prio':>10}"
        f"{'calls s/b/l':>14}{'kB s/b/l':>20}"
    )
    for shards in ("1", "2", "4"):

        def of(name: str, k: str = shards) -> float:
            return figures[f"shards: {k}: {name}"]["median"]

        rates = (of(f"{name}/s") for name in ("inserts", "samples"))
        calls, sizes = (
            [of(f"{what} per {work}") for work in ("store", "batch", "learn")]
            for what in ("calls", "bytes")
        )
        yield (
            f"{shards + ' shards':<16}"
            + "".join(f"{rate:>10,.0f}" for rate in (*rates, of("samples/s with priorities")))
            + f"{'/'.join(f'{each:.3g}' for each in calls):>14}"
            + f"{'/'.join(f'{each / 1e3:.0f}' for each in sizes):>20}"
        )


def _weights(figures: Mapping[str, Figures], way: str, what: str) -> str:
    return _median(figures["weights"], f"milliseconds: {way}: {what}")


def _median(figures: Figures, name: str) -> str:
    if name not in figures:
        return "-"
    median = figures[name]["median"]
    return f"{median:,.0f}" if median >= 1_000 else f"{median:.4g}"


def _bound(ratio: Mapping[str, Any]) -> str:
    return f">= {ratio['at_least']:g}" if "at_least" in ratio else f"<= {ratio['at_most']:g}"
