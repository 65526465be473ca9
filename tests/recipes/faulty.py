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
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import SIGKILL, SIGSEGV

import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from torch import nn

VARIABLE = "MUSTER_FAULT"
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
    """`init`, `reset`, `step`, `forward`."""
    at: int = 40
    """At which call of that kind."""
    do: str = "raise"
    role: str | None = None
    """Only on nodes of this role."""
    place: str | None = None
    """Where to leave a file each time that it happens."""
    times: int = 10**9
    """How often, by the files in that place."""


def meet(call, count):
    """Do what is to be done at this call, if it is."""
    said = os.environ.get(VARIABLE)
    fault = Fault(**json.loads(said)) if said else None
    if fault is None or (fault.call, fault.at) != (call, count):
        return
    if fault.role is not None and fault.role != role():
        return
    if fault.place is not None:
        if len(os.listdir(fault.place)) >= fault.times:
            return
        Path(fault.place, f"{os.getpid()}.{time.monotonic_ns()}").touch()
    if fault.do == "raise":
        raise RuntimeError(f"{call} is broken\nand says so on two lines")
    if fault.do == "hang":
        time.sleep(1000)
    os.kill(os.getpid(), {"segfault": SIGSEGV, "kill": SIGKILL}[fault.do])


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

    def reset(self, **options):
        self._count("reset")
        return super().reset(**options)

    def step(self, action):
        self._count("step")
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
    environ = {**os.environ, "PYTHONPATH": here, **more}
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
