"""What would limit training here: measures the machine, and the cost of an env's step.

    look_here()      cores, memory, files, kernels, arithmetic    about a second
    time_env(...)    one env's step beside acting and learning    half a second
    say_limits(...)  one to three lines, the tightest first

Only the first two touch the machine; `say_limits` is a function of the numbers.
"""

import importlib.metadata
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster import container
from muster.installs import install

WIDTH = 80
"""Width of a line in columns."""
HIDDEN = (64, 64)
BATCH = 64
"""Transitions of each timed update."""
ENVS = 8
"""Environments for which acting is timed."""
_SECONDS = 0.15
_GIB = 2**30
_LITTLE_MEMORY = 2 * _GIB
_FEW_FILES = 256
_SLOW_GFLOPS = 5.0
_SLOW_COPY = 1.0
_CLEARLY = 1.5


@dataclass(frozen=True)
class Machine:
    """The measurements of this machine."""

    cores: float
    """Cores that this process may use: the smaller of its affinity and its container's quota."""
    free_bytes: int | None
    """Memory that it can still get, also by its container's limit; None: unknown."""
    open_files: int
    """Files that a process may have open."""
    compiled: bool
    """Whether kernels are compiled, which needs numba and a place for its cache."""
    gflops: float
    """Speed of a float32 matrix product on all cores, in 1e9 operations per second."""
    copy_gb_per_s: float
    """Speed of copying memory, in 1e9 bytes per second."""


@dataclass(frozen=True)
class EnvCost:
    """Microseconds per environment step, in one process."""

    env_us: float
    """One bare step, with its share of resets."""
    act_us: float
    """Choosing its action with a 64x64 network, for 8 envs at once."""
    update_us: float
    """One DQN update of that network with a batch of 64."""


def gpu() -> str:
    """Return the name of the GPU, or `none`. Imports no large package."""
    names: list[str] = []
    tool = shutil.which("nvidia-smi")
    if tool:
        try:
            listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=2)
            lines = listed.stdout.splitlines() if listed.returncode == 0 else []
            names = [line.partition(": ")[2].partition(" (UUID")[0] for line in lines]
        except (OSError, subprocess.SubprocessError):
            pass
    if not names and Path("/dev/kfd").exists():
        names = ["an AMD GPU"]
    names = [name for name in names if name]
    if not names:
        return "none; muster computes on the CPU"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0][:30]}{more}, used with --device cuda or auto"


def ray() -> str:
    """Return the version of Ray, or how to install it."""
    try:
        return importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return f"not installed; {install('ray')}"


