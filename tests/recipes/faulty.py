"""An environment and a model that do what MUSTER_FAULT says, and the command that trains on them.

`run("ppo", workers=2, fault=Fault("step", at=300))` is `muster train ppo faulty:Faulty-v0` as a
process of its own. A fault comes at the n-th call of one kind in one environment, so that an env
which is restored meets it again.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import SIGKILL, SIGSEGV

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from torch import nn

from muster.run.files import Files

VARIABLE = "MUSTER_FAULT"
HOG = 400 << 20
leaked = []
SMALL = {
    "ppo": {"num_envs": 4, "rollout": 32, "slots": 4, "epochs": 1, "minibatches": 2},
    "dqn": {"learning_starts": 64, "buffer_size": 1000, "batch_size": 16},
}
ALWAYS = {
    "hidden": 16,
    "env_steps": 2048,
    "eval_every": 512,
    "eval_episodes": 2,
    "checkpoint_every": 512,
    "stop_at": 1e9,
    "quiet": True,
}


@dataclass(frozen=True)
class Fault:
    """What happens, and when."""

    call: str
    """`init`, `reset`, `step`, `forward`; `episode` for the fifth step of certain episodes."""
    at: int = 40
    """At which call of that kind; of episodes, one in so many, by their seeds; bytes that leak."""
    do: str = "raise"
    role: str | None = None
    """Only on nodes of this role."""
    place: str | None = None
    """Where to leave a file each time that it happens."""
    times: int = 10**9
    """How often, by the files in that place."""


def slow_disk():
    """Have one sync to the disk take long, once the file that MUSTER_SLOW_DISK names is there."""
    flag, sync = os.environ.get("MUSTER_SLOW_DISK"), Files.fsync

    def fsync(self, fd):
        if Path(flag).exists():
            Files.fsync = sync
            time.sleep(SLOW_SECONDS)
        sync(self, fd)

    if flag:
        Files.fsync = fsync


SLOW_SECONDS = 14.0
slow_disk()


def meet(call, count):
    """Do what is to be done at this call, if it is."""
    said = os.environ.get(VARIABLE)
    fault = Fault(**json.loads(said)) if said else None
    if fault is None or fault.call != call:
        return
    if fault.do in ("leak", "reserve"):
        if is_training():
            # An empty array is only promised by the system; zeros in a bytearray are written.
            leaked.append(bytearray(fault.at) if fault.do == "leak" else np.empty(fault.at, "u1"))
        return
    if count % fault.at if call == "episode" else count != fault.at:
        return
    if fault.role is not None and fault.role != role():
        return
    if fault.place is not None and not is_one_of(fault.times, Path(fault.place)):
        return
    if fault.do == "raise":
        raise RuntimeError(f"{call} is broken\nand says so on two lines")
    if fault.do == "hang":
        time.sleep(1000)
    if fault.do == "hog":
        leaked.append(bytearray(HOG))
        time.sleep(20)  # until somebody minds
    os.kill(os.getpid(), {"segfault": SIGSEGV, "kill": SIGKILL}[fault.do])


def is_one_of(times, place):
    """Whether this process is among the first so many that come here, however many come at once."""
    for number in range(times):
        with suppress(FileExistsError):
            (place / str(number)).open("x").close()
            return True
    return False


def is_training():
    """Whether a step is one to learn from: not of an evaluation, nor to see how fast it is."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name not in ("collect", "load_state_dict"):
        frame = frame.f_back
    return frame is not None


def role():
    from muster.framework.node import current_node

    node = current_node()
    return None if node is None else node.place.role


class Faulty(CartPoleEnv):
    """CartPole with a fault."""

    made = 0

    def __init__(self, **options):
        super().__init__(**options)
        Faulty.made += 1
        self.counts = {"reset": 0, "step": 0}
        meet("init", Faulty.made)

    def _count(self, call):
        self.counts[call] += 1
        meet(call, self.counts[call])

    def reset(self, *, seed=None, options=None):
        self._count("reset")
        self.episode, self.steps = seed, 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self._count("step")
        self.steps += 1
        if self.steps == 5:
            meet("episode", self.episode)
        return super().step(action)


gym.register("Faulty-v0", Faulty, max_episode_steps=500)


class Net(nn.Module):
    """Two layers, the second of which may raise."""

    def __init__(self, obs_space, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, outputs))
        self.value = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.calls = 0

    def forward(self, obs):
        self.calls += 1
        meet("forward", self.calls)
        return self.layers(obs)


class ActorCritic(Net):
    """The same with a value."""

    def forward(self, obs):
        return super().forward(obs), self.value(obs)


def command(algo, run_dir, workers, **options):
    words = [sys.executable, "-m", "muster.cli.main", "train", algo, "faulty:Faulty-v0"]
    chosen = {**ALWAYS, **SMALL[algo], "workers": workers, "run_dir": run_dir, **options}
    for name, value in chosen.items():
        if name == "quiet":
            words += ["--quiet"] if value else []
        else:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def environment(fault=None, **more):
    here = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    environ = {**os.environ, "PYTHONPATH": path, **more}
    if fault is not None:
        environ[VARIABLE] = json.dumps(asdict(fault))
    return environ


def run(algo, run_dir, workers, fault=None, timeout=100, **options):
    """Train to the end, and return the finished process."""
    return subprocess.run(
        command(algo, run_dir, workers, **options),
        env=environment(fault),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


class Started:
    """A command that trains, as the leader of a session of its own."""

    def __init__(self, algo, run_dir, workers, fault=None, environ=None, before=None, **options):
        self.run_dir = Path(run_dir)
        self.process = subprocess.Popen(
            command(algo, run_dir, workers, **options),
            env=environment(fault, **(environ or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=before,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in [self.process.pid, *self.below()]:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        self.process.communicate()

    def below(self):
        """Return the processes below the command."""
        found = [self.process.pid]
        known = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                state, parent = (
                    Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:2]
                )
                if state not in "ZX":
                    known[int(name)] = int(parent)
        for each in found:
            found += [pid for pid, parent in known.items() if parent == each]
        return found[1:]

    def helper(self, word):
        """Return the child of the command that has a word in its command line."""
        for pid in self.below():
            with suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if int(stat[1]) == self.process.pid and word.encode() in line:
                    return pid
        return None

    def metrics(self):
        """Return the lines of metrics so far."""
        try:
            text = (self.run_dir / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def env_step(self):
        """Return how far it has come, as its metrics say."""
        lines = self.metrics()
        return lines[-1]["env_step"] if lines else 0

    def wait(self, condition, what, seconds=60.0):
        """Wait until something holds."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if self.process.poll() is not None:
                raise AssertionError(f"it ended before: {what}\n{self.process.stderr.read()}")
            assert time.monotonic() < deadline, f"waited for: {what}"
            time.sleep(0.01)
        return found

    def end(self, timeout=100):
        """Wait for its end; return its code and what it said on standard error."""
        _, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, err
