"""The settings of a resumed run: its own, with the options of the command as changes.

    config.yaml of the run + given options -> Resumption: settings, changes    or an OptionError

Seed, network, environments and slots cannot change: another value raises OptionError here, before
anything is written. All other changes are printed on one line and kept under `history` in
`config.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.errors import OptionError
from muster.recipes.algorithms import check_algorithm, refuse_algorithm_of_a_file
from muster.recipes.env_options import WRAPPERS
from muster.recipes.hooks import HOOKS
from muster.recipes.models import refuse_code_of_a_file
from muster.recipes.own_modules import is_code
from muster.recipes.saved import HISTORY, refuse_env_of_a_file, saved_config
from muster.recipes.settings import Settings, all_options, read_file, resolve
from muster.run import RunDirectory, RunDirectoryError
from muster.run.config_io import from_dict
from muster.shown import shown

OF_THE_COMMAND = ("run_dir", "resume", "quiet", "from_checkpoint")
"""Options that belong to one command, not to the run."""
_WIDTH = 80 - len("muster: ")


@dataclass(frozen=True)
class SavedRun:
    """The content of a run's `config.yaml`."""

    path: Path
    algo: str
    env: str
    options: dict[str, Any]
    """Options by name; missing ones have their default."""
    history: list[Any]
    """The changes of earlier resumes."""
    from_checkpoint: Any
    """The source of its first policy, for the record."""


@dataclass(frozen=True)
class Resumption:
    """How a run is resumed."""

    saved: SavedRun
    settings: Settings
    changes: dict[str, tuple[Any, Any]]
    """For each changed option, its old and its new value."""

    def history(self, env_step: int) -> list[Any]:
        """Return the changes of all resumes, including this one, made at a step."""
        if not self.changes:
            return self.saved.history
        changed = {name: {"from": old, "to": new} for name, (old, new) in self.changes.items()}
        return [*self.saved.history, {"env_step": env_step, "changed": changed}]

    def lines(self, env_step: int) -> list[str]:
        """Return the message on the settings: one line, unless that is too long for a terminal."""
        at = f"{shown(self.saved.path)} resumes at step {env_step:,} with"
        if not self.changes:
            return [f"{at} its own settings"]
        told = [f"{k} {_told(a)} -> {_told(b)}" for k, (a, b) in self.changes.items()]
        line = f"{at} {', '.join(told)}"
        return [line] if len(line) <= _WIDTH else [at, *(f"  {change}" for change in told)]


def _told(value: object) -> str:
    return "not set" if value is None else repr(value)


def saved_run(path: str | Path) -> SavedRun:
    """Read the settings of a run.

    Args:
        path: The run directory, or a checkpoint in it.

    Raises:
        RunDirectoryError: There is no run.
        OptionError: muster did not write its `config.yaml`.
    """
    run = RunDirectory.open(path)
    return run_of_config(saved_config(run), run.path)


def run_of_config(data: dict[str, Any], path: Path) -> SavedRun:
    """Return the settings of a run from the content of its `config.yaml`.

    Args:
        data: The content.
        path: The directory of the run, which need not exist here.
    """
    algo, env, history = (data.pop(key, None) for key in ("algo", "env", HISTORY))
    if not isinstance(algo, str) or not isinstance(env, str):
        raise RunDirectoryError(
            f"{path / 'config.yaml'} names no algorithm and environment",
            "muster did not write the file, or the run was stopped before it began",
            "muster train ALGO ENV, which starts a new run",
        )
    refuse_algorithm_of_a_file(algo, path)
    check_algorithm(algo)
    typed: Any = from_dict(data, all_options(algo))
    options = {key: getattr(typed, key) for key in data if key not in OF_THE_COMMAND}
    history = history if isinstance(history, list) else []
    return SavedRun(path, algo, env, options, history, data.get("from_checkpoint"))


def plan_resume(
    algo: str | None,
    env: str | None,
    given: Mapping[str, Any],
    file: str | Path | None = None,
) -> Resumption:
    """Return how to resume the run in `given["run_dir"]`. Writes nothing.

    Args:
        algo: Name of the algorithm; None for the run's own.
        env: Id of the environment; None for the run's own.
        given: Options of the command.
        file: A file of options; those of the command take precedence.

    Raises:
        OptionError: An option is invalid, or cannot change.
    """
    path = given.get("run_dir")
    if not isinstance(path, str | Path):
        raise OptionError(
            "--resume needs a run",
            "the directory of a run says which one to resume",
            "muster resume runs/<env>/<algo>/<date-time>-<seed>",
        )
    return plan_with(saved_run(path), algo, env, given, file)


def plan_with(
    saved: SavedRun,
    algo: str | None,
    env: str | None,
    given: Mapping[str, Any],
    file: str | Path | None = None,
) -> Resumption:
    """Return how to resume a run whose settings are known. The arguments are of `plan_resume`."""
    _check_same(saved, algo, env)
    if env is None:
        refuse_env_of_a_file(saved.env, saved.path)
    told = {**({} if file is None else read_file(file, saved.algo, saved.env)), **given}
    _check_fixed(saved, told)
    refuse_code(saved, told)
    settings = resolve(saved.algo, saved.env, told, base=saved.options)
    before = resolve(saved.algo, saved.env, {}, base=saved.options)
    changes = {
        name: (before.value(name), settings.value(name))
        for name in told
        if name not in OF_THE_COMMAND and before.value(name) != settings.value(name)
    }
    return Resumption(saved, settings, changes)


def refuse_code(saved: SavedRun, told: Mapping[str, Any]) -> None:
    """Raise OptionError if the run's file names code that the caller does not name, too."""
    if is_code(saved.options.get("model")) and told.get("model") is None:
        refuse_code_of_a_file(saved.options["model"], saved.path)
    if told.get("use") is None:
        HOOKS.refuse_of_a_file(tuple(saved.options.get("use", ())), saved.path)
    if told.get("wrapper") is None:
        WRAPPERS.refuse_of_a_file(tuple(saved.options.get("wrapper", ())), saved.path)
    if told.get("eval_env") is None and saved.options.get("eval_env") is not None:
        refuse_env_of_a_file(saved.options["eval_env"], saved.path, "eval_env")


def _check_same(saved: SavedRun, algo: str | None, env: str | None) -> None:
    if algo not in (None, saved.algo) or env not in (None, saved.env):
        raise OptionError(
            f"{saved.path} is of {saved.algo} on {saved.env}",
            f"it cannot be resumed as {algo or saved.algo} on {env or saved.env}",
            f"muster resume {saved.path}",
        )


def _check_fixed(saved: SavedRun, told: Mapping[str, Any]) -> None:
    """Raise OptionError for a new value of an option that identifies the run."""
    settings = resolve(saved.algo, saved.env, {}, base=saved.options)
    fixed = settings.options.FIXED_ON_RESUME | settings.config.FIXED_ON_RESUME
    learners = settings.options.learners
    if settings.config.PROGRAM != "in_step" and (told.get("learners", learners) is None) != (
        learners is None
    ):
        raise OptionError(
            f"learners={told['learners']} is not possible: "
            f"the run in {saved.path} has learners={learners}",
            "--learners divides every batch into slots, which changes the bits of the result",
            "leave learners out, or start a new run",
        )
    for name in sorted(fixed & told.keys()):
        if told[name] != settings.value(name):
            raise OptionError(
                f"{name}={told[name]!r:.80} is not possible: "
                f"the run in {saved.path} has {name}={settings.value(name)!r:.80}",
                "seed, network, environments and slots cannot change in a resumed run",
                f"leave {name} out, or start a new run",
            )
