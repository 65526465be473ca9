"""`RunCosts`: what each part of a run costs on one core, in seconds and bytes. No measuring here.

env, act    one call for `rows` environments:    call + row * rows
learn       one update of `rows` samples:        call + row * rows
rest        everything else of one loop of `rows` environment steps
"""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from muster.errors import OptionError

FORMAT = 1
"""Version of the file."""
LEAST_S = 1e-12
"""Seconds of what costs nothing, so that no rate is infinite."""


@dataclass(frozen=True)
class Affine:
    """A cost with a constant part: small calls cost more for each row."""

    call: float = 0.0
    """Seconds of a call, for any number of rows."""
    row: float = 0.0
    """Seconds of each row."""

    def of(self, rows: float) -> float:
        """Return the seconds of a call for this many rows."""
        return self.call + self.row * rows

    def faster(self, times: float) -> "Affine":
        """Return the cost where everything runs `times` as fast."""
        return Affine(self.call / times, self.row / times)

    @classmethod
    def through(cls, rows: float, seconds: float, more: float, longer: float) -> "Affine":
        """Return the line through two measurements, without negative parts.

        The line always contains the first measurement. Where noise would make a part negative,
        that part is 0.

        Args:
            rows: Rows of the first measurement.
            seconds: Seconds of the first measurement.
            more: Rows of the second measurement, more than those of the first.
            longer: Seconds of the second measurement.
        """
        row = (longer - seconds) / (more - rows)
        row = min(max(row, 0.0), seconds / rows)
        return cls(max(0.0, seconds - row * rows), row)


@dataclass(frozen=True)
class RunCosts:
    """The costs of one algorithm on one environment, with one network."""

    algo: str
    env_id: str
    program: str
    """The training program of the algorithm: `in_step`, `replay`, `stream` or `gradients`."""
    network: dict[str, Any]
    """The options that determine the network: costs are valid for no other one."""
    env: Affine
    act: Affine
    learn: Affine
    rest: Affine
    send_s: float = 0.0
    """Seconds of an actor for each environment step, besides stepping and acting."""
    barrier_s: float = 0.0
    """Seconds until two workers of one machine know that both have arrived."""
    message_s: float = 0.0
    """Seconds of a process to send or receive one small message."""
    variance_per_s: float = 0.0
    """Variance of a worker's time, for each second of work."""
    sample_bytes: float = 0.0
    """Bytes of one environment step that an actor sends."""
    weight_bytes: float = 0.0
    """Bytes of the weights, and of a gradient."""
    copy_bytes_per_s: float = math.inf
    """Rate of adding gradients of slots."""
    learnt: float = 1.0
    """The fraction of the configured updates that were made: `--target-kl` skips some."""
    slots: int = 1
    """The number of slots for which `learn` was measured."""
    measured: dict[str, Any] = field(default_factory=dict)
    """The measurement behind these costs: workers, num_envs, steps_per_s, cores, ..."""

    def with_faster_learning(self, times: float) -> "RunCosts":
        """Return the costs where gradients and updates run `times` as fast, as on a GPU."""
        return replace(self, learn=self.learn.faster(times))

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a file."""
        plain = asdict(self)
        if math.isinf(self.copy_bytes_per_s):
            plain["copy_bytes_per_s"] = None
        return {"format": FORMAT, **plain}

    @classmethod
    def from_json(cls, saved: Any) -> "RunCosts":
        """Return the costs that `as_json` returned.

        Raises:
            OptionError: It is something else, or a value is not possible.
        """
        if not isinstance(saved, dict) or saved.get("format") != FORMAT:
            raise _damaged(f"it has no format {FORMAT}")
        known = {each.name: each for each in fields(cls)}
        absent = [name for name in known if name not in saved]
        extra = [name for name in saved if name not in known and name != "format"]
        if absent or extra:
            raise _damaged(f"{'it lacks' if absent else 'it has'} {(absent or extra)[0]!r:.80}")
        values = {name: _value(name, saved[name]) for name in known}
        return cls(**values)


_TEXTS = ("algo", "env_id", "program")
_LINES = ("env", "act", "learn", "rest")


def _value(name: str, value: Any) -> Any:
    """Return one value of a file as its field holds it."""
    if name in _TEXTS:
        fits = isinstance(value, str)
    elif name in ("network", "measured"):
        fits = isinstance(value, dict)
    elif name in _LINES:
        fits = isinstance(value, dict) and value.keys() == {"call", "row"}
        fits = fits and all(map(_is_amount, value.values()))
        value = Affine(**value) if fits else value
    elif name == "slots":
        fits = isinstance(value, int) and not isinstance(value, bool) and value > 0
    elif name == "copy_bytes_per_s" and value is None:
        return math.inf
    else:
        above_0 = name in ("copy_bytes_per_s", "learnt")
        fits = _is_amount(value) and (value > 0 or not above_0)
    if not fits:
        raise _damaged(f"{name} is {value!r:.60}")
    return value


def _is_amount(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < math.inf


def _damaged(why: str) -> OptionError:
    return OptionError(
        "this is not a calibration", why, "muster plan ppo CartPole-v1 --save-calibration FILE"
    )
