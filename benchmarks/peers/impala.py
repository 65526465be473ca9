"""IMPALA on CartPole-v1 beside RLlib's IMPALA and Sample Factory's APPO, interleaved.

    python -m benchmarks.peers.impala --venvs DIR --json benchmarks/results/peers_impala.json

DIR holds the virtual environments `rllib` and `sf`, as for `ppo.py`. All take one pass over what
they collect, with two layers of 64. RLlib has 8 environments in one and in two runners, batches of
its own size; Sample Factory 64 environments in two workers, its faster setting here. Muster has the
same number of environments as who it is held to: in one process, and with two actors. Ratios are
taken within a round. Exit code 1 if a bound is missed.
"""

from benchmarks import rounds as taking
from benchmarks.peers.running import Timed, arguments, compared, finish, pythons, race

BOUNDS = {"rllib": 10.0, "sf": 5.0}
ENVS = {"rllib": 8, "sf": 64}
WAYS = {
    "muster, 8 envs": ("muster", ["--envs", "8"]),
    "muster, 8 envs, 2 actors": ("muster", ["--envs", "8", "--workers", "4"]),
    "muster, 64 envs": ("muster", ["--envs", "64"]),
    "muster, 64 envs, 2 actors": ("muster", ["--envs", "64", "--workers", "4"]),
    "rllib, 1 runner": ("rllib", ["--envs", "8", "--workers", "1"]),
    "rllib, 2 runners": ("rllib", ["--envs", "8", "--workers", "2"]),
    "sf": ("sf", ["--envs", "64"]),
}


def main() -> None:
    """Run all, print JSON, and write it where it was asked for."""
    parser = arguments("IMPALA on CartPole-v1 beside other libraries.")
    parser.add_argument("--seconds", type=float, default=10, help="of each timing, at least (10)")
    options = parser.parse_args()
    found, skipped = pythons(options.venvs, tuple(BOUNDS))
    lanes = {
        name: [
            *(found[library], "-m", "benchmarks.peers.impala_one", library, *more),
            *("--seconds", str(options.seconds)),
        ]
        for name, (library, more) in WAYS.items()
        if library in found
    }
    machine = taking.machine()
    raced = race(lambda number: lanes, options.rounds, _speed)
    ratios = {
        f"muster / {peer}, {ENVS[peer]} envs": compared(
            [
                _best(each, f"muster, {ENVS[peer]} envs") / _best(each, peer)
                for each in raced.rounds
            ],
            bound,
        )
        for peer, bound in BOUNDS.items()
        if peer in found
    }
    result = {
        "command": f"python -m benchmarks.peers.impala --venvs DIR --rounds {options.rounds}",
        **machine,
        "cpu_share": raced.cpu_share,
        "skipped": skipped,
        "ratios": ratios,
        "steps_per_s": raced.medians,
        "rounds": raced.rounds,
    }
    finish(result, ratios, options.json)


def _best(each: dict[str, Timed], begin: str) -> float:
    """Return the fastest of the ways whose names begin so."""
    return max(_speed(timed) for name, timed in each.items() if name.startswith(begin))


def _speed(timed: Timed) -> float:
    return float(timed["steps_per_s"])


if __name__ == "__main__":
    main()
