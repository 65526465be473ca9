"""What a run says of itself in `config.yaml`, read with the suspicion that a file deserves."""

from typing import Any

from muster.run import RunDirectory, RunDirectoryError
from muster.run.yaml_text import load


def saved_config(run: RunDirectory) -> dict[str, Any]:
    """Return the options that a run was made with.

    Raises:
        RunDirectoryError: There is no such file, or it is no text.
        OptionError: It is not what muster writes.
    """
    try:
        return load(run.read_config())
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(
            f"{run.path / 'config.yaml'} cannot be read",
            str(error),
            "muster train ..., to make a run of its own",
        ) from error
