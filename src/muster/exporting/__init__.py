"""Export of a policy: `muster export RUN --to onnx|torch-export` writes one file with all of it.

    run -> load_policy -> PolicyGraph -> torch.export -> file -> loaded back -> compared -> its name

The graph maps observations, as the environment returns them, to actions, as the environment takes
them: normaliser, masks and memory are included. Importing this package does not import torch.
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