def look_here() -> Machine:
    """Measure this machine. Takes about a second, most of it for importing numba."""
    import numpy as np

    side = 512
    one = np.ones((side, side), np.float32)
    out = np.empty_like(one)
    block = np.ones(4_000_000)  # 32 MB: larger than the caches
    copy = np.empty_like(block)
    product = seconds_each(lambda: np.matmul(one, one, out=out))
    copying = seconds_each(lambda: np.copyto(copy, block))
    return Machine(
        cores=container.cores(),
        free_bytes=container.free_memory(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        compiled=kernels_are_compiled(),
        gflops=2 * side**3 / product / 1e9,
        copy_gb_per_s=block.nbytes / copying / 1e9,
    )


def kernels_are_compiled() -> bool:
    """Whether muster's kernels are compiled by numba, rather than their slower NumPy twins."""
    from muster.nets.adam import adam, adam_numpy

    return adam is not adam_numpy


def time_env(obs_space: Any, action_space: Any, steps_per_s: float) -> EnvCost:
    """Compare an env, whose bare rate is known, with acting and learning.

    Args:
        obs_space: The space of one observation.
        action_space: The space of one action. If it is not Discrete, a network with as many outputs
            as an action has numbers is timed.
        steps_per_s: The rate of one bare env.
    """
    agent, some, batch = trial(obs_space, action_space)
    return EnvCost(
        env_us=1e6 / steps_per_s,
        act_us=1e6 * seconds_each(lambda: agent.act(some)) / ENVS,
        update_us=1e6 * seconds_each(lambda: agent.update(batch)),
    )


def trial(obs_space: Any, action_space: Any) -> tuple[Any, Any, Any]:
    """Return an agent to time, observations of 8 environments, and a batch of 64."""
    import gymnasium as gym
    import numpy as np

    from muster.algos.dqn import DQN, DQNConfig
    from muster.data import Batch

    if not isinstance(action_space, gym.spaces.Discrete):
        action_space = gym.spaces.Discrete(max(2, gym.spaces.flatdim(action_space)))
    agent = DQN(DQNConfig(hidden=HIDDEN), obs_space, action_space)
    some: Any = gym.vector.utils.create_empty_array(obs_space, ENVS, fn=np.zeros)
    many: Any = gym.vector.utils.create_empty_array(obs_space, BATCH, fn=np.zeros)
    ones = np.ones(BATCH, np.float32)
    batch = Batch(
        obs=many,
        action=np.full(BATCH, action_space.start, np.int64),
        reward=ones,
        next_obs=many,
        discount=ones,
        weight=ones,
        index=np.arange(BATCH),
    )
    return agent, some, batch


def say_measured(here: Machine) -> str:
    """Return the measurements on one line."""
    free = "" if here.free_bytes is None else f", {here.free_bytes / _GIB:.0f} GiB free"
    return (
        f"{here.gflops:.0f} GFLOP/s, copies {here.copy_gb_per_s:.0f} GB/s{free}, "
        f"{here.open_files} open files"
    )


def say_limits(here: Machine, cost: EnvCost | None = None) -> list[str]:
    """Return one to three lines, the tightest limit first, none longer than 78 columns."""
    lines = []
    if here.free_bytes is not None and here.free_bytes < _LITTLE_MEMORY:
        lines.append(
            f"memory: only {here.free_bytes / _GIB:.1f} GiB free; try a smaller --buffer-size"
        )
    if not here.compiled:
        lines.append("kernels run on NumPy, slower: check numba, NUMBA_CACHE_DIR, MUSTER_NUMBA")
    if here.open_files < _FEW_FILES:
        lines.append(f"open files: {here.open_files} per process; try ulimit -n 4096")
    if here.gflops < _SLOW_GFLOPS:
        lines.append(
            f"arithmetic: a matrix product runs at {here.gflops:.1f} GFLOP/s, which is slow"
        )
    if here.copy_gb_per_s < _SLOW_COPY:
        lines.append(f"memory is copied at {here.copy_gb_per_s:.1f} GB/s only, which slows replay")
    if cost is not None:
        lines.insert(1, _bound(cost))  # always among the first three
    cores = f"{here.cores:g} usable core{'s' * (here.cores != 1)}"
    if here.cores < 2:
        lines.append(f"{cores}: a second process would only slow down the first")
    else:
        lines.append(f"{cores}: more processes than that would not be faster")
    return lines[:3]


def _bound(cost: EnvCost) -> str:
    """Return which part of a DQN run with one update per step takes most of the time."""
    acting, learning = cost.env_us + cost.act_us, cost.update_us
    if cost.env_us >= _CLEARLY * (cost.act_us + learning):
        return (
            f"environment-bound: {us(cost.env_us)} a step; acting {us(cost.act_us)}, "
            f"an update {us(learning)}"
        )
    if learning >= _CLEARLY * acting:
        return (
            f"learning-bound at 1 update a step: {us(learning)}; the env {us(cost.env_us)}, "
            f"acting {us(cost.act_us)}"
        )
    return (
        f"balanced at 1 update a step: the env {us(cost.env_us)}, acting {us(cost.act_us)}, "
        f"learning {us(learning)}"
    )


def us(microseconds: float) -> str:
    """Return microseconds as text."""
    if microseconds >= 1000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds:.0f} us" if microseconds >= 10 else f"{microseconds:.1f} us"


def seconds_each(work: Callable[[], object]) -> float:
    """Return the shortest time of one call, over all calls within 0.15 s."""
    work()  # the first call also compiles and fills caches
    best, until = float("inf"), time.perf_counter() + _SECONDS
    while True:
        started = time.perf_counter()
        work()
        ended = time.perf_counter()
        best = min(best, ended - started)
        if ended > until:
            return best
