"""Proof that a file does the same as its policy: compares the actions of both.

    20 environments played by the policy ─┐
    20 rows drawn from the space ─────────┴> 25 steps of 40 rows -> policy, file -> compared

A policy with memory goes through all steps; the file's memory is passed on from its outputs. Where
discrete actions differ, their outputs have to be equal up to rounding: a tie.
"""

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from muster.envs import VectorEnv
from muster.envs.masks import ACTION_MASK, choices_of
from muster.exporting.errors import ExportError
from muster.exporting.formats import ExportedFile
from muster.exporting.graph import PolicyGraph
from muster.exporting.heads import CategoryHead
from muster.exporting.result import Proof
from muster.recipes.policy import LoadedPolicy

Array = NDArray[Any]

ENVS = DRAWN = 20
STEPS = 25
_ROUNDING = 1e-4
"""How much two numbers may differ, as a share of the larger one, of 1, or of half a Box."""
_LARGEST = 1_000
"""Bound of drawn numbers: a Box without bounds may yield 1e38, whose sums are infinite."""


class ActionComparison:
    """Compares the actions of a policy and its file, and counts the differences.

    Args:
        policy: The result of `load_policy`.
        graph: The graph that the file was made from.
        file: The file.
        envs: Environments of the policy.
    """

    def __init__(
        self, policy: LoadedPolicy, graph: PolicyGraph, file: ExportedFile, envs: VectorEnv
    ) -> None:
        self._policy = policy
        self._graph = graph
        self._file = file
        self._envs = envs
        self._discrete = isinstance(graph.head, CategoryHead)
        self._memory = np.zeros((ENVS + DRAWN, graph.memory_width), np.float32)
        self.observations = self.different = self.ties = 0
        self.largest_difference = 0.0

    def prove(self, seed: int = 0) -> Proof:
        """Compare policy and file over all steps.

        Raises:
            ExportError: They differ by more than rounding.
        """
        drawn = copy.deepcopy(self._envs.single_observation_space)
        drawn.seed(seed)
        first = np.ones(ENVS + DRAWN, np.bool_)
        seen = self._envs.reset()
        for step in range(STEPS):
            sampled = draw_observations(drawn, self._envs.single_action_space, DRAWN)
            obs = _joined(seen, sampled)
            action, differs = self.compare(obs, first)
            if step == 0:
                self._compare_one_row(obs)
            seen, _, ends, cuts, _ = self._envs.step(action[:ENVS])
            # After a tie the two have acted differently, and their memories may differ.
            first = differs | np.concatenate([ends | cuts, np.zeros(DRAWN, np.bool_)])
        return Proof(
            self.observations,
            None if self._discrete else self.largest_difference,
            self.different if self._discrete else None,
            self.ties,
        )

    def compare(self, obs: Any, first: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
        """Return the policy's actions for some rows, and where the file's actions differ.

        Args:
            obs: [40, ...], or a dict of such.
            first: bool [40], where an episode begins.
        """
        action = self._policy.act(obs, first=first)
        mine = self._envs.in_env_numbers(action)
        self._memory[first] = 0
        inputs = inputs_of(obs, self._graph.keys, self._memory)
        theirs, *after = self._file.run(inputs)
        if theirs.shape != mine.shape or theirs.dtype != self._envs.env_action_space.dtype:
            raise _different(f"its actions are {theirs.dtype} {theirs.shape}, not {mine.shape}")
        self.observations += len(mine)
        differs = (mine != theirs).reshape(len(mine), -1).any(axis=1)
        if self._discrete:
            self._look_for_ties(inputs, mine, theirs, np.flatnonzero(differs))
        else:
            self._measure(mine, theirs)
            differs[:] = False
        if after:
            self._memory = after[0].copy()
        return action, differs

    def _look_for_ties(self, inputs: list[Array], mine: Array, theirs: Array, rows: Any) -> None:
        if not len(rows):
            return
        head = self._graph.head
        assert isinstance(head, CategoryHead)
        with torch.no_grad():
            outputs, _ = self._graph.outputs(*(torch.from_numpy(each) for each in inputs))
        start = head.start.numpy()
        for row in rows:
            pairs = zip(mine[row].reshape(-1) - start, theirs[row].reshape(-1) - start, strict=True)
            for group, (one, other) in zip(head.groups(outputs), pairs, strict=True):
                best = float(group[row, int(one)])
                gap = abs(best - float(group[row, int(other)]))
                if not gap <= _ROUNDING * max(1.0, abs(best)):
                    why = f"action {theirs[row].tolist()} and not {mine[row].tolist()}"
                    raise _different(f"it takes {why}, by outputs that are {gap:.3g} apart")
            self.different += 1
            self.ties += 1

    def _measure(self, mine: Array, theirs: Array) -> None:
        space = self._envs.env_action_space
        assert isinstance(space, gym.spaces.Box)
        with np.errstate(over="ignore", invalid="ignore"):
            half = (space.high - space.low) / 2
        scale = np.where(np.isfinite(half) & (half > 0), half, np.maximum(1, np.abs(mine)))
        difference = np.abs(mine.astype(np.float64) - theirs)
        if not (difference <= _ROUNDING * scale).all():
            raise _different(f"an action is {float(np.max(difference)):.3g} from the policy's")
        self.largest_difference = max(self.largest_difference, float(difference.max(initial=0)))

    def _compare_one_row(self, obs: Any) -> None:
        """Check that the file accepts a batch of another size."""
        inputs = inputs_of(obs, self._graph.keys, np.zeros_like(self._memory))
        together, alone = self._file.run(inputs)[0], self._file.run([x[:1] for x in inputs])[0]
        if self._discrete:
            rows = np.flatnonzero((together[:1] != alone).reshape(1, -1).any(axis=1))
            self._look_for_ties([x[:1] for x in inputs], together[:1], alone, rows)
        else:
            self._measure(together[:1], alone)


def inputs_of(obs: Any, keys: list[str] | None, memory: Array) -> list[Array]:
    """Return the inputs of a file, in their order.

    Args:
        obs: [B, ...], or a dict of such.
        keys: The parts of a Dict, in order; None if it is not a Dict.
        memory: [B, width]; not an input if the width is 0.
    """
    parts = [obs] if keys is None else [obs[key] for key in keys]
    return [np.ascontiguousarray(each) for each in (*parts, *([memory] if memory.size else []))]


def draw_observations(
    space: gym.Space[Any], action_space: gym.Space[Any], count: int
) -> Array | dict[str, Array]:
    """Return observations drawn from a space, [count, ...]; every mask allows some action."""
    if isinstance(space, gym.spaces.Dict):
        drawn = {name: _draw(part, count) for name, part in space.spaces.items()}
        if ACTION_MASK in drawn:
            first = 0
            for choices in choices_of(action_space):
                drawn[ACTION_MASK][np.arange(count), first + np.arange(count) % choices] = 1
                first += choices
        return drawn
    return _draw(space, count)


def _draw(space: gym.Space[Any], count: int) -> Array:
    rows = np.stack([np.asarray(space.sample(), space.dtype) for _ in range(count)])
    if not isinstance(space, gym.spaces.Box):
        return rows
    # A Box with far bounds has samples of any size: these are drawn again, nearer to 0.
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    least = np.maximum(low, np.minimum(-_LARGEST, high - _LARGEST))
    most = np.minimum(high, np.maximum(_LARGEST, low + _LARGEST))
    nearer = space.np_random.uniform(least, most, rows.shape)
    drawn: Array = np.where((rows < least) | (rows > most), nearer, rows).astype(rows.dtype)
    return drawn


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        return {name: _joined(part, other[name]) for name, part in one.items()}
    return np.concatenate([one, other])


def _different(why: str) -> ExportError:
    error = ExportError(
        "the exported policy differs from the policy, and was not written",
        why,
        "the other format, --to torch-export or --to onnx; --no-bf16 when training",
    )
    error.run_failed = True
    return error
