"""Draw the pictures of README and docs from the committed results.

    python -m benchmarks.pictures

The comparison with other libraries comes from `results/peers_ppo.json`, that at every shape from
`results/shapes_1.json`, and the learning curves from every `results/ALGO_*.json` that has some: the
mean over the seeds, and their spread.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.ticker import EngFormatter

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parent.parent / "docs" / "images"
MUSTER, PEER, LINE = "#1f6f5c", "#b9bec4", "#1f6f5c"


def main() -> None:
    """Draw all."""
    IMAGES.mkdir(exist_ok=True)
    draw_peers(RESULTS / "peers_ppo.json", IMAGES / "peers_ppo.png")
    draw_shapes(RESULTS / "shapes_1.json", IMAGES / "shapes.png")
    for algo in ("ppo", "pqn", "sac", "apex", "impala", "appo", "a3c"):
        draw_curves(sorted(RESULTS.glob(f"{algo}_*.json")), IMAGES / f"{algo}_curves.png")


def draw_peers(source: Path, target: Path) -> None:
    """Draw steps per second of every library as bars, the fastest way of each."""
    found = json.loads(source.read_text())
    best: dict[str, float] = {}
    for way, figures in found["steps_per_s"].items():
        name = way if way.startswith("muster") else way.split(",")[0]
        best[name] = max(best.get(name, 0.0), figures["median"])
    names = sorted(best, key=lambda name: best[name])
    labels = {"sb3": "Stable-Baselines3", "rllib": "RLlib", "sf": "Sample Factory"}
    labels |= {"muster, 0 workers": "muster, one process", "tianshou": "Tianshou"}
    figure, axes = plt.subplots(figsize=(7.2, 3.2), dpi=150)
    colours = [MUSTER if name.startswith("muster") else PEER for name in names]
    bars = axes.barh(
        [labels.get(name, name) for name in names], [best[n] for n in names], color=colours
    )
    axes.bar_label(bars, labels=[f"{best[name]:,.0f}" for name in names], padding=4, fontsize=8)
    axes.set_xlim(0, 1.15 * max(best.values()))
    axes.set_xlabel("environment steps per second, collecting and learning")
    axes.set_title(f"PPO on CartPole-v1, 8 environments, {found['cores']} cores", fontsize=10)
    finish(figure, axes, target)


def draw_shapes(source: Path, target: Path) -> None:
    """Draw how many times as fast as the best peer muster is, a square for each shape."""
    found = json.loads(source.read_text())
    rows = list(dict.fromkeys("x".join(map(str, each["hidden"])) for each in found["cells"]))
    columns = list(
        dict.fromkeys((each["num_envs"], each["observations"]) for each in found["cells"])
    )
    table = np.full((len(rows), len(columns)), np.nan)
    for each in found["cells"]:
        place = each["num_envs"], each["observations"]
        table[rows.index("x".join(map(str, each["hidden"]))), columns.index(place)] = each["ratio"]
    figure, axes = plt.subplots(figsize=(7.2, 3.4), dpi=150)
    axes.imshow(np.log(table), cmap="Greens", vmin=0, vmax=np.log(12), aspect="auto")
    for row, column in np.ndindex(table.shape):
        axes.text(column, row, f"{table[row, column]:.1f}", ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(columns)), [f"{n} envs\n{size} obs" for n, size in columns])
    axes.set_yticks(range(len(rows)), rows)
    cores = found["command"].partition("--cores ")[2].split()[0]
    title = f"PPO, times as fast as the fastest peer at each shape, {cores} core"
    axes.set_title(title + "s" * (cores != "1"), fontsize=10)
    finish(figure, axes, target)


def draw_curves(sources: Sequence[Path], target: Path) -> None:
    """Draw the return while training over environment steps, one panel for each environment."""
    found = [(source, json.loads(source.read_text())) for source in sources]
    drawn = [(source, each) for source, each in found if each["runs"][0].get("curve")]
    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 2.6 * rows), dpi=150, squeeze=False
    )
    for axes, (_, each) in zip(panels.flat, drawn, strict=False):
        steps, mean, low, high = spread(each["runs"])
        axes.fill_between(steps, low, high, color=LINE, alpha=0.2, linewidth=0)
        axes.plot(steps, mean, color=LINE, linewidth=1.4)
        # A number that was only given to the benchmark is no target of the run.
        if each.get("wanted") is not None and "--solved" not in each["command"]:
            axes.axhline(each["wanted"], color="#888", linewidth=0.8, linestyle="--")
        env = each["command"].split("--env ")[1].split()[0].rpartition(":")[2]
        workers, seeds = each["runs"][0]["workers"], len(each["runs"])
        where = f", {workers} workers" if f"--workers {workers}" in each["command"] else ""
        axes.set_title(f"{env}{where}, {seeds} seed{'s' * (seeds > 1)}", fontsize=9)
        axes.set_xlabel("environment steps", fontsize=8)
        axes.set_ylabel("return while training", fontsize=8)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M
    for axes in panels.flat[len(drawn) :]:
        axes.set_visible(False)
    finish(figure, list(panels.flat), target)


def spread(runs: Sequence[dict[str, Any]]) -> tuple[Any, Any, Any, Any]:
    """Return steps, and mean and mean +- standard deviation over the runs that got so far."""
    longest = max(run["curve"][-1][0] for run in runs)
    steps = np.linspace(0, longest, 100)
    rows = []
    for run in runs:
        at, value = np.array(run["curve"], float).T
        row = np.interp(steps, at, value, left=np.nan)
        row[steps > at[-1]] = value[-1]  # it had reached its target, and stopped
        rows.append(row)
    table = np.array(rows)
    seen = ~np.isnan(table).any(axis=0)
    table, steps = table[:, seen], steps[seen]
    mean, std = table.mean(axis=0), table.std(axis=0)
    return steps, mean, mean - std, mean + std


def finish(figure: Any, axes: Any, target: Path) -> None:
    """Tidy up, and write the file."""
    for each in axes if isinstance(axes, list) else [axes]:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=8)
    figure.tight_layout()
    # Without the date and the version in it, the same results give the same file.
    figure.savefig(target, metadata={"Software": None})
    plt.close(figure)
    print(target.name)


if __name__ == "__main__":
    main()
