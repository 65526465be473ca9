"""Taking a policy elsewhere: `muster export RUN --to onnx|torch-export`, one file with all of it.

    run -> load_policy -> PolicyGraph -> torch.export -> file -> loaded back -> compared -> its name

The graph goes from observations as the environment gives them to actions as it takes them: the
normaliser, masks and memory are inside. Importing this does not load torch.
"""

from typing import TYPE_CHECKING

from muster.lazy import load_when_asked_for

if TYPE_CHECKING:
    from muster.exporting.errors import ExportError
    from muster.exporting.result import ExportResult

__all__ = ["ExportError", "ExportResult"]

__getattr__ = load_when_asked_for(
    __name__,
    {"ExportError": "muster.exporting.errors", "ExportResult": "muster.exporting.result"},
)
