"""Resolves and checks options: given > config file > preset > default.

    given, file -> resolve -> TrainOptions, the algorithm's config    or an OptionError

Loads neither torch nor an environment: `muster train` needs only this module to report a mistake.
"""

import errno
import functools
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from muster.algos.base import Configuration
from muster.container import whole_cores
from muster.envs.procgen import is_procgen
from muster.errors import MusterError, OptionError
from muster.recipes.algorithms import configuration_of, unknown
from muster.recipes.models import check_model
from muster.recipes.options import TrainOptions
from muster.recipes.own_modules import is_code
from muster.recipes.presets import preset
from muster.recipes.worker_range import WorkerRange, about_range, elastic_range, range_of


@dataclass(frozen=True)
class Settings:
    """All settings of a run, checked."""

    options: TrainOptions
    """Options of every run."""
    config: Configuration
    """Options of the algorithm."""

    def value(self, name: str) -> Any:
        """Return the value of an option by its name."""
        return getattr(self.options if hasattr(self.options, name) else self.config, name)

    @property
    def on_nodes(self) -> bool:
        """Whether separate processes do the work, not this one."""
        return self.workers > 0 or (self.options.learners or 1) > 1

    @property
    def elastic(self) -> WorkerRange | None:
        """The range of the number of processes, if they may join and leave during the run."""
        return elastic_range(self.options.workers, self.options.engine)

    @property
    def workers(self) -> int:
        """The maximum number of processes that train; 0 for this one alone."""
        given = self.options.workers
        if (asked := range_of(given)) is not None:
            return asked.high if self.elastic else asked.of_this_machine
        if isinstance(given, int):
            return given
        if self.options.learners is not None and self.config.PROGRAM == "in_step":
            return self.options.learners
        return self.config.default_workers(whole_cores())


@functools.cache
def all_options(algo: str) -> type:
    """Return a flat dataclass of all options of an algorithm, without any checks.

    Options are checked when all of them are known: a file may contain `resume`, and the command
    line the directory.
    """
    bases = (TrainOptions, configuration_of(algo))
    unchecked = {"__post_init__": lambda self: None, "__doc__": bases[1].__doc__}
    return make_dataclass("Options", [], bases=bases, namespace=unchecked, frozen=True)


