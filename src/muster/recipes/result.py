"""`RunResult`: the result of a finished run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.columns import as_html, as_text
from muster.shown import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class RunResult:
    """The result of a run: `result.json`, and the policy itself.

    `rho`, `eta`, `limited_by` and `speed` tell how close to the machine's limit the run was. They
    are None if they could not be measured.
    """

    algo: str
    env: str
    seed: int
    workers: int
    env_steps: int
    train_iter: int
    seconds: float
    """Seconds of training in this process, evaluations included."""
    env_steps_per_s: float
    eval_return_mean: float | None
    eval_return_std: float | None
    eval_episodes: int
    policy_sha256: str
    stopped_by: str
    """`target`, `steps`, `time`, `episodes`, `hook` or `signal`; `closed` if a `Trainer` was closed
    before a limit was reached."""
    run_dir: Path
    policy: Any = field(repr=False)
    """The trained policy: `policy.act(obs)` for a batch of observations."""
    rho: float | None = None
    """Trained steps/s, relative to those of the bare environments on the same cores."""
    eta: float | None = None
    """Trained steps/s, relative to the maximum of the same cores (`workers.limits`)."""
    limited_by: str | None = None
    """The part that took most of the time: `env`, `act`, `learn`, `exchange` or `rest`."""
    speed: dict[str, Any] | None = field(default=None, repr=False)
    """The numbers behind these three, for the training of the first worker alone."""
    backend: str = "auto"
    """The library that ran the environments: `gymnasium` or `envpool`."""
    stop_signal: int | None = None
    """The signal that asked the run to end, if one did."""
    replacements: int = 0
    """Number of node replacements, after a node had died or hung."""

    workers_range: tuple[int, int] | None = None
    """The minimum and maximum number of processes that were requested; `workers` is their number at
    the end. None if the request was a single number."""

    def curve(self) -> "dict[str, NDArray[Any]]":
        """Return the learning curve: one array for each column of `metrics.jsonl`, line by line.

        `curve["env_step"]` and `curve["eval/return"]` have the same length; a metric is NaN on
        lines that do not have it. `pandas.DataFrame(result.curve())` makes a table of it.

        Raises:
            OSError: The file does not exist, or cannot be read.
        """
        from muster.run.curves import read_curves

        return read_curves(self.run_dir / "metrics.jsonl").columns()

    def __str__(self) -> str:
        return as_text(self._rows())

    def _repr_html_(self) -> str:
        """Return the result as a short table, for a notebook."""
        return as_html(self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        returns = "not evaluated"
        if self.eval_return_mean is not None:
            spread = "" if self.eval_return_std is None else f" +- {self.eval_return_std:.1f}"
            returns = f"{self.eval_return_mean:.1f}{spread}, {self.eval_episodes} episodes"
        return [
            ("run", f"{self.algo} on {self.env}, seed {self.seed}, {self.workers} workers"),
            ("steps", f"{self.env_steps:,}, {self.train_iter:,} updates"),
            ("time", f"{self.seconds:.1f} s, {self.env_steps_per_s:,.0f} steps/s"),
            ("return", returns),
            ("stopped by", self.stopped_by),
            ("directory", shown(self.run_dir)),
        ]

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "RunResult | None":
        """Return the result that was written to `result.json`, without its policy.

        None if it is not such a result: another version, or anyone, may have written the file.
        """
        try:
            return cls(**{**saved, "run_dir": Path(saved["run_dir"]), "policy": None})
        except (KeyError, TypeError):
            return None

    def as_json(self) -> dict[str, Any]:
        """Return the content of `result.json`."""
        saved = {name: value for name, value in self.__dict__.items() if name != "policy"}
        return {**saved, "run_dir": str(self.run_dir)}
