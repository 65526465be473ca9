"""Run directories as training leaves them, without training."""

import json
import math
import shlex
import subprocess
import sys
from contextlib import contextmanager

from muster.run import to_yaml

TRAINS = """
import signal, sys
from muster.run import RunDirectory

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
with RunDirectory.open(sys.argv[1], writable=True):
    print("ready", flush=True)
    while sys.stdin.readline():
        pass
print("asked", len(asked), flush=True)
"""
"""A process that has claimed a run, counts signals, and ends with its standard input."""


def make_run(
    path,
    algo="ppo",
    env="CartPole-v1",
    seed=0,
    returns=(20.0, 100.0, 90.0),
    status="finished",
    started="2026-01-01T00:00:00+0000",
    metrics=None,
    **options,
):
    """Write the files of a run, and return its path.

    Args:
        returns: Of its evaluations, one every 1,000 steps.
        status: `finished`, `stopped` or `failed`.
        metrics: Besides the return: name to a function of the step.
        **options: Settings of `config.yaml`; `result` for what `result.json` has besides.
    """
    result = {"replacements": 0, "rho": 0.1, "eta": 0.13, "limited_by": "learn"}
    result |= options.pop("result", {})
    path.mkdir(parents=True)
    config = {"algo": algo, "env": env, "seed": seed, "lr": 1e-3, "hidden": [64, 64], **options}
    (path / "config.yaml").write_text(to_yaml(config))
    command = shlex.join(["muster", "train", algo, env, "--seed", str(seed)])
    (path / "command.txt").write_text(f"{command}\n")
    machine = {"started": started, "cpu": "a processor", "cores": 2, "versions": {"numpy": "2.0"}}
    (path / "env.json").write_text(json.dumps(machine))
    wavy = {"train/loss": lambda step: math.exp(-step / 2000) + 0.1 * math.sin(step + seed)}
    lines = [
        {"env_step": step, "train_iter": step // 10, "seconds": step / 500, "eval/return": value}
        | {name: at(step) for name, at in (metrics or wavy).items()}
        for step, value in zip(range(1000, 1000 * len(returns) + 1, 1000), returns, strict=True)
    ]
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    if status != "failed":
        speed = {"split": {"env": 0.3, "act": 0.2, "learn": 0.4, "exchange": 0.0, "rest": 0.1}}
        found = {
            "algo": algo,
            "env": env,
            "seed": seed,
            "env_steps": 1000 * len(returns),
            "seconds": 2.0 * len(returns),
            "eval_return_mean": returns[-1] if returns else None,
            "stopped_by": "signal" if status == "stopped" else "steps",
            "speed": speed,
        }
        (path / "result.json").write_text(json.dumps(found | result))
    return path


@contextmanager
def trained(run):
    """Have another process claim a run, until the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-c", TRAINS, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.communicate()


def signals_of(child):
    """Return how many signals a process got in its life."""
    return int(child.communicate()[0].split()[1])
