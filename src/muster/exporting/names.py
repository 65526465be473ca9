"""The names of the formats, and the packages they need; imports neither torch nor ONNX."""

import importlib.util

from muster.errors import OptionError
from muster.exporting.errors import ExportError
from muster.installs import install
from muster.spelling import nearest

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2"}
"""Format -> suffix of its files."""
ABOUT = "muster.json"
"""Where a file holds its metadata: a key of ONNX's metadata, a file in a .pt2 archive."""

_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def check_format(to: object) -> str:
    """Return the name of a format.

    Raises:
        OptionError: There is no such format.
    """
    if isinstance(to, str) and to in FORMATS:
        return to
    near = nearest(to, FORMATS) if isinstance(to, str) else None
    raise OptionError(
        f"to={to!r:.80} is not possible",
        f"the formats are {', '.join(FORMATS)}",
        f"to={near or 'onnx'!r}",
    )


def missing_packages(to: str) -> None:
    """Raise ExportError if a package that a format needs is not installed."""
    if to != "onnx":
        return
    absent = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        raise ExportError(
            f"export to {to} needs {', '.join(absent)}",
            "they are not installed: muster itself does not need them",
            install("export"),
        )