def resolve(
    algo: str,
    env: str,
    given: Mapping[str, Any],
    file: str | Path | None = None,
    base: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of a run.

    Args:
        algo: Name of the algorithm.
        env: Id of the environment.
        given: Options from the user, which take precedence.
        file: A file of options, such as the `config.yaml` of a run directory.
        base: Values of options that neither contains; None for the preset. An option that is
            missing here too has its default.

    Raises:
        OptionError: An option is unknown or invalid, or contradicts another.
    """
    known = {field.name for field in fields(all_options(algo))}
    for name in given:
        if name not in known:
            raise unknown("option", name, known, "{}=...")
    before = preset(algo, env) if base is None else base
    found = {**before, **({} if file is None else read_file(file, algo, env)), **given}
    common = {field.name for field in fields(TrainOptions)}
    options = TrainOptions(**{k: v for k, v in found.items() if k in common})
    config = configuration_of(algo)(**{k: v for k, v in found.items() if k not in common})
    settings = Settings(options, config)
    _check_range(algo, settings)
    _check_learners(algo, config.PROGRAM, options)
    _check_workers(settings)
    check_model(config.model)
    return settings


def plain_value(value: Any) -> Any:
    """Convert paths and devices to text, and NumPy numbers (as in sweeps) to Python numbers."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "torch":  # torch.device
        return str(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _check_workers(settings: Settings) -> None:
    """Check the number of processes against other options; for a range, check both ends."""
    options, config = settings.options, settings.config
    asked = range_of(options.workers)
    if asked is None:
        in_step = config.PROGRAM == "in_step" and options.learners is not None
        known = in_step or options.workers is not None
        config.check_run(settings.workers if known else None, options.num_envs)
        return
    for workers in (asked.low, settings.workers):
        try:
            config.check_run(workers, options.num_envs)
        except OptionError as error:
            raise about_range(error, asked, workers) from None


def _check_range(algo: str, settings: Settings) -> None:
    """Raise OptionError if processes may join and leave, but the algorithm works in step."""
    asked = settings.elastic
    if asked is not None and settings.config.PROGRAM == "in_step":
        given = settings.options.workers
        raise OptionError(
            f"workers={given} is not possible with {algo} and engine={settings.options.engine}",
            "its workers run in step: their number is fixed at the start, and changes no result",
            f"workers={asked.high}",
        )


def _check_learners(algo: str, program: str, options: TrainOptions) -> None:
    """Check the number of learners against the algorithm's program and the workers."""
    learners, workers = options.learners, options.workers
    if learners is None:
        return
    if program == "gradients":
        raise OptionError(
            f"learners={learners} is not possible with {algo}",
            "each of its workers computes gradients independently of the others",
            f"workers={learners + 2}",
        )
    if program != "in_step" or workers is None:
        return
    if isinstance(workers, str) or max(1, workers) != learners:
        raise OptionError(
            f"learners={learners} and workers={workers} contradict each other with {algo}",
            "every worker is a learner",
            f"learners={learners if isinstance(workers, str) else max(1, workers)}",
        )


def _open_unless_it_waits(path: str, flags: int) -> int:
    """Open a file without waiting: a named pipe without a writer reads as empty."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(fd, True)
    return fd


def read_file(path: str | Path, algo: str, env: str) -> dict[str, Any]:
    """Return the options in a file, with their types checked but not yet their values.

    Raises:
        OptionError: The file cannot be read, or is for another run; the message names file and key.
    """
    from muster.recipes.saved import HISTORY
    from muster.run.config_io import from_dict
    from muster.run.yaml_text import MAX_TEXT, load

    try:
        with open(path, encoding="utf-8", opener=_open_unless_it_waits) as file:
            text = file.read(MAX_TEXT + 1)
            if not text and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EPIPE, "no process writes to this pipe")
            data = load(text)
        data.pop(HISTORY, None)
        for key, here in (("algo", algo), ("env", env)):
            there = data.pop(key, here)
            if there != here:
                raise OptionError(
                    f"it is for {key} {there!r:.80}",
                    f"this run is for {here!r}",
                    f"muster train with {key} {there!r:.80}, or take the key out of the file",
                )
        flat = all_options(algo)
        names = {field.name for field in fields(flat)}
        for key in data:
            if key not in names:
                raise unknown("option", key, names, "{}: ...")
        typed: Any = from_dict(data, flat)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise _about_file(path, error) from error
    found = {key: getattr(typed, key) for key in data}
    for key in ("use", "wrapper"):
        if found.get(key):
            raise OptionError(
                f"{str(path)!r:.120}: {key} names {found[key][0]!r:.80}, which is code",
                "a file can come from anyone, so it must not choose the code that runs",
                f"take the key out of the file, and give --{key} {' '.join(found[key]):.80}",
            )
    for key, kind in (("model", "model"), ("eval_env", "environment")):
        if is_code(found.get(key)) and not is_procgen(found[key]):
            raise OptionError(
                f"{str(path)!r:.120}: the {kind} {found[key]!r:.80} is code",
                "a file can come from anyone, so it must not choose the code that runs",
                f"take the key out of the file, and give --{key.replace('_', '-')} "
                f"{found[key]:.80}",
            )
    return found


def _about_file(path: str | Path, error: Exception) -> OptionError:
    name = f"{str(path)!r:.120}"
    if isinstance(error, MusterError):
        what, why, fix = error.args
        first, *items = fix.splitlines()
        if items:  # a list, which can be shown on one line
            first += f" [{', '.join(item.lstrip('- ') for item in items)}]"
        return OptionError(f"{name}: {what}", why, first)
    if isinstance(error, OSError):
        return OptionError(
            f"{name} cannot be read", error.strerror or str(error), "--config runs/.../config.yaml"
        )
    return OptionError(f"{name} cannot be read", str(error), "a text file of key: value lines")
