"""Where networks are computed: every decision about devices, and every copy to and from them.

    --device      check_name, find_device -> Device      OptionError if it is not available
    networks_on   a block in which new networks are made for a device
    stage         arrays ──one copy──> tensors there -> network -> tensors ──one copy──> fetch

On the host (`cpu`) nothing is copied: tensors and arrays share memory, and compiled kernels run
where possible. On any other device torch runs every network. torch is imported when needed.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from muster.errors import OptionError
from muster.spelling import nearest

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = NDArray[Any]

AUTO = "auto"
KINDS = ("cpu", "cuda", "mps", "xpu")
"""Known kinds of devices. torch may know one more, from an extension that has been loaded."""
_ACCELERATORS = ("cuda", "mps", "xpu")
"""The devices that `auto` looks for, in this order, before it takes the CPU."""
_NAME = re.compile(r"([a-z]\w*)(?::(\d{1,4}))?", re.ASCII)
_ALIGNMENT = 64
"""Each array of a staged copy begins at a multiple of this many bytes."""


@dataclass
class Copies:
    """Number of copies between host and device since the device object was made. Each may stall."""

    to_device: int = 0
    to_host: int = 0


class Device:
    """A device on which networks are computed. `find_device` returns an available one.

    Args:
        name: The torch name: "cpu", "cuda:1".
        by_torch: Treat the CPU like any other device: share nothing with NumPy, compile nothing.
            Tests compare other devices with this.
    """

    def __init__(self, name: str, by_torch: bool = False) -> None:
        self.name = name
        self.is_host = name == "cpu" and not by_torch
        """Whether NumPy and compiled kernels work on the memory of its tensors."""
        self.copies = Copies()
        self._pins = name.startswith("cuda")

    def __repr__(self) -> str:
        """Return the expression that makes this device."""
        return f"Device({self.name!r})"

    def stage(self, tree: Any, own: bool = False) -> Any:
        """Return arrays as tensors on this device, with one copy for all of them.

        float64 becomes float32, the type of the weights; other types stay, such as uint8 for
        images.

        Args:
            tree: An array, a tensor or None (the last two stay unchanged), or a dict or tuple of
                these.
            own: On the host, copy float arrays into memory that torch has aligned. NumPy's memory
                may begin at any address, where a BLAS may add in another order. (This was not
                observed with MKL, but MKL promises the same bits for aligned memory only.)
        """
        if self.is_host:
            return as_tensors(tree, own)
        import torch

        arrays: list[Array] = []
        _mapped(lambda array: arrays.append(_plain(array)), tree)
        if not arrays:
            return tree
        ends = np.cumsum([-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays])
        starts = [0, *ends[:-1].tolist()]
        here = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=self._pins)
        room = here.numpy()
        for array, start in zip(arrays, starts, strict=True):
            room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
        there = here.to(self.name, non_blocking=self._pins, copy=True)
        self.copies.to_device += 1
        pieces = (
            there[start : start + array.nbytes].view(_torch_type(array)).view(array.shape)
            for array, start in zip(arrays, starts, strict=True)
        )
        return _mapped(lambda _: next(pieces), tree)

    def fetch(self, *tensors: "Tensor") -> list[Any]:
        """Return tensors as arrays, with one copy for all; several must have the same dtype.

        On the host, arrays and tensors share memory.
        """
        given = [each.detach() if each.requires_grad else each for each in tensors]
        if self.is_host:
            return [tensor.numpy() for tensor in given]
        import torch

        self.copies.to_host += 1
        if len(given) == 1:
            return [given[0].to("cpu", copy=True).numpy()]
        together = torch.cat([tensor.reshape(-1) for tensor in given]).to("cpu", copy=True).numpy()
        pieces = np.split(together, np.cumsum([tensor.numel() for tensor in given])[:-1])
        return [piece.reshape(tensor.shape) for piece, tensor in zip(pieces, given, strict=True)]

    def number(self, tensor: "Tensor") -> float:
        """Return a one-element tensor as a number. Waits until the device has computed it."""
        self.copies.to_host += not self.is_host
        return float(tensor)

    def zeros(self, size: int) -> "Tensor":
        """Return a float32 vector of zeros on this device."""
        import torch

        return torch.zeros(size, device=self.name)

    def norm(self, vector: "Tensor") -> float:
        """Return the norm of a vector on this device, summed in float64 where supported."""
        import torch

        wide = torch.float32 if self.name.startswith("mps") else torch.float64
        return self.number(torch.linalg.vector_norm(vector, dtype=wide))

    def hold(self, module: "nn.Module", parameters: Mapping[int, "Tensor"]) -> None:
        """Make a module compute on this device, with these parameters and its buffers moved.

        Buffers that a submodule lists in `HOST_BUFFERS` stay where they are.

        Args:
            module: A module on the CPU.
            parameters: The replacement of each parameter, by the parameter's id.
        """
        from torch import nn

        made: dict[int, nn.Parameter] = {}
        for part in module.modules():
            for name, old in part._parameters.items():
                if old is not None:
                    learns = old.requires_grad
                    new = made.setdefault(id(old), nn.Parameter(parameters[id(old)], learns))
                    part._parameters[name] = new
            for name, buffer in part._buffers.items():
                if buffer is not None and name not in getattr(part, "HOST_BUFFERS", ()):
                    part._buffers[name] = buffer.to(self.name, copy=True)


HOST = Device("cpu")
"""The CPU, with its compiled kernels."""

_current: ContextVar[Device] = ContextVar("_current", default=HOST)


def current_device() -> Device:
    """Return the device for which networks are made here: the CPU outside `networks_on`."""
    return _current.get()


@contextmanager
def networks_on(device: Device) -> Iterator[None]:
    """Objects made in this block compute their networks on `device` from then on."""
    before = _current.set(device)
    try:
        yield
    finally:
        _current.reset(before)


def check_name(name: object) -> None:
    """Raise OptionError if `name` is not a device name. Does not check if the device exists."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    known = (AUTO, *KINDS, *_extension())
    if found is None or found[1] not in known:
        near = nearest(str(name).partition(":")[0], known) or "auto"
        raise OptionError(
            f"device={name!r:.80} is not possible",
            f"there are: {', '.join(known)}, and cuda:1 for the second one",
            f"device={near}",
        )
    if found[2] is not None and found[1] in (AUTO, "cpu"):
        raise OptionError(
            f"device={name!r:.80} is not possible",
            f"{found[1]} takes no number",
            f"device={found[1]}",
        )


