"""The speed limit of training here: the least cost of a step, and where time was spent instead.

    Calibration.spend(seconds)   steps bare envs, multiplies, copies: in pieces of milliseconds
    Limits                       seconds per step of each -> the bound, rho and eta
    Split                        seconds of training by activity -> the limiting one

With c the seconds of a bare environment step, F the FLOPs of one forward pass, G the rate of matrix
products at the shapes of the network, E the epochs (with replay: the samples that updates take per
step) and BW the rate of copying:

    bound = cores / (c + F / G + 3 * F * E / G + bytes / BW)     eta = trained steps/s / bound
    bare  = cores / c                                            rho = trained steps/s / bare
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

from muster.envs import VectorEnv
from muster.envs.masks import is_masked, legal_actions
from muster.framework.node import advance
from muster.nets.flops import Product

_PIECE_SECONDS = 0.002
_ACTIONS = 64
"""Steps of random actions drawn in advance: drawing one can cost more than a step."""
_MOST_FLOPS = 1e8
_MOST_NUMBERS = 4_000_000
"""Limits of a timed product, and of one of its factors: larger ones are not faster."""
_ONE_THREAD = 2**18
"""Multiplications up to which NumPy's BLAS always uses one thread."""
_BLOCKS = (1 << 20, 32 << 20)
"""Least and most bytes of one timed copy."""


@dataclass(frozen=True)
class Limits:
    """The least cost of one training step on one core."""

    env_step_s: float
    """Seconds of a bare environment step, including its share of resets."""
    flops: int
    """FLOPs of the network's forward pass for one observation."""
    gemm_flops_per_s: float
    """Rate of one thread at the shapes of the network; 0 if the network has no products."""
    row_bytes: int
    """Bytes that a step writes."""
    copy_bytes_per_s: float
    passes: float = 3.0
    """Cost of learning from one sample, in forward passes of the network: one, plus twice that for
    backward; more if other networks learn with it."""

    def bare_steps_per_s(self, cores: int) -> float:
        """Return the speed of the environments alone, with random actions."""
        return cores / self.env_step_s

    def bound_steps_per_s(self, cores: int, epochs: float) -> float:
        """Return the upper bound of training: no waiting, no bookkeeping, no small products."""
        forward = self.flops / self.gemm_flops_per_s if self.flops else 0.0
        learning = self.passes * forward * epochs
        moving = self.row_bytes / self.copy_bytes_per_s
        return cores / (self.env_step_s + forward + learning + moving)

    def rho(self, steps_per_s: float, cores: int) -> float:
        """Return trained steps relative to steps of the bare environments on the same cores."""
        return steps_per_s / self.bare_steps_per_s(cores)

    def eta(self, steps_per_s: float, cores: int, epochs: float) -> float:
        """Return the fraction of the bound that was reached."""
        return steps_per_s / self.bound_steps_per_s(cores, epochs)


@dataclass(frozen=True)
class Split:
    """Seconds of one worker's training, by activity."""

    env: float
    """Stepping environments and storing their results."""
    act: float
    """Choosing actions."""
    learn: float
    """Gradients and updates."""
    exchange: float
    """Waiting for other workers, for any reason: exchanging costs nothing else."""
    rest: float
    """Everything else: advantages, shuffling, random numbers, metrics."""

    @classmethod
    def of(cls, wall: float, env: float, act: float, learn: float, exchange: float) -> "Split":
        """Return a split of `wall` seconds; `rest` is the time that the other parts leave."""
        return cls(env, act, learn, exchange, max(0.0, wall - env - act - learn - exchange))

    @property
    def limited_by(self) -> str:
        """The largest part."""
        parts = asdict(self)
        return max(parts, key=parts.__getitem__)

    @property
    def shares(self) -> dict[str, float]:
        """Each part as a fraction of the whole, from 0 to 1."""
        parts = asdict(self)
        whole = sum(parts.values())
        return {name: seconds / whole if whole else 0.0 for name, seconds in parts.items()}


