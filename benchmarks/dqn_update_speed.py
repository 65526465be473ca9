"""What one DQN update and one call of act cost, beside the same written in torch as usual.

    python benchmarks/dqn_update_speed.py [--rounds 15] [--json results/dqn_update_speed.json]

CartPole's shapes (4 numbers, 2 actions, batch 64), two sizes of network. Every figure is taken once
in each round, so that all of them see the same machine; the median over the rounds is reported with
its quartiles, in microseconds. Each number of BLAS threads has a process of its own, because
libraries read it when they are loaded. `cpu` is the time on the processor: with one thread it is
what `wall` would be on a quiet machine, so the bounds are for it. Exit code 1 if one is missed.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

_started = time.process_time()
from muster.algos import DQN, DQNConfig  # noqa: E402  # its time is taken, numba's import in it
from muster.nets import Adam  # noqa: E402

IMPORT_SECONDS = time.process_time() - _started

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
BATCH, MANY = 64, 16

BOUNDS = {
    "update_64": 110.0,
    "update_256": 480.0,
    "update_many_256": 480.0,
    "act_8_obs_64": 12.0,
    "first_update_warm_cache_s": 0.4,
}

Figure = Callable[[], object]


def make_batch(*shape: int) -> SimpleNamespace:
    """Draw transitions with CartPole's shapes."""
    rng = np.random.default_rng(0)
    return SimpleNamespace(
        obs=rng.normal(size=(*shape, 4)).astype(np.float32),
        action=rng.integers(0, 2, shape),
        reward=np.ones(shape, np.float32),
        next_obs=rng.normal(size=(*shape, 4)).astype(np.float32),
        discount=np.full(shape, 0.99, np.float32),
        weight=np.ones(shape, np.float32),
    )


def torch_network(width: int) -> nn.Module:
    """Return a network of two hidden layers as it is usually written."""
    return nn.Sequential(
        nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    )