def find_device(name: str) -> Device:
    """Return an available device by name; imports torch unless it is the CPU.

    Args:
        name: "cpu", "cuda", "cuda:1", "mps", "xpu"; "auto" for the first accelerator that torch
            finds, else the CPU.

    Raises:
        OptionError: The name is unknown, or this machine or this torch has no such device.
    """
    check_name(name)
    if name == "cpu":
        return HOST
    if name == AUTO:
        return find_device(devices_here()[1]) if len(devices_here()) > 1 else HOST
    kind, _, number = name.partition(":")
    count = _count(kind)
    if int(number or 0) < count:
        _sum_repeatably(kind)
        return Device(name)
    import torch

    here = devices_here()
    if count:
        why = f"there {'is' if count == 1 else 'are'} {count}, numbered from 0"
    else:
        why = f"torch {torch.__version__} finds no {kind} on this machine, only {', '.join(here)}"
    raise OptionError(f"device={name} is not available", why, f"device={here[-1]}, or device=auto")


def device_in_turn(name: str, member: int) -> str:
    """Return the device of one of several computing processes: each gets the next of its kind.

    Args:
        name: The requested device. With a number, it is the same for all processes.
        member: The index of the process, from 0.
    """
    if name == "cpu" or ":" in name:
        return name
    kind = devices_here()[:2][-1] if name == AUTO else name
    number = 0 if kind == "cpu" else member % max(1, _count(kind))
    return f"{kind}:{number}" if number else name


def _sum_repeatably(kind: str) -> None:
    """Make the libraries of a device compute sums in a repeatable order."""
    import torch

    if kind == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def devices_here() -> list[str]:
    """Return the devices that torch finds on this machine; the CPU is always the first."""
    return ["cpu", *(kind for kind in _ACCELERATORS if _count(kind))]


def as_tensors(tree: Any, own: bool = False) -> Any:
    """Return arrays (or a dict or tuple of them) as tensors on the CPU, sharing memory.

    float64 becomes float32, the type of the weights; other types stay, such as uint8 for images.

    Args:
        tree: An array, or a dict or tuple of arrays; tensors and None stay unchanged.
        own: Copy float arrays into torch's own memory, see `Device.stage`.
    """
    from torch import Tensor, from_numpy

    if isinstance(tree, Mapping):
        return {key: as_tensors(part, own) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple([as_tensors(part, own) for part in tree])
    if tree is None or isinstance(tree, Tensor):
        return tree
    array = _plain(tree)
    if not array.flags.c_contiguous or not array.flags.writeable:
        array = array.copy()  # torch supports no negative strides, and warns about read-only memory
    tensor = from_numpy(array)
    return tensor.clone() if own and tensor.is_floating_point() else tensor


def beside(module: "nn.Module", tree: Any) -> Any:
    """Return arrays as tensors on the device of a module's parameters."""
    import torch

    first = next(module.parameters(), None)
    tensors = as_tensors(tree)
    if first is None or first.device.type == "cpu":
        return tensors
    return _mapped(lambda tensor: tensor.to(first.device), tensors, torch.Tensor)


def as_array(values: Any) -> Array:
    """Return an array, or the content of a tensor on any device, as an array."""
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()


def fill(into: Any, values: Array) -> None:
    """Overwrite an array, or a tensor on any device, with the values of an array."""
    if isinstance(into, np.ndarray):
        into[:] = values
        return
    import torch

    into.copy_(torch.from_numpy(np.array(values)))


def _mapped(change: Any, tree: Any, leaf: Any = None) -> Any:
    """Return a tree with `change` applied to each array (or each `leaf`); the rest stays."""
    if isinstance(tree, Mapping):
        return {key: _mapped(change, part, leaf) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_mapped(change, part, leaf) for part in tree)
    if leaf is not None:
        return change(tree) if isinstance(tree, leaf) else tree
    return tree if tree is None or hasattr(tree, "requires_grad") else change(tree)


def _plain(values: Any) -> Array:
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _torch_type(array: Array) -> Any:
    import torch

    return torch.from_numpy(np.empty(0, array.dtype)).dtype


def _extension() -> tuple[str, ...]:
    """Return the name of the device that an extension has added to torch, if any."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    name: str = torch._C._get_privateuse1_backend_name()
    return (name,) if hasattr(torch, name) else ()


def _count(kind: str) -> int:
    """Return how many devices of a kind torch finds on this machine."""
    import torch

    try:
        module = torch.get_device_module(kind)
    except RuntimeError:  # torch was built without it
        return 0
    if not module.is_available():
        return 0
    return int(module.device_count()) if hasattr(module, "device_count") else 1
