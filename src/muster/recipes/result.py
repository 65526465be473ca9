"""What a finished run has to show."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class RunResult:
    """The end of a run: `result.json`, and the policy itself.

    `rho`, `eta`, `limited_by` and `speed` say how close to the machine's limit it ran. They are
    measured in runs whose workers learn in step; elsewhere, and where it could not be measured,
    they are None.
    """

    algo: str
    env: str
    seed: int
    workers: int
    env_steps: int
    train_iter: int
    seconds: float
    """Of training in this process, evaluations included."""
    env_steps_per_s: float
    eval_return_mean: float | None
    eval_return_std: float | None
    eval_episodes: int
    policy_sha256: str
    stopped_by: str
    """`target`, `steps`, `time` or `signal`."""
    run_dir: Path
    policy: Any = field(repr=False)
    """Acts: `policy.act(obs)` for a batch of observations."""
    rho: float | None = None
    """Trained steps/s, of those that the bare environments make on the same cores."""
    eta: float | None = None
    """Trained steps/s, of those that the same cores could make at the most (`workers.limits`)."""
    limited_by: str | None = None
    """What took most of the time: `env`, `act`, `learn`, `exchange` or `rest`."""
    speed: dict[str, Any] | None = field(default=None, repr=False)
    """The numbers behind these three, of the first worker's training alone."""
    backend: str = "auto"
    """What ran the environments: `gymnasium` or `envpool`."""
    stop_signal: int | None = None
    """The signal that asked the run to end, if one did."""
    replacements: int = 0
    """How often a node was replaced, because it had died or hung."""

    workers_range: tuple[int, int] | None = None
    """The least and the most processes that were asked for; `workers` is how many there were at the
    end. None where one number was."""

    def curve(self) -> "dict[str, NDArray[Any]]":
        """Return the learning curve: one array for each column of `metrics.jsonl`, line by line.

        `curve["env_step"]` and `curve["eval/return"]` are as long as each other; a metric is NaN at
        lines that do not have it. `pandas.DataFrame(result.curve())` is the same as a table.

        Raises:
            OSError: The file is gone, or cannot be read.
        """
        from muster.run.curves import read_curves

        return read_curves(self.run_dir / "metrics.jsonl").columns()

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "RunResult | None":
        """Return the result that was written to `result.json`, without its policy.

        None if it is not such a result: the file may be of another version, or of anybody.
        """
        try:
            return cls(**{**saved, "run_dir": Path(saved["run_dir"]), "policy": None})
        except (KeyError, TypeError):
            return None

    def as_json(self) -> dict[str, Any]:
        """Return the content of `result.json`."""
        shown = {name: value for name, value in self.__dict__.items() if name != "policy"}
        return {**shown, "run_dir": str(self.run_dir)}
