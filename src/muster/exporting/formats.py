"""The file formats: how each is written from a graph, and run.

onnx           protobuf; read by ONNX Runtime and many others (extra `export`)
torch-export   .pt2, the zip archive of `torch.export.save`; read by torch alone
"""

import contextlib
import io
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from muster.errors import summary
from muster.exporting.errors import ExportError
from muster.exporting.graph import PolicyGraph
from muster.exporting.names import ABOUT, missing_packages
from muster.exporting.signature import Signature

Array = NDArray[Any]

_ROWS = 3
"""Rows of the example for tracing: sizes 0 and 1 would be treated as fixed."""


class ExportedFile(ABC):
    """A written file, as a function of arrays."""

    @abstractmethod
    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the outputs in order, for inputs in order."""


class OnnxFile(ExportedFile):
    """An ONNX file, run by ONNX Runtime on the CPU.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._names = [each.name for each in self._session.get_inputs()]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """See ExportedFile."""
        found: list[Array] = self._session.run(None, dict(zip(self._names, inputs, strict=True)))
        return found


class TorchFile(ExportedFile):
    """A .pt2 file, run by torch.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        with _quiet():
            self._module: Any = torch.export.load(str(path)).module()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """See ExportedFile."""
        with torch.no_grad():
            made = self._module(*(torch.from_numpy(np.ascontiguousarray(each)) for each in inputs))
        return [each.numpy() for each in made]


def write(to: str, graph: PolicyGraph, signature: Signature, about: str, path: Path) -> None:
    """Write a graph into a file.

    Args:
        to: The format.
        graph: The policy.
        signature: Its inputs and outputs.
        about: Metadata of the file, as JSON.
        path: The file.

    Raises:
        ExportError: Torch cannot trace the network, or cannot write it in this format.
    """
    missing_packages(to)
    try:
        with _quiet():
            program = _traced(graph, signature)
            if to == "onnx":
                _write_onnx(program, signature, about, path)
            else:
                torch.export.save(program, str(path), extra_files={ABOUT: about})
    except OSError:
        raise
    except Exception as error:  # from torch, the exporter, or the user's own network
        raise ExportError(
            f"the network cannot be exported to {to}",
            f"{summary(error):.300}",
            "a network whose forward() has no if on values; muster models lists muster's own",
        ) from error


def opened(to: str, path: Path) -> ExportedFile:
    """Return a runner for a file of this format."""
    return OnnxFile(path) if to == "onnx" else TorchFile(path)


def _traced(graph: PolicyGraph, signature: Signature) -> Any:
    """Trace a graph with `torch.export`, for any number of rows."""
    example = tuple(
        torch.from_numpy(np.zeros((_ROWS, *each.shape), each.dtype)) for each in signature.inputs
    )
    rows = torch.export.Dim("batch", min=1)
    shapes = (tuple({0: rows} for _ in example),)
    return torch.export.export(graph, example, dynamic_shapes=shapes, strict=False)


def _write_onnx(program: Any, signature: Signature, about: str, path: Path) -> None:
    made = torch.onnx.export(
        program,
        dynamo=True,
        input_names=[each.name for each in signature.inputs],
        output_names=[each.name for each in signature.outputs],
        verbose=False,
    )
    assert made is not None
    made.model.metadata_props[ABOUT] = about
    made.save(str(path), include_initializers=True, external_data=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide torch's messages from the user: real problems are raised."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
