"""Networks that remember, and those that read images: compiled beside torch, on one core.

    OMP_NUM_THREADS=1 python -m benchmarks.networks --json benchmarks/results/networks.json

What PPO asks of a network with its standard options: an action for each of 8 environments, and the
gradients of one minibatch, 256 steps in 4 slots. The compiled network does each in one call; torch
is asked slot by slot, as its bits depend on which rows are computed together. Calls are made in
turn, and the fastest of each counts: that is what it takes when nobody else has the core.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from benchmarks.rounds import machine, write

from muster.nets import FlatParameters
from muster.nets.action_head import ActionHead
from muster.nets.build_policy import build_policy, make_policy_net
from muster.nets.flops import count_products
from muster.nets.policy_net import STATS, LossTerms, Rollout
from muster.nets.recurrent import RecurrentActorCritic, RecurrentPolicy
from muster.nets.torch_policy import TorchPolicy

STEPS, ENVS, SLOTS, SEQUENCE, MINIBATCHES = 128, 8, 4, 16, 4
ROWS = STEPS * ENVS
VECTOR = gym.spaces.Box(-1, 1, (4,))
FRAMES = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
HEAD = ActionHead.of(gym.spaces.Discrete(6))
NETWORKS: dict[str, tuple[gym.Space[Any], str, tuple[int, ...]]] = {
    "lstm 64": (VECTOR, "lstm", (64,)),
    "lstm 128": (VECTOR, "lstm", (128,)),
    "gru 128": (VECTOR, "gru", (128,)),
    "nature_cnn": (FRAMES, "nature_cnn", ()),
    "impala_cnn": (FRAMES, "impala_cnn", ()),
}


def rollout_of(space: gym.Space[Any], state_width: int) -> Rollout:
    """Return a rollout that nobody experienced."""
    rng = np.random.default_rng(0)
    logp, value, advantage, target = rng.normal(size=(4, ROWS)).astype(np.float32)
    shape = (ROWS, *(space.shape or ()))
    obs = rng.integers(0, 256, shape, np.uint8) if space is FRAMES else rng.normal(size=shape)
    state = rng.normal(size=(STEPS // SEQUENCE, ENVS, state_width)).astype(np.float32)
    return Rollout(
        obs if space is FRAMES else obs.astype(np.float32),
        rng.integers(0, HEAD.outputs, (ROWS, 1)),
        logp,
        value,
        advantage,
        target,
        state if state_width else None,
        rng.random(ROWS) < 0.02 if state_width else None,
    )


def asked(net: Any, rollout: Rollout, size: int, slots: int) -> dict[str, Callable[[], object]]:
    """Return acting and learning as calls."""
    pieces = ROWS // SEQUENCE if net_remembers(net) else ROWS
    rows = np.random.default_rng(1).permutation(pieces)[: pieces // MINIBATCHES]
    rows = rows.reshape(SLOTS, -1)
    grads, stats = np.zeros((SLOTS, size), np.float32), np.zeros((SLOTS, len(STATS)))
    terms = LossTerms(MINIBATCHES / ROWS, 0.2, 0.0, 0.5, 0.01)
    noise, action = np.full((ENVS, 1), 0.5, np.float32), np.zeros((ENVS, 1), np.int64)
    logp, value = np.zeros((2, ENVS), np.float32)
    memory = (np.zeros((ENVS, net.state_width), np.float32),) if net_remembers(net) else ()
    first = (np.zeros(ENVS, np.bool_),) if memory else ()

    arrays = (rollout.obs, noise, action, logp, value, *memory, *first)
    width = ENVS // slots
    groups = [[each[i * width : (i + 1) * width] for each in arrays] for i in range(slots)]

    def act() -> None:
        for group in groups:
            net.act(*group)

    def learn() -> None:
        if slots == 1:
            net.gradients(rollout, rows, terms, grads, stats)
            return
        for mine, grad, sums in zip(rows, grads, stats, strict=True):
            net.gradient(rollout, mine, terms, grad, sums)

    return {"act": act, "learn": learn}


def net_remembers(net: Any) -> bool:
    """Whether a network has a state."""
    return hasattr(net, "state_width")


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Return the milliseconds of one network, compiled and by torch."""
    space, model, hidden = NETWORKS[name]
    module = build_policy(space, HEAD, hidden, model=model, seed=1)
    flat = FlatParameters(module)
    compiled = make_policy_net(module, flat, HEAD)
    if compiled.by_torch is not None:  # type: ignore[union-attr]
        raise SystemExit(f"{name} is not compiled: {compiled.by_torch}")  # type: ignore[union-attr]
    kind = RecurrentPolicy if isinstance(module, RecurrentActorCritic) else TorchPolicy
    theirs = kind(module, flat, HEAD)  # type: ignore[arg-type]
    rollout = rollout_of(space, getattr(compiled, "state_width", 0))
    calls = {
        f"{who} {what}": call
        for who, net, slots in (("compiled", compiled, 1), ("torch", theirs, SLOTS))
        for what, call in asked(net, rollout, flat.vector.size, slots).items()
    }
    best = dict.fromkeys(calls, float("inf"))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for each, call in calls.items():
            started = time.perf_counter()
            call()
            best[each] = min(best[each], time.perf_counter() - started)
    ms = {each: round(1_000 * found, 3) for each, found in best.items()}
    flops = sum(product.flops for product in count_products(module, space))
    learnt = 3 * flops * ROWS / MINIBATCHES / best["compiled learn"] / 1e9
    return {"network": name, "ms": ms, "gflops_learn": round(learnt, 1)}


def main() -> None:
    """Measure every network, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8, help="of each network (8)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = "python -m benchmarks.networks " + " ".join(sys.argv[1:])
    taken = [measure(name, options.seconds) for name in NETWORKS]
    write({"command": command, **machine(), "networks": taken}, options.json)


if __name__ == "__main__":
    main()
