"""`RunShape`: the sizes of a run's loop, which its settings determine. Measures nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from muster.recipes.settings import Settings

ROLES_APART = 2
"""The learner and the evaluator, which `--workers` counts besides actors."""
_FRAGMENT_STEPS = 8
"""Vector steps that an actor of a replay program sends at once, if there are several actors."""


@dataclass(frozen=True)
class RunShape:
    """The sizes of a run."""

    program: str
    """`in_step`, `replay`, `stream` or `gradients`."""
    num_envs: int
    """Environments: of all workers if they work in step, else of each actor."""
    steps: int
    """Steps of each environment in a rollout, a fragment or an unroll."""
    rows: int
    """Samples of one update."""
    samples_per_step: float
    """Samples that updates take for each environment step."""
    slots: int = 1
    """Shares of a rollout: workers in step have whole slots."""
    learner_slots: int = 1
    """Shares of a batch: learners have whole shares."""
    shards: int = 0
    """Nodes that hold replay."""
    in_flight: Callable[[int], int] = lambda actors: 2
    """Maps the number of actors to the fragments of each that are begun and not learnt from."""

    @property
    def in_step(self) -> bool:
        """Whether all workers do the same work and wait for each other."""
        return self.program == "in_step"

    @property
    def updates_per_step(self) -> float:
        """Updates for each environment step."""
        return self.samples_per_step / self.rows

    @property
    def apart(self) -> int:
        """Processes of `--workers` that neither act nor work in step."""
        return 0 if self.in_step else ROLES_APART + self.shards

    def grown(self, workers: int) -> "RunShape":
        """Return the run in which each worker brings as many environments and slots as one has."""
        if not self.in_step:
            return self
        return replace(
            self,
            num_envs=self.num_envs * workers,
            slots=self.slots * workers,
            rows=self.rows * workers,
        )


def shape_of(settings: Settings) -> RunShape:
    """Return the sizes of a run with these settings."""
    cfg: Any = settings.config
    options = settings.options
    envs = options.num_envs
    rows = cfg.rows_of_update(envs)
    common = {"program": cfg.PROGRAM, "num_envs": envs, "rows": rows}
    shares = options.learner_slots if (options.learners or 1) > 1 else 1
    if cfg.PROGRAM == "in_step":
        epochs, _ = cfg.passes()
        return RunShape(**common, steps=cfg.rollout, samples_per_step=epochs, slots=cfg.slots)
    if cfg.PROGRAM == "stream":
        return RunShape(
            **common,
            steps=cfg.unroll,
            samples_per_step=1.0,
            learner_slots=shares,
            in_flight=cfg.in_flight,
        )
    if cfg.PROGRAM == "gradients":
        return RunShape(
            **common, steps=cfg.rollout, samples_per_step=1.0, in_flight=lambda actors: 1
        )
    return RunShape(
        **common,
        steps=_FRAGMENT_STEPS,
        samples_per_step=float(rows * cfg.updates_per_step_exactly()),
        learner_slots=shares,
        shards=cfg.replay_shards,
    )
