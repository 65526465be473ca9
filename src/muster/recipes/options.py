"""What every training run can be told, whatever the algorithm."""

import math
from dataclasses import dataclass

from muster.errors import OptionError


@dataclass(frozen=True)
class TrainOptions:
    """Options of `muster train` that all algorithms share."""

    env_steps: int | None = None
    """Environment steps to train for, in all. Default: the algorithm's horizon."""
    stop_at: float | None = None
    """Stop when the mean return of an evaluation is this or more."""
    seconds: float | None = None
    """Stop after so many seconds."""
    seed: int = 0
    """Decides everything random. The same seed gives the same policy."""
    num_envs: int = 1
    """Environments that step together."""
    run_dir: str | None = None
    """Directory of the run. Default: a new one under runs/."""
    resume: bool = False
    """Go on with the run in --run-dir; --env-steps is then the new total."""
    from_checkpoint: str | None = None
    """Start with the policy of this run or checkpoint, and everything else new."""
    eval_every: int = 5_000
    """Environment steps from one evaluation to the next; 0 for only at the end."""
    eval_episodes: int = 100
    """Greedy episodes in each evaluation."""
    checkpoint_every: int = 10_000
    """Environment steps from one checkpoint to the next; 0 for only at the end."""
    save_replay: bool = True
    """Keep the replay buffer in checkpoints: only then is a resumed run exactly the same."""
    quiet: bool = False
    """Say nothing but the result."""

    def __post_init__(self) -> None:
        for name in ("env_steps", "num_envs", "eval_episodes"):
            _check_count(name, getattr(self, name), 1)
        for name in ("eval_every", "checkpoint_every", "seed"):
            _check_count(name, getattr(self, name), 0)
        for name in ("stop_at", "seconds"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise _impossible(name, value, "it is a number")
        if self.seconds is not None and self.seconds <= 0:
            raise _impossible("seconds", self.seconds, "there would be no time to train")
        if self.resume and self.run_dir is None:
            raise OptionError(
                "--resume does not say which run",
                "a run that is gone on with is given by its directory",
                "--resume --run-dir runs/<env>/<algo>/<date-time>-<seed>",
            )
        if self.resume and self.from_checkpoint is not None:
            raise OptionError(
                "--resume and --from-checkpoint cannot be used together",
                "one goes on with a run, the other starts a new one",
                "--resume --run-dir ..., or --from-checkpoint ...",
            )


def _check_count(name: str, value: int | None, at_least: int) -> None:
    if value is not None and (isinstance(value, bool) or value < at_least):
        raise _impossible(name, value, f"it is a whole number, {at_least} or more")


def _impossible(name: str, value: object, why: str) -> OptionError:
    option = name.replace("_", "-")
    return OptionError(f"--{option} {value} is not possible", why, "muster train --help")
