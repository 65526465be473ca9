"""PPO on Atari Pong beside other libraries, each in its own virtual environment, interleaved.

    python -m benchmarks.peers.pong --venvs DIR --cleanrl FILE --json benchmarks/results/pong.json

DIR holds one virtual environment per peer, each with torch==2.13.0 installed first: `sb3`
(stable-baselines3[extra]==2.9.2 ale-py opencv-python-headless) and `cleanrl` (envpool==0.8.4
numpy<2 gym==0.23.1 gymnasium==0.29.1 tensorboard). FILE is CleanRL's `ppo_atari_envpool.py`, which
`pip download cleanrl==1.2.0 --no-deps --ignore-requires-python` has in its wheel. A peer that is
not there is skipped and said so. All have 8 environments, rollouts of 128 steps, 4 epochs of 4
minibatches, the Nature CNN on 4 frames of 84x84, and two threads of torch; a step of the agent is
4 frames. Stable-Baselines3 runs with its environments in one process and in eight. Exit code 1 if
a bound is missed.
"""

from pathlib import Path

from benchmarks import rounds as taking
from benchmarks.peers.running import Timed, arguments, compared, finish, pythons, race, say

MUSTER = "muster, 2 workers"
WAYS = {
    MUSTER: ("muster", "muster"),
    "sb3, one process": ("sb3", "sb3"),
    "sb3, a process per environment": ("sb3", "sb3-subproc"),
    "cleanrl, envpool": ("cleanrl", "cleanrl"),
}
"""Name of a way: its virtual environment, and what `pong_one.py` calls it."""
BOUND = 2.5


def main() -> None:
    """Run all, print JSON, and write it where it was asked for."""
    parser = arguments("PPO on Atari Pong beside other libraries.")
    parser.add_argument("--cleanrl", type=Path, help="CleanRL's ppo_atari_envpool.py")
    parser.add_argument("--seconds", type=float, default=30, help="of each timing, at least (30)")
    parser.add_argument("--only", nargs="+", help="libraries to run, and no others")
    options = parser.parse_args()
    found, skipped = pythons(options.venvs, ("sb3", "cleanrl"))
    if "cleanrl" in found and (options.cleanrl is None or not options.cleanrl.exists()):
        say("cleanrl is skipped: --cleanrl does not name its script")
        del found["cleanrl"]
        skipped.append("cleanrl")
    if options.only:
        found = {name: python for name, python in found.items() if name in options.only}
    lanes = {}
    for name, (venv, library) in WAYS.items():
        if venv in found:
            command = [found[venv], "-m", "benchmarks.peers.pong_one", library]
            lanes[name] = [*command, "--seconds", str(options.seconds)]
            if library == "cleanrl":
                lanes[name] += ["--script", str(options.cleanrl.absolute())]
    machine = taking.machine()
    raced = race(lambda _: lanes, options.rounds, _speed)
    ratios = {}
    if "muster" in found and len(found) > 1:
        ratios[f"{MUSTER} / fastest peer"] = compared(
            [_ratio(each) for each in raced.rounds], BOUND
        )
    result = {
        "command": f"python -m benchmarks.peers.pong --venvs DIR --cleanrl FILE "
        f"--rounds {options.rounds}",
        **machine,
        "cpu_share": raced.cpu_share,
        "skipped": skipped,
        "ratios": ratios,
        "agent_steps_per_s": raced.medians,
        "rounds": raced.rounds,
    }
    finish(result, ratios, options.json)


def _ratio(each: dict[str, Timed]) -> float:
    return _speed(each[MUSTER]) / max(_speed(each[name]) for name in each if name != MUSTER)


def _speed(timed: Timed) -> float:
    return float(timed["steps_per_s"])


if __name__ == "__main__":
    main()
