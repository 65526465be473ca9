"""The file of an export, validated before anything is computed."""

import os
from pathlib import Path

from muster.errors import OptionError
from muster.exporting.names import ABOUT, FORMATS
from muster.shown import shown

_MOST = 2 << 30


def checked_out(to: str, out: str | Path | None, run: Path) -> Path:
    """Return the file that an export is written to.

    Args:
        to: The format.
        out: The requested file, if any.
        run: The run directory, for the default file.

    Raises:
        OptionError: The suffix is wrong, its folder does not exist, or it is another kind of file.
    """
    ending = FORMATS[to]
    path = Path(os.path.abspath(run / f"policy{ending}" if out is None else out))
    name = f"{path.stem or 'policy'}{ending}"
    if path.suffix != ending:
        raise OptionError(
            f"out={str(out)!r:.200} is not possible",
            f"a file of {to} ends in {ending}: other programs recognise the format by it",
            f"out={shown(path.with_name(name))!r}",
        )
    if not path.parent.is_dir():
        raise OptionError(
            f"out={str(out)!r:.200} is not possible",
            f"there is no folder {shown(path.parent)}",
            f"out={name!r}",
        )
    if os.path.lexists(path) and not _is_export(path):
        raise OptionError(
            f"{shown(path)} exists, and is not an export of muster",
            "an export replaces only an older export",
            f"out={'my_' + name!r}",
        )
    return path


def _is_export(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _MOST:
            return False
        return ABOUT.encode() in path.read_bytes()  # neither format compresses it
    except OSError:
        return False
