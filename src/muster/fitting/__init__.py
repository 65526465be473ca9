"""Supervised training of a network: `muster fit`, on one process or several, with the same bits.

data -> order of an epoch -> batches -> slots -> gradient of each -> sum in slot order -> update

Importing this package does not import torch.
"""

from typing import TYPE_CHECKING

from muster.lazy import load_when_asked_for

if TYPE_CHECKING:
    from muster.fitting.classifier import Classifier
    from muster.fitting.data import Dataset, load_data
    from muster.fitting.loading import load_classifier
    from muster.fitting.options import FitOptions
    from muster.fitting.result import FitResult

__all__ = [
    "Classifier",
    "Dataset",
    "FitOptions",
    "FitResult",
    "load_classifier",
    "load_data",
]

__getattr__ = load_when_asked_for(
    __name__,
    {
        "Classifier": "muster.fitting.classifier",
        "Dataset": "muster.fitting.data",
        "FitOptions": "muster.fitting.options",
        "FitResult": "muster.fitting.result",
        "load_classifier": "muster.fitting.loading",
        "load_data": "muster.fitting.data",
    },
)
