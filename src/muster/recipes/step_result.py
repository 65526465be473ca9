"""`StepResult`: what one `Trainer.step()` did, on one line or as a small table."""

from dataclasses import dataclass, field

from muster.columns import as_html, short_number
from muster.recipes.gate import Arrived

_LOSSES = "train/"


@dataclass(frozen=True)
class StepResult:
    """One iteration of a training run."""

    env_step: int
    """Environment steps of the run so far."""
    train_iter: int
    """Updates of the run so far."""
    episodes: int
    """Training episodes that ended in this iteration."""
    return_mean: float | None
    """Mean return of these episodes; None if none ended."""
    length_mean: float | None
    """Mean length of these episodes; None if none ended."""
    return_100: float | None
    """Mean return of the last 100 training episodes of the run."""
    eval_return: float | None
    """Mean return of the evaluation in this iteration; None if there was none."""
    seconds: float
    """Duration of this iteration, evaluations included; of the first one with the start."""
    is_last: bool
    """Whether the run has ended: a limit or the target is reached, or a hook has stopped it."""
    metrics: dict[str, float] = field(default_factory=dict, repr=False)
    """All metrics of this iteration by name, as in `metrics.jsonl`."""

    @classmethod
    def of(cls, report: Arrived, seconds: float) -> "StepResult":
        """Return the result of an iteration."""
        metrics = report.metrics
        return cls(
            env_step=report.env_step,
            train_iter=report.train_iter,
            episodes=int(metrics.get("collect/episodes", 0)),
            return_mean=metrics.get("collect/return"),
            length_mean=metrics.get("collect/length"),
            return_100=metrics.get("collect/return_100"),
            eval_return=report.eval_return,
            seconds=seconds,
            is_last=report.is_last,
            metrics=metrics,
        )

    @property
    def losses(self) -> dict[str, float]:
        """The metrics of learning, such as losses and entropy, by their short names."""
        found = self.metrics.items()
        return {k.removeprefix(_LOSSES): v for k, v in found if k.startswith(_LOSSES)}

    def __str__(self) -> str:
        return "  ".join(f"{name} {value}" for name, value in self._pairs())

    def __repr__(self) -> str:
        return f"<StepResult {self}>"

    def _repr_html_(self) -> str:
        """Return the result as a short table, for a notebook."""
        return as_html(self._pairs())

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = [("steps", f"{self.env_step:,}"), ("updates", f"{self.train_iter:,}")]
        if self.return_mean is not None:
            pairs.append(("return", f"{self.return_mean:.1f} ({self.episodes} episodes)"))
        if self.eval_return is not None:
            pairs.append(("eval", f"{self.eval_return:.1f}"))
        named = {name for name, _ in pairs}
        rest = [(name, value) for name, value in self.losses.items() if name not in named]
        return pairs + [(name, short_number(value)) for name, value in rest]