def torch_update(width: int, double: bool) -> Figure:
    """Return an update as it is usually written: modules, autograd, torch.optim.Adam."""
    online, target = torch_network(width), torch_network(width)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-9)
    batch = make_batch(BATCH)

    def update() -> float:
        obs, action, reward, next_obs, discount = (
            torch.from_numpy(x)
            for x in (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount)
        )
        with torch.no_grad():
            next_q = target(next_obs)
            chooser = online(next_obs) if double else next_q
            y = reward + discount * next_q.gather(1, chooser.argmax(1, keepdim=True))[:, 0]
        q = online(obs).gather(1, action[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(q, y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()
        return loss.item()

    return update


def torch_act(width: int, count: int) -> Figure:
    """Return greedy acting as it is usually written."""
    network = torch_network(width)
    obs = make_batch(count).obs

    def act() -> object:
        with torch.no_grad():
            return network(torch.from_numpy(obs)).argmax(1).numpy()

    return act


def adam(size: int, dead: bool) -> Figure:
    """Return clipping and a step; where half the weights are dead, their gradient is always 0."""
    optimizer = Adam(np.zeros(size, np.float32), 1e-9)
    grad = np.ones(size, np.float32)
    for _ in range(1_000 if dead else 0):
        optimizer.step(grad, 10.0)
        grad[: size // 2] = 0
    return partial(optimizer.step, grad, 10.0)


def torch_adam(size: int, dead: bool) -> Figure:
    """Return the same by torch's fastest Adam over one flat tensor."""
    tensor = nn.Parameter(torch.zeros(size))
    tensor.grad = torch.ones(size)
    fused = torch.optim.Adam([tensor], lr=1e-9, fused=True)
    for _ in range(1_000 if dead else 0):
        fused.step()
        tensor.grad[: size // 2] = 0

    def step() -> None:
        nn.utils.clip_grad_norm_([tensor], 10.0)
        fused.step()

    return step


def figures() -> dict[str, tuple[Figure, int, int]]:
    """Return what is measured: the call, how often per round, how many updates it makes."""
    space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
    batch, batches = make_batch(BATCH), make_batch(MANY, BATCH)
    taken: dict[str, tuple[Figure, int, int]] = {}
    for width in (64, 256):
        times = 20_000 // width
        # A tiny learning rate: all rounds work with the same numbers, none of them subnormal.
        cfg = partial(DQNConfig, hidden=(width, width), lr=1e-9)
        plain = DQN(cfg(double=False), space, actions)
        double = DQN(cfg(double=True), space, actions)
        dueling = DQN(cfg(double=True, dueling=True), space, actions)
        taken |= {
            f"update_{width}": (partial(plain.update, batch), times, 1),
            f"update_many_{width}": (partial(plain.update_many, batches), times // MANY, MANY),
            f"torch_update_{width}": (torch_update(width, double=False), times // 4, 1),
            f"update_double_{width}": (partial(double.update, batch), times, 1),
            f"torch_update_double_{width}": (torch_update(width, double=True), times // 4, 1),
            f"update_double_dueling_{width}": (partial(dueling.update, batch), times, 1),
            f"act_1_obs_{width}": (partial(plain.act, batch.obs[:1]), times, 1),
            f"act_8_obs_{width}": (partial(plain.act, batch.obs[:8]), times, 1),
            f"torch_act_8_obs_{width}": (torch_act(width, 8), times, 1),
            f"act_8_obs_exploring_{width}": (partial(plain.act, batch.obs[:8], 0.1), times, 1),
        }
    for size in (4_610, 67_586):  # the weights of these two networks
        for name, dead in (("", False), ("half_dead_", True)):
            taken[f"adam_{name}{size}"] = adam(size, dead), 100, 1
            taken[f"torch_adam_{name}{size}"] = torch_adam(size, dead), 100, 1
    for call, _, _ in taken.values():
        call()
    return taken


def first_update_seconds() -> dict[str, float]:
    """Return what a new process pays: import, building an agent, the first act and update."""
    command = [sys.executable, __file__, "--first"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds: dict[str, float] = json.loads(run.stdout)
    return seconds


def first_update() -> dict[str, float]:
    """Measure that, in a process that did nothing else before."""
    batch = make_batch(BATCH)
    started = time.process_time()
    space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2)
    agent = DQN(DQNConfig(hidden=(64, 64)), space, actions)
    built = time.process_time()
    agent.act(batch.obs[:8])
    agent.update(batch)
    return {
        "import_s": IMPORT_SECONDS,
        "build_s": built - started,
        "first_update_warm_cache_s": time.process_time() - built,
    }


def summary(values: list[float]) -> dict[str, float]:
    """Return median, quartiles and the best."""
    low, median, high = statistics.quantiles(values, n=4)
    named = {"median": median, "q1": low, "q3": high, "min": min(values)}
    return {name: round(value, 3) for name, value in named.items()}


def measure(rounds: int, threads: int) -> dict[str, Any]:
    """Take all figures in every round and summarise them."""
    torch.set_num_threads(threads)
    calls = figures()
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, (call, times, count) in calls.items():
            started, cpu_started = time.perf_counter(), time.process_time()
            for _ in range(times):
                call()
            share = 1e6 / times / count
            cpu.setdefault(name, []).append((time.process_time() - cpu_started) * share)
            wall.setdefault(name, []).append((time.perf_counter() - started) * share)
        if threads == 1:
            for name, seconds in first_update_seconds().items():
                cpu.setdefault(name, []).append(seconds)
    return {
        "cpu": {name: summary(values) for name, values in cpu.items()},
        "wall": {name: summary(values) for name, values in wall.items()},
    }


def in_child(rounds: int, threads: int) -> dict[str, Any]:
    """Measure in a process whose BLAS libraries have so many threads."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    command = [sys.executable, __file__, "--rounds", str(rounds), "--child", str(threads)]
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def main() -> None:
    """Measure, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Measure DQN's update and act.")
    parser.add_argument("--rounds", type=int, default=15, help="rounds for the median (15)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds has to be 2 or more, for a median")
    if options.first:
        print(json.dumps(first_update()))
        return
    if options.child:
        print(json.dumps(measure(options.rounds, options.child)))
        return
    load = os.getloadavg()[0]
    one, two = in_child(options.rounds, 1), in_child(options.rounds, 2)
    medians = {name: figure["median"] for name, figure in one["cpu"].items()}
    result = {
        "command": f"python benchmarks/dqn_update_speed.py --rounds {options.rounds}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": round(load, 2),
        "rounds": options.rounds,
        "unit": "us; names that end in _s: seconds",
        "one_thread": one,
        "two_threads": two,
        "torch_over_muster": {
            name: round(medians[f"torch_{name}"] / medians[name], 2)
            for name in medians
            if f"torch_{name}" in medians
        },
        "bounds": {
            name: {"at_most": bound, "met": medians[name] <= bound}
            for name, bound in BOUNDS.items()
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    if not all(bound["met"] for bound in result["bounds"].values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
