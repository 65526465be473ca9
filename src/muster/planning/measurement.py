"""`Measurement`: the numbers of a run that its costs are derived from.

BenchReport (a short run now), or a finished run directory -> Measurement
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.errors import OptionError

if TYPE_CHECKING:
    from muster.recipes.bench import BenchReport

PARTS = ("env", "act", "learn", "exchange", "rest")


@dataclass(frozen=True)
class Measurement:
    """How fast a run trained, and how its first worker or its learner spent the time."""

    workers: int
    """Processes; 0 if one process did everything."""
    num_envs: int
    steps_per_s: float
    """Environment steps/s of all workers together."""
    split: Mapping[str, float]
    """Fractions of the time by activity."""
    samples_per_step: float
    """Samples that updates took for each environment step."""
    spread: float
    """Relative standard deviation of the time of a loop."""
    cores: int
    """Cores that the run used."""
    busy_elsewhere: float
    """The fraction of the time in which other programs had the first worker's core."""
    sample_bytes: float
    weight_bytes: float
    copy_bytes_per_s: float
    bare_env_s: float
    """Seconds of a bare environment step."""
    bare_act_s: float
    """Seconds of the network's products for one observation."""

    def seconds(self, part: str) -> float:
        """Return the seconds of an activity, for each environment step of the run."""
        return self.split[part] / self.steps_per_s

    def shown(self) -> dict[str, Any]:
        """Return what a calibration tells about its origin."""
        return {
            "workers": self.workers,
            "num_envs": self.num_envs,
            "steps_per_s": self.steps_per_s,
            "split": dict(self.split),
            "busy_elsewhere": self.busy_elsewhere,
        }

    @classmethod
    def of_report(cls, report: "BenchReport") -> "Measurement":
        """Return the numbers of a bench."""
        speed = {"steps_per_s": report.steps_per_s, "split": report.split, **report.details}
        return cls._of_speed(report.workers, report.num_envs, speed)

    @classmethod
    def of_result(cls, result: Mapping[str, Any], num_envs: int) -> "Measurement":
        """Return the numbers of a run's `result.json`.

        Raises:
            OptionError: The run was not measured, or something else wrote the file.
        """
        try:
            return cls._of_speed(int(result["workers"]), num_envs, result["speed"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise OptionError(
                "the run's result.json does not say how its time was spent",
                "the run ended before anything was measured, or muster did not write the file",
                "muster plan without --from-run, which measures here",
            ) from None

    @classmethod
    def _of_speed(cls, workers: int, num_envs: int, speed: Mapping[str, Any]) -> "Measurement":
        samples = float(speed["epochs"])
        row_bytes = float(speed["row_bytes"])
        split = {part: float(speed["split"][part]) for part in PARTS}
        rate = float(speed["steps_per_s"])
        if not rate > 0 or min(split.values()) < 0 or not sum(split.values()) > 0:
            raise ValueError(rate, split)
        # Runs of earlier versions lack the last two: batches hold two observations of each sample,
        # and a network of Linear layers has two FLOPs for each weight of four bytes.
        return cls(
            workers=workers,
            num_envs=num_envs,
            steps_per_s=rate,
            split=split,
            samples_per_step=samples,
            spread=float(speed.get("loop_spread", 0.0)),
            cores=int(speed["cores"]),
            busy_elsewhere=float(speed["busy_elsewhere"]),
            sample_bytes=float(speed.get("sent_bytes", row_bytes / (1 + 2 * samples))),
            weight_bytes=float(speed.get("weight_bytes") or 2 * speed["flops"]),
            copy_bytes_per_s=float(speed["copy_bytes_per_s"]),
            bare_env_s=float(speed["env_step_s"]),
            bare_act_s=speed["flops"] / speed["gemm_flops_per_s"] if speed["flops"] else 0.0,
        )
