"""`bench`: train for some seconds, and report how close to the machine's limit that was.

    options -> train in a temporary directory -> RunResult.speed -> BenchReport

The advice follows from the numbers alone (`advice`).
"""

import tempfile
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from muster.container import whole_cores
from muster.errors import MusterError, MusterWarning, OptionError
from muster.recipes.algorithms import check_algorithm, load_algorithm
from muster.recipes.options import MOST_ENVS
from muster.recipes.result import RunResult
from muster.recipes.settings import Settings, resolve

_UNENDING = 10**15
_ATTEMPTS, _OVERRUN = 3, 1.5
"""The maximum number of attempts, and the factor by which an attempt may exceed the given time. The
first attempt may compile the code that acts, the second the code that learns."""
_BUSY = 0.15
_FEW_ENVS = 16
"""With fewer environments per worker, calls cost more than the computation inside them."""


@dataclass(frozen=True)
class BenchReport:
    """The measurements. Rates are environment steps per second of all workers together."""

    algo: str
    env: str
    workers: int
    """Processes; 0 if one process does everything."""
    num_envs: int
    """Number of environments of all workers together."""
    env_steps: int
    """Environment steps trained."""
    steps_per_s: float
    """Rate of training alone, without its first loop, which compiles."""
    bare_steps_per_s: float
    """Rate of the environments with random actions, on the same cores."""
    bound_steps_per_s: float
    """The highest rate at which these cores could train (see `muster.workers.limits`)."""
    rho: float
    """steps_per_s / bare_steps_per_s"""
    eta: float
    """steps_per_s / bound_steps_per_s"""
    split: dict[str, float]
    """How the first worker spent its time, as fractions of 1."""
    limited_by: str
    """The largest part of `split`."""
    advice: str | None
    """An obvious improvement; None if there is none."""
    details: dict[str, Any]
    """The numbers behind the bound."""
    stop_signal: int | None = None
    """The signal that ended the bench early, such as Ctrl-C; the numbers are of the time before."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as plain values."""
        return asdict(self)


def bench(
    algo: str = "ppo", env: str = "CartPole-v1", seconds: float = 5.0, **options: Any
) -> BenchReport:
    """Train for some seconds, and return the measured and the possible speed.

    The trained policy is discarded. One episode is played at the end, as in every run.

    Args:
        algo: Name of the algorithm.
        env: Id of the environment.
        seconds: How long to train. A run that spent this time on compiling is repeated.
        **options: As for `train`, such as `workers`, `num_envs` or options of the algorithm.

    Raises:
        OptionError: An option is invalid.
        SystemExit: A signal ended the bench before anything was measured.
    """
    settings = check(algo, env, {"seconds": seconds, **options})
    from muster.recipes.train import train

    for _ in range(_ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
            run_dir = str(Path(directory) / "run")
            told = {**options, **_only_train(seconds), "run_dir": run_dir}
            with warnings.catch_warnings():
                # The score is not shown, and on a busy machine the episode may not end in time.
                warnings.filterwarnings("ignore", "no evaluation of", MusterWarning)
                result = train(algo, env, **told)
        if not _spent_on_compiling(result, seconds):
            break
    return _report(result, settings)


def _spent_on_compiling(result: RunResult, seconds: float) -> bool:
    """Whether a run far exceeded the given time before it had learnt twice."""
    is_warm = (result.speed or {}).get("warm", False)
    return not is_warm and result.stop_signal is None and result.seconds > _OVERRUN * seconds


def check(algo: str, env: str, options: dict[str, Any]) -> Settings:
    """Return the checked settings of a bench. Loads neither torch nor the environment."""
    load_algorithm(algo)
    check_algorithm(algo)
    settings = resolve(algo, env, options)
    if settings.options.device != "cpu":
        raise OptionError(
            f"device={settings.options.device} is not possible with muster bench",
            "a bench compares with the bound of the CPU's cores",
            f"muster doctor {env} --device {settings.options.device}, which compares devices",
        )
    return settings


def advice(report: BenchReport, slots: int | None, cores: int, busy_elsewhere: float) -> str | None:
    """Return one line that names an obvious way to make training faster, or None.

    Args:
        report: The measurements.
        slots: The maximum number of workers; None if workers have roles and are not all alike.
        cores: Cores that this process may use.
        busy_elsewhere: The fraction of the time in which other programs had the cores.
    """
    workers = max(1, report.workers)
    if slots is not None and workers > cores:
        return f"--workers {cores}: more processes than cores slow each other down"
    if busy_elsewhere >= _BUSY:
        share = f"{100 * busy_elsewhere:.0f} %"
        return f"other programs used the cores {share} of the time: measure again without them"
    if slots is not None and workers < min(cores, slots):
        return f"--workers {min(cores, slots)}: cores are idle"
    if slots is not None and slots % workers:
        even = -(-slots // workers) * workers
        envs = -(-report.num_envs // even) * even
        return f"--slots {even} --num-envs {envs}: workers have unequal shares of the slots"
    more = min(4 * report.num_envs, MOST_ENVS)
    if report.limited_by == "exchange":
        return f"--num-envs {more}: more work between two points where workers wait"
    few = report.num_envs / workers < _FEW_ENVS
    if few and report.limited_by in ("act", "rest"):
        return f"--num-envs {more}: more environments for each call"
    return None


def _only_train(seconds: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "env_steps": _UNENDING,
        "stop_at": None,
        "eval_every": 0,
        "eval_episodes": 1,
        "checkpoint_every": 0,
        "quiet": True,
    }


def _report(result: RunResult, settings: Settings) -> BenchReport:
    speed = dict(result.speed or {})
    if result.rho is None or result.eta is None or result.limited_by is None:
        if result.stop_signal is not None:  # the signal arrived before anything was measured
            raise SystemExit(128 + result.stop_signal)
        raise MusterError(
            f"{result.env} could not be measured",
            "its environments could not be made again, or rejected random actions",
            f"muster doctor {result.env}",
        )
    busy_elsewhere = speed["busy_elsewhere"]
    rates = {name: speed.pop(name) for name in list(speed) if name.endswith("steps_per_s")}
    found = BenchReport(
        algo=result.algo,
        env=result.env,
        workers=result.workers,
        num_envs=settings.options.num_envs,
        env_steps=result.env_steps,
        **rates,
        rho=result.rho,
        eta=result.eta,
        split=speed.pop("split"),
        limited_by=result.limited_by,
        advice=None,
        details=speed,
        stop_signal=result.stop_signal,
    )
    slots: int | None = getattr(settings.config, "slots", None)
    cores = whole_cores()
    return replace(found, advice=advice(found, slots, cores, busy_elsewhere))
