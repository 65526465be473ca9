"""What every fault is tried on: checkpoints whose content follows from a number, and a verdict.

`parts_of(save)` is the whole state of the save with that number; `which(store)` loads what a store
gives and says which save it is, bit for bit, or that it is none.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from muster.run import Checkpoint, CheckpointError, CheckpointStore

META = {"algo": "dqn", "env_id": "CartPole-v1", "config": {"lr": 1e-3, "hidden": [64, 64]}}


def parts_of(save: int, size: int = 20_000) -> dict[str, Any]:
    """Return the state of one save: every value and array in it depends on the number."""
    rng = np.random.default_rng(save)
    return {
        "policy": {
            "weights": rng.standard_normal(size // 8).astype(np.float32),
            "bias": rng.standard_normal((4, 3)),
            "name": f"save {save}",
        },
        "optimizer": {"m": rng.standard_normal(size // 16), "step": save, "eps": [float("inf")]},
        "replay": {"obs": rng.integers(0, 256, size, dtype=np.uint8), "full": save % 2 == 1},
        "rng": rng.bit_generator.state,
    }


def counters_of(save: int) -> dict[str, Any]:
    """Return the counters of one save."""
    return {"save": save, "env_step": save * 10}


def save_number(
    store: CheckpointStore, save: int, step: int | None = None, size: int = 20_000
) -> Path:
    """Save the state of that number, under the step that is given or ten times the number."""
    place = save * 10 if step is None else step
    return store.save(place, parts_of(save, size), counters_of(save), META)


def equal(one: Any, other: Any) -> bool:
    """Whether two trees are the same in every type and every bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, np.ndarray):
        kinds = (one.dtype, one.shape) == (other.dtype, other.shape)
        return kinds and one.tobytes() == bytes(other.tobytes())
    return bool(one == other)


def is_save(checkpoint: Checkpoint, save: int, size: int = 20_000) -> bool:
    """Whether a loaded checkpoint is exactly the save of that number."""
    return (
        equal(checkpoint.parts, parts_of(save, size))
        and equal(checkpoint.counters, counters_of(save))
        and equal(checkpoint.meta, META)
    )


def which(store: CheckpointStore, size: int = 20_000) -> int | str:
    """Load what `last` points at; return the number of the save that it is, or what went wrong."""
    try:
        checkpoint = store.load()
    except CheckpointError as error:
        return f"refused: {error.args[0]}"
    save = checkpoint.counters.get("save")
    if isinstance(save, int) and is_save(checkpoint, save, size):
        return save
    return "accepted, but it is none of the saves"


@dataclass
class Tally:
    """Counts what came of the trials of one fault, and writes a line for each."""

    fault: str
    trials: Path | None = None
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def add(self, outcome: str, ok: bool, **details: Any) -> None:
        """Note one trial; `ok` says whether its outcome is one that is allowed."""
        self.counts["trials"] += 1
        self.counts[outcome] += 1
        if not ok:
            self.counts["violations"] += 1
            self.bad.append({"outcome": outcome, **details})
        if self.trials is not None:
            line = {"fault": self.fault, "outcome": outcome, "ok": ok, **details}
            with open(self.trials, "a") as file:
                file.write(json.dumps(line, default=str) + "\n")

    def report(self) -> dict[str, Any]:
        """Return the summary."""
        trials = self.counts["trials"]
        return {
            "trials": trials,
            "violations": self.counts["violations"],
            "zero_bound_95": round(3 / trials, 5) if trials else None,
            "outcomes": {
                name: count
                for name, count in sorted(self.counts.items())
                if name not in ("trials", "violations")
            },
            **self.figures,
            "examples_of_violations": self.bad[:5],
            "seconds": round(time.monotonic() - self.started, 1),
        }
