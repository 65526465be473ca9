"""A run's `config.yaml`, read as an untrusted file."""

import sys
from typing import Any

from muster.errors import OptionError
from muster.run import RunDirectory
from muster.run.yaml_text import load

OF_ENV = ("backend", "wrapper", "env_kwargs")
"""Options of a run that, besides the id, make its environment."""
HISTORY = "history"
"""The key for changes made when the run was resumed."""


def saved_config(run: RunDirectory) -> dict[str, Any]:
    """Return the options that a run was made with, by name, with `algo`, `env` and its history.

    Raises:
        RunDirectoryError: There is no such file, or it is not text.
        OptionError: muster did not write it.
    """
    text = run.read_config()
    try:
        return load(text)
    except OptionError as error:
        what, why, _ = error.args
        fix = f"the config.yaml that muster wrote, in {run.path}"
        raise OptionError(f"{run.path / 'config.yaml'}: {what}", why, fix) from error


def refuse_env_of_a_file(env: str, path: object, option: str = "env") -> None:
    """Raise OptionError if a run's file names an environment whose module is not imported yet.

    Args:
        env: The id in the file.
        path: The run.
        option: The option that names such an environment again.
    """
    module = env.rpartition(":")[0]
    if not module or module in sys.modules:
        return
    from muster.envs.make import is_remote
    from muster.envs.procgen import is_procgen

    if not is_procgen(env) and not is_remote(env):  # a server sends no code
        raise OptionError(
            f"the run in {path} uses an environment from code, {env!r:.80}",
            "a file can come from anyone, so it must not choose the code that runs",
            f"--{option.replace('_', '-')} {env:.80}, or {option}={env!r:.80} from Python, "
            "if you trust it",
        )