def waited_for_a_core() -> float:
    """Return the seconds in which this thread was ready to run but had no core.

    0 if the kernel does not report it.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Calibration:
    """Measures `Limits`, a few milliseconds at a time.

    Args:
        make: Makes the environments of one worker.
        products: The products of the network, from `count_products`.
        rows: Rows of one gradient: observations in one product.
        row_bytes: Bytes that one step writes.
        block_bytes: Bytes that one worker writes in a rollout.
        passes: Cost of learning from one sample, in forward passes of the network.
    """

    def __init__(
        self,
        make: Callable[[], VectorEnv],
        products: Sequence[Product],
        rows: int,
        row_bytes: int,
        block_bytes: int,
        passes: float = 3.0,
    ) -> None:
        self._row_bytes = row_bytes
        self._passes = passes
        self._flops = sum(product.flops for product in products)
        self._copying = _Copying(min(max(block_bytes, _BLOCKS[0]), _BLOCKS[1]))
        self._timed = [_TimedProduct(product, rows) for product in products]
        self._stepping = _Stepping(make())
        # Environments vary from step to step and get most of the time; the other parts are measured
        # by their best time.
        self._parts: list[tuple[float, Callable[[], None]]] = [(0.6, self._stepping.piece)]
        self._parts += [(0.25 / len(self._timed), timed.piece) for timed in self._timed]
        self._parts.append((0.15, self._copying.piece))
        self._spent = [0.0] * len(self._parts)

    def spend(self, seconds: float) -> None:
        """Measure for about this long, at least one piece of each kind."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or not all(self._spent):
            at = min(range(len(self._parts)), key=lambda i: self._spent[i] / self._parts[i][0])
            started = time.perf_counter()
            self._parts[at][1]()
            self._spent[at] += time.perf_counter() - started
            advance()

    def limits(self) -> Limits:
        """Return the results so far."""
        arithmetic = sum(timed.seconds_per_observation for timed in self._timed)
        return Limits(
            env_step_s=self._stepping.seconds / self._stepping.steps,
            flops=self._flops,
            gemm_flops_per_s=self._flops / arithmetic if self._flops else 0.0,
            row_bytes=self._row_bytes,
            copy_bytes_per_s=self._copying.bytes_per_s,
            passes=self._passes,
        )

    def close(self) -> None:
        """Close the environments."""
        self._stepping.envs.close()


class _Stepping:
    """Steps environments with random actions; reports their mean speed, which includes resets."""

    def __init__(self, envs: VectorEnv) -> None:
        self.envs = envs
        self.steps = 0
        self.seconds = 0.0
        space = copy.deepcopy(envs.single_action_space)  # do not seed a space that others share
        space.seed(0)
        drawn = [[space.sample() for _ in range(envs.num_envs)] for _ in range(_ACTIONS)]
        self._actions = cycle([np.array(row) for row in drawn])
        envs.reset()
        first = legal_actions(next(self._actions), envs.obs, envs.single_action_space)
        envs.step(first)  # the first step may also build something

    def piece(self) -> None:
        envs, step, actions, clock = self.envs, self.envs.step, self._actions, time.perf_counter
        masked = is_masked(envs.single_observation_space)
        space = envs.single_action_space if masked else None
        count, lost = 0, waited_for_a_core()
        started = clock()
        while (ended := clock()) < started + _PIECE_SECONDS or not count:
            step(next(actions) if space is None else legal_actions(next(actions), envs.obs, space))
            count += 1
        # Time lost to other processes on this machine is no property of the environment.
        self.seconds += max(1e-9, ended - started - (waited_for_a_core() - lost))
        self.steps += count * self.envs.num_envs


class _TimedProduct:
    """One product of a network, timed with torch or NumPy, whichever is faster at this size."""

    def __init__(self, product: Product, rows: int) -> None:
        inner, outer = product.inner, product.outer
        most = min(_MOST_FLOPS / (2 * inner * outer), _MOST_NUMBERS / inner)
        height = max(1, min(rows * product.rows, int(most)))
        one, two, out = (
            np.ones(shape, np.float32)
            for shape in ((height, inner), (inner, outer), (height, outer))
        )
        tensors = torch.from_numpy(one), torch.from_numpy(two), torch.from_numpy(out)
        self._ways: list[Callable[[], object]] = [
            lambda: torch.mm(tensors[0], tensors[1], out=tensors[2])
        ]
        if height * inner * outer <= _ONE_THREAD:
            self._ways.append(lambda: np.matmul(one, two, out=out))
        self._per_call = product.rows * product.times / height
        self._best = float("inf")

    @property
    def seconds_per_observation(self) -> float:
        return self._best * self._per_call

    def piece(self) -> None:
        for way in self._ways:
            self._best = min(self._best, _best_of(way))


class _Copying:
    """Copies a block of memory."""

    def __init__(self, size: int) -> None:
        self._from, self._to = np.ones(size, np.uint8), np.ones(size, np.uint8)
        self._best = float("inf")

    @property
    def bytes_per_s(self) -> float:
        return self._from.nbytes / self._best

    def piece(self) -> None:
        self._best = min(self._best, _best_of(lambda: np.copyto(self._to, self._from)))


def _best_of(work: Callable[[], object]) -> float:
    """Return the shortest time of one call, of as many as fit into a piece, at least two."""
    best, until = float("inf"), time.perf_counter() + _PIECE_SECONDS / 4
    calls = 0
    while True:
        started = time.perf_counter()
        work()
        ended = time.perf_counter()
        best, calls = min(best, ended - started), calls + 1
        if ended > until and calls > 1:
            return best
