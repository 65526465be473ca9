"""PPO on CartPole-v1 beside other libraries, each in its own virtual environment, interleaved.

    python -m benchmarks.peers.ppo --venvs DIR --json benchmarks/results/peers_ppo.json
    python -m benchmarks.peers.ppo --venvs DIR --setting wide
    python -m benchmarks.peers.ppo --venvs DIR --setting solve

DIR holds one virtual environment per peer, each with torch==2.13.0 installed first: `sb3`
(stable-baselines3[extra]==2.9.2), `sbx` (sbx-rl==0.28.0), `skrl` (skrl[torch]==2.1.1 gymnasium),
`tianshou` (tianshou==2.0.1), `rllib` (ray[rllib]==2.60.0) and `sf` (sample-factory==2.1.1). One
that is not there is skipped and said so. Every round runs every library once, one after the other;
ratios are taken within a round, and their median over the rounds is reported. Peers in one process
run once with every number of torch threads, and the fastest run of all is what muster is held to.

`matched`: 8 environments, the same recipe for all (`trial.py`). `wide`: 64 environments. `solve`:
seconds to solve CartPole from the start of the process; round 1 has seed 1, and so on. A peer that
did not solve it counts with the seconds that it had; muster has then lost. Exit code 1 if a bound
is missed.
"""

import math

from benchmarks import rounds as taking
from benchmarks.peers.running import Timed, arguments, compared, finish, pythons, race

PEERS = {
    "matched": ("sb3", "sbx", "skrl", "tianshou", "rllib", "sf"),
    "wide": ("sb3", "sf"),
    "solve": ("sb3", "sbx", "skrl", "tianshou", "rllib", "sf"),
}
OWN_THREADS = ("sbx", "sf")
"""Take what cores they need whatever torch is told."""
MUSTER = {0: "muster, 0 workers", 2: "muster, 2 workers"}
MATCHED_BOUNDS = {2: 8.0, 0: 4.0}
WIDE_BOUNDS = {"sb3": 4.0, "sf": None}
SOLVE_BOUND = 1.0

Round = dict[str, Timed]


def main() -> None:
    """Run all, print JSON, and write it where it was asked for."""
    parser = arguments("PPO on CartPole-v1 beside other libraries.")
    parser.add_argument("--setting", choices=PEERS, default="matched")
    parser.add_argument("--seconds", type=float, default=10, help="of each timing, at least (10)")
    parser.add_argument("--limit", type=int, default=300_000, help="most steps to solve (300000)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of torch (1 2)")
    parser.add_argument("--only", nargs="+", help="libraries to run, and no others")
    options = parser.parse_args()
    setting: str = options.setting
    found, skipped = pythons(options.venvs, PEERS[setting])
    if options.only:
        found = {name: python for name, python in found.items() if name in options.only}
    threads = [1] if setting == "solve" else options.threads

    def lanes(number: int) -> dict[str, list[str]]:
        return {
            name: [
                *(python, "-m", "benchmarks.peers.ppo_one", library, setting, *more),
                *("--seconds", str(options.seconds), "--limit", str(options.limit)),
                *("--seed", str(number + 1)),
            ]
            for library, python in found.items()
            for name, more in _ways(library, threads).items()
        }

    machine = taking.machine()
    raced = race(lanes, options.rounds, _solved if setting == "solve" else _speed)
    ratios = {}
    if "muster" in found and len(found) > 1:
        ratios = {"matched": _matched, "wide": _wide, "solve": _solve}[setting](raced.rounds)
    result = {
        "command": f"python -m benchmarks.peers.ppo --venvs DIR --setting {setting} "
        f"--rounds {options.rounds}",
        **machine,
        "cpu_share": raced.cpu_share,
        "skipped": skipped,
        "ratios": ratios,
        "seconds to solve" if setting == "solve" else "steps_per_s": raced.medians,
        "rounds": raced.rounds,
    }
    finish(result, ratios, options.json)


def _ways(library: str, threads: list[int]) -> dict[str, list[str]]:
    """Return the ways to run a library, by name, with their arguments."""
    if library == "muster":
        return {name: ["--workers", str(workers)] for workers, name in MUSTER.items()}
    if library in OWN_THREADS:
        return {library: []}
    return {
        f"{library}, {number} thread{'s' * (number > 1)}": ["--threads", str(number)]
        for number in threads
    }


def _matched(rounds: list[Round]) -> Round:
    return {
        f"{name} / fastest peer": compared(
            [_speed(each[name]) / _fastest(each) for each in rounds], MATCHED_BOUNDS[workers]
        )
        for workers, name in MUSTER.items()
    }


def _wide(rounds: list[Round]) -> Round:
    """Return the ratio to Stable-Baselines3, and that to Sample Factory, for which is no bound."""
    name = MUSTER[2]
    return {
        f"{name} / {peer}": compared(
            [_speed(each[name]) / _fastest(each, peer) for each in rounds], bound
        )
        for peer, bound in WIDE_BOUNDS.items()
        if _of_peers(rounds[0], peer)
    }


def _solve(rounds: list[Round]) -> Round:
    """Return seconds of each peer over those of muster, which is not to take longer."""
    name = MUSTER[0]
    return {
        f"{peer} / {name}, seconds": compared(
            [_solved(each[peer]) / (each[name]["greedy_seconds"] or math.inf) for each in rounds],
            SOLVE_BOUND,
        )
        for peer in _of_peers(rounds[0])
    }


def _fastest(each: Round, peer: str = "") -> float:
    return max(map(_speed, _of_peers(each, peer).values()))


def _of_peers(each: Round, peer: str = "") -> Round:
    """Return what the peers have, or one of them; all their ways."""
    mine = MUSTER.values()
    return {
        name: timed for name, timed in each.items() if name.startswith(peer) and name not in mine
    }


def _speed(timed: Timed) -> float:
    return float(timed["steps_per_s"])


def _solved(timed: Timed) -> float:
    """Return the seconds until the greedy policy has solved it, or all that it had."""
    return float(timed["greedy_seconds"] or timed["seconds"])


if __name__ == "__main__":
    main()
