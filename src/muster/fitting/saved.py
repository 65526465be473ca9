"""The settings of a resumed run of `muster fit`: its own; other options given are changes."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from muster.errors import OptionError
from muster.fitting.data import DIGITS, check_data
from muster.fitting.options import FitOptions
from muster.recipes.models import refuse_code_of_a_file
from muster.recipes.saved import HISTORY, OF_ENV, saved_config
from muster.run import RunDirectory, RunDirectoryError
from muster.run.config_io import from_dict
from muster.run.new_run import check_new
from muster.spelling import nearest

KIND = "fit"
_OWN = ("kind", "model", "data_sha256", HISTORY, "env", *OF_ENV)
"""Keys of `config.yaml` that are not options."""


@dataclass(frozen=True)
class SavedFit:
    """The content of a run's `config.yaml`."""

    path: Path
    model: str
    options: FitOptions
    data_sha256: str
    history: list[Any]


def is_fit(path: str | Path) -> bool:
    """Whether a directory holds a run of `muster fit`."""
    return saved_config(RunDirectory.open(path)).get("kind") == KIND


def saved_fit(path: str | Path) -> SavedFit:
    """Read the settings of a run.

    Raises:
        RunDirectoryError: There is no run of `muster fit`.
        OptionError: muster did not write its `config.yaml`.
    """
    run = RunDirectory.open(path)
    data = saved_config(run)
    own = {key: data.pop(key, None) for key in _OWN}
    model = own["model"]
    if own["kind"] != KIND or not isinstance(model, str):
        raise RunDirectoryError(
            f"{run.path} is not a run of muster fit",
            "its config.yaml is of another kind of run, or was not written by muster",
            f"muster resume {run.path}",
        )
    history = own[HISTORY] if isinstance(own[HISTORY], list) else []
    options = from_dict(data, FitOptions)
    return SavedFit(run.path, model, options, str(own["data_sha256"]), history)


def changed(saved: SavedFit, model: str | None, given: Mapping[str, Any]) -> FitOptions:
    """Return the options of a resumed run; raise OptionError for a change that is not possible.

    Args:
        saved: The settings of the run.
        model: As given; None for the run's own.
        given: The options that were given.
    """
    check_names(given)
    if model is None:
        refuse_code_of_a_file(saved.model, saved.path)
    elif model != saved.model:
        raise OptionError(
            f"the run in {saved.path} is of the model {saved.model!r:.80}",
            f"it cannot be resumed as {model!r:.80}",
            f"muster resume {saved.path}",
        )
    for name in sorted(FitOptions.FIXED_ON_RESUME & given.keys()):
        if given[name] != getattr(saved.options, name):
            raise OptionError(
                f"{name}={given[name]!r:.80} is not possible: the run in {saved.path} has "
                f"{name}={getattr(saved.options, name)!r:.80}",
                "seed, network, batches and slots cannot change in a resumed run",
                f"leave {name} out, or start a new run",
            )
    return FitOptions(**{**asdict(saved.options), **given})


def to_write(
    model: str,
    options: FitOptions,
    data_sha256: str,
    saved: SavedFit | None,
    samples: int,
    about: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the content of `config.yaml`.

    Args:
        model: Name of the network.
        options: Options of the run, from now on.
        data_sha256: Hash of its data.
        saved: Its previous settings, if it is resumed.
        samples: Samples learned from so far.
        about: What its data says about an environment.
    """
    told = {
        key: value for key, value in asdict(options).items() if key not in options.OF_THE_COMMAND
    }
    content = {"kind": KIND, "model": model, **told, **about, "data_sha256": data_sha256}
    if saved is None:
        return content
    before = asdict(saved.options)
    changes = {
        key: {"from": before[key], "to": told[key]} for key in told if told[key] != before[key]
    }
    news = [{"env_step": samples, "changed": changes}] if changes else []
    return {**content, HISTORY: [*saved.history, *news]}


def check_names(given: Mapping[str, Any]) -> None:
    """Raise OptionError for an unknown option, with the nearest known one."""
    known = [field.name for field in fields(FitOptions)]
    for name in given:
        if name not in known:
            near = nearest(name, known)
            raise OptionError(
                f"there is no option {name!r:.80}",
                f"the nearest is {near!r}" if near else "none is near",
                f"{near}=..." if near else "muster fit --help",
            )


def resolve(model: object, given: dict[str, Any]) -> tuple[str, FitOptions, SavedFit | None]:
    """Return network and options of a new or a resumed run, validated.

    Args:
        model: Name of the network; None for that of a run that is resumed.
        given: Options by name.

    Raises:
        OptionError: An option is unknown, invalid, or contradicts another.
    """
    check_names(given)
    data = given.get("data")
    if isinstance(data, str) and data and data != DIGITS:  # the run may be resumed from elsewhere
        given = {**given, "data": os.path.abspath(data)}
    if not isinstance(model, str | None):
        raise OptionError(
            f"model={model!r:.80} is not possible", "it has a name", 'model="resnet8"'
        )
    if given.get("resume") is True:
        path = given.get("run_dir")
        if path is None:
            raise OptionError(
                "--resume needs a run",
                "the directory of a run says which one to resume",
                "muster resume runs/<data>/<model>/<date-time>-<seed>",
            )
        saved = saved_fit(path)
        options = changed(saved, model, given)
        check_data(options.data)
        return saved.model, options, saved
    if model is None:
        raise OptionError(
            "muster fit needs a model",
            "it comes first, the options after it",
            "muster fit resnet8 --data digits",
        )
    options = FitOptions(**given)
    check_data(options.data)
    if options.run_dir is not None:
        check_new(options.run_dir)
    return model, replace(options, horizon=options.planned), None
