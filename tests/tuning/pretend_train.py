"""Stands for `muster train` in tests of studies: leaves a run directory, in a tenth of a second.

Its return is that of lr and seed. The environment variable PRETEND says what some trials do, as
JSON: fail, interrupt (SIGINT to the study), kill (SIGKILL to it), or lag (bad evaluations, and
then wait for SIGTERM).
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path


def evaluate(run, score, steps):
    for step in steps:
        line = {"env_step": step, "train_iter": step, "seconds": 1.0, "eval/return": score}
        with open(run / "metrics.jsonl", "a") as file:
            file.write(f"{json.dumps(line)}\n")


def main():
    parent, _, algo, env, *words = sys.argv[1:]
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # as `end_with`, without importing muster
    if os.getppid() != int(parent):  # it died before that
        os._exit(1)
    options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    run, seed, lr = Path(options["run-dir"]), int(options["seed"]), float(options["lr"])
    name = f"{run.parent.name}/{run.name}"
    run.mkdir()
    with open(run.parent.parent / "begun.txt", "a") as begun:
        begun.write(f"{name} {os.getpid()}\n")
    (run / "config.yaml").write_text(f"algo: {algo}\nenv: {env}\nseed: {seed}\n")
    told = json.loads(os.environ.get("PRETEND", "{}")).get(name)
    if told == "fail":
        sys.exit("muster: the environment is broken\n  why: a test\n  try: nothing")
    score, stopped_by = 1000 * lr + seed % 10, "steps"
    if told is None:
        evaluate(run, score, (1, 2, 3))
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        score, stopped_by = -9.0, "signal"
        if told == "lag":
            evaluate(run, score, (1, 2))
        else:
            os.kill(int(parent), {"interrupt": signal.SIGINT, "kill": signal.SIGKILL}[told])
        signal.sigwait([signal.SIGTERM])
    steps = int(options.get("env-steps", 3))
    result = {"stopped_by": stopped_by, "eval_return_mean": score, "env_steps": steps}
    (run / "result.json").write_text(json.dumps(result))
    sys.exit(143 if told else 0)


main()
