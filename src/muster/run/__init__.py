"""The run directory: checkpoints that can be trusted, metrics, configuration, one writer.

RunDirectory    all files of a run                CheckpointStore     saves and loads state trees
BestCheckpoint  the best weights and their score
MetricsWriter   metrics.jsonl and TensorBoard     to_yaml, from_yaml  configurations
"""

from muster.run.best import BestCheckpoint
from muster.run.checkpoint import CheckpointStore
from muster.run.config_io import from_yaml, to_yaml
from muster.run.directory import RunDirectory
from muster.run.errors import (
    CheckpointError,
    NonFiniteStateError,
    RunDirectoryError,
    RunLockedError,
)
from muster.run.metrics import MetricsWriter
from muster.run.reading import Checkpoint
from muster.run.sinks import Sink, TensorBoardSink, WandbSink

__all__ = [
    "BestCheckpoint",
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "MetricsWriter",
    "NonFiniteStateError",
    "RunDirectory",
    "RunDirectoryError",
    "RunLockedError",
    "Sink",
    "TensorBoardSink",
    "WandbSink",
    "from_yaml",
    "to_yaml",
]
