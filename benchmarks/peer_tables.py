"""muster beside other libraries, as tables, from the results of `benchmarks/peers` and others."""

from typing import Any

from benchmarks.markdown import NOTHING, link, number, result, table

NAMES = {
    "rllib": "RLlib",
    "sb3": "Stable-Baselines3",
    "sf": "Sample Factory",
    "tianshou": "Tianshou",
    "cleanrl": "CleanRL",
}
"""How the libraries call themselves, where a result has a short form."""
PACKAGES = {"sb3": "stable-baselines3", "sbx": "sbx-rl", "sf": "sample-factory", "rllib": "ray"}
"""The distribution whose version a result has."""
RATIOS = {
    "peers_ppo": "PPO, steps/s",
    "peers_ppo_epyc": "PPO on a busy EPYC, steps/s",
    "peers_ppo_wide": "PPO with 64 environments, steps/s",
    "peers_ppo_solve": "PPO, seconds to a return of 475",
    "peers_pong": "PPO on Pong, steps/s",
    "peers_impala": "IMPALA, steps/s",
    "peers_dqn": "DQN, updates/s",
    "peers_dqn_epyc": "DQN on a busy EPYC, updates/s",
    "peers_sac": "SAC, updates/s",
    "peers_sac_epyc": "SAC on a busy EPYC, updates/s",
    "ray": "on Ray",
    "ray_weights": "on Ray",
}
"""The results that have ratios, and what was compared. A later one replaces ratios of an earlier
one that have the same name."""


def _name(way: str) -> str:
    """Return the name of a library for that of a way to run it."""
    short, _, more = way.partition(", ")
    if short == "muster":
        return "muster, one process" if more == "0 workers" else way
    return NAMES.get(short, short)


def _fastest(figures: dict[str, dict[str, float]], least: bool = False) -> dict[str, float]:
    """Return the best median of each library; muster's ways stay apart."""
    best: dict[str, float] = {}
    for way, found in figures.items():
        name = _name(way)
        known = best.get(name, found["median"])
        best[name] = (min if least else max)(known, found["median"])
    return dict(sorted(best.items(), key=lambda item: item[1], reverse=not least))


def _versions(rounds: list[dict[str, Any]]) -> dict[str, str]:
    """Return the version of each library, by its name."""
    found = {}
    for way, figures in rounds[0].items():
        short = way.partition(", ")[0]
        versions = figures.get("versions", {})
        found[_name(way)] = versions.get(PACKAGES.get(short, short), "")
    return found


def ppo_speed() -> str:
    """Return steps per second of PPO in every library, each in its fastest way."""
    found = result("peers_ppo")
    best, versions = _fastest(found["steps_per_s"]), _versions(found["rounds"])
    top = max(best.values())
    rows = [
        [
            f"{name} {versions.get(name, '')}".strip(),
            number(steps),
            NOTHING if name.startswith("muster") else f"{top / steps:.1f}",
        ]
        for name, steps in best.items()
    ]
    return table(["", "steps/s, median", "muster with 2 workers is as many times as fast"], rows)


def seconds_to_solve() -> str:
    """Return the seconds from the start of the process to a greedy return of 475."""
    best = _fastest(result("peers_ppo_solve")["seconds to solve"], least=True)
    return table(["", "seconds, median"], [[name, f"{value:.1f}"] for name, value in best.items()])


def shapes() -> str:
    """Return muster's speed-up over the fastest peer for every shape of network and data."""
    cells = result("shapes_1")["cells"]
    columns = list(dict.fromkeys((cell["num_envs"], cell["observations"]) for cell in cells))
    rows: dict[str, dict[tuple[int, int], float]] = {}
    for cell in cells:
        row = rows.setdefault("x".join(map(str, cell["hidden"])), {})
        row[cell["num_envs"], cell["observations"]] = cell["ratio"]
    head = ["hidden layers", *(f"{envs} envs, {size} obs" for envs, size in columns)]
    return table(
        head, [[name, *(f"{row[each]:.1f}" for each in columns)] for name, row in rows.items()]
    )


def impala_speed() -> str:
    """Return steps per second of IMPALA, and of APPO in Sample Factory."""
    figures = result("peers_impala")["steps_per_s"]
    rows = []
    for way, found in sorted(figures.items(), key=lambda item: -item[1]["median"]):
        short, _, more = way.partition(", ")
        name = "Sample Factory (its APPO)" if short == "sf" else NAMES.get(short, short)
        rows.append([f"{name}, {more or '64 envs'}", number(found["median"])])
    return table(["", "steps/s, median"], rows)


def updates() -> str:
    """Return the ratios of updates per second of DQN and SAC."""
    rows = []
    for name, algo in (("peers_dqn", "DQN"), ("peers_sac", "SAC")):
        for what, found in result(name)["ratios"].items():
            pair, _, size = what.partition(", ")
            peer = pair.removeprefix("muster / ")
            rows.append([algo, NAMES.get(peer, peer), size, f"{found['median']:.1f}"])
    return table(["", "peer", "network", "muster is as many times as fast"], rows)


def exchange() -> str:
    """Return what communication between processes costs, beside other ways."""
    figures = result("exchange")["figures"]
    ways = {"muster": "muster", "pipe": "multiprocessing.Pipe", "zmq": "ZeroMQ", "ray": "Ray"}
    rows_of = {
        "ready_s": "3 workers ready, s",
        "rtt_us": "small message there and back, us",
        "broadcast_ms": "1 MB of weights to 3 readers, ms",
        "gb_per_s": "200 kB fragments, GB/s",
    }
    rows = [
        [shown, *(number(figures[f"{way} {what}"]["median"], 2) for way in ways)]
        for what, shown in rows_of.items()
    ]
    return table(["", *ways.values()], rows)


def every_ratio() -> str:
    """Return every ratio that was measured, with the bound that was set before, met or not."""
    newest = {
        (RATIOS[name], what): (name, found)
        for name in RATIOS
        for what, found in result(name)["ratios"].items()
    }
    rows = []
    for (shown, what), (name, found) in newest.items():
        rounds = ", ".join(f"{each:g}" for each in found["rounds"])
        rows.append([shown, what, f"{found['median']:g}", rounds, _bound(found), link(name)])
    head = ["", "ratio", "median", "rounds", "bound", ""]
    return table(head, rows)


def _bound(found: dict[str, Any]) -> str:
    """Return the bound of a ratio, and whether it was met."""
    for key, word in (("at_least", "at least"), ("at_most", "at most")):
        if found.get(key) is not None:
            return f"{word} {found[key]:g}: {'met' if found['met'] else '**missed**'}"
    return NOTHING
