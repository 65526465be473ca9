"""What a run says of itself in `config.yaml`, read with the suspicion that a file deserves."""

import sys
from typing import Any

from muster.errors import OptionError
from muster.run import RunDirectory
from muster.run.yaml_text import load

HISTORY = "history"
"""The key under which it says what was changed when it was resumed."""


def saved_config(run: RunDirectory) -> dict[str, Any]:
    """Return the options that a run was made with, by name, with `algo`, `env` and its history.

    Raises:
        RunDirectoryError: There is no such file, or it is no text.
        OptionError: It is not what muster writes.
    """
    text = run.read_config()
    try:
        return load(text)
    except OptionError as error:
        what, why, _ = error.args
        fix = f"the config.yaml that muster wrote, in {run.path}"
        raise OptionError(f"{run.path / 'config.yaml'}: {what}", why, fix) from error


def refuse_env_of_a_file(env: str, path: object) -> None:
    """Refuse to import the module that an environment's id in a run's own file names."""
    module = env.rpartition(":")[0]
    if not module or module in sys.modules:
        return
    from muster.envs.procgen import is_procgen

    if not is_procgen(env):
        raise OptionError(
            f"the run in {path} is of an environment of code, {env!r:.80}",
            "a file may come from anybody, so it cannot say which code is run",
            f"--env {env:.80}, or env={env!r:.80} from Python, if you trust it",
        )
