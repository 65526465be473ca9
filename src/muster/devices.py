"""Where networks are computed: the one file that decides it, and that moves numbers there and back.

    --device      check_name, find_device -> Device      three lines if it is not there
    networks_on   a block in which new networks are made for a device
    stage         arrays ──one copy──> tensors there -> network -> tensors ──one copy──> fetch

On the host (`cpu`) nothing is copied: tensors and arrays share memory, and compiled kernels run
where they can. On any other device torch runs every network. torch is loaded when it is needed.
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
"""Devices by their names. torch may know one more, of an extension that has been loaded."""
_ACCELERATORS = ("cuda", "mps", "xpu")
"""What `auto` looks for, in this order, before it takes the CPU."""
_NAME = re.compile(r"([a-z]\w*)(?::(\d{1,4}))?", re.ASCII)
_ALIGNMENT = 64
"""Bytes at whose multiples each array of a staged copy begins."""


@dataclass
class Copies:
    """Copies between the host and a device since it was made. Each may be a stall."""

    to_device: int = 0
    to_host: int = 0


class Device:
    """A place where networks are computed. Ask `find_device` for one that is there.

    Args:
        name: As torch has it: "cpu", "cuda:1".
        by_torch: Treat the CPU as any other device: nothing is shared with NumPy, nothing is
            compiled. Tests compare other devices with this.
    """

    def __init__(self, name: str, by_torch: bool = False) -> None:
        self.name = name
        self.is_host = name == "cpu" and not by_torch
        """Whether NumPy and compiled kernels work on the memory of its tensors."""
        self.copies = Copies()
        self._pins = name.startswith("cuda")

    def __repr__(self) -> str:
        """Return what makes it."""
        return f"Device({self.name!r})"

    def stage(self, tree: Any, own: bool = False) -> Any:
        """Return arrays as tensors of this device, by one copy for all of them.

        What is float64 becomes float32, because weights are; other types stay, images as uint8.

        Args:
            tree: An array, a tensor or None (which stay as they are), or a dict or tuple of these.
            own: On the host, have those of floats in memory that torch aligned. NumPy's begins
                where it happens to, and a BLAS may add in another order there. (MKL was not seen
                to; it promises the same bits for aligned memory only.)
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
        """Return tensors as arrays, by one copy for all of them; several have to be of one type.

        On the host they share memory.
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
        """Return a tensor of one number as that number. Waits until the device has it."""
        self.copies.to_host += not self.is_host
        return float(tensor)

    def zeros(self, size: int) -> "Tensor":
        """Return a vector of zeros there, float32."""
        import torch

        return torch.zeros(size, device=self.name)

    def norm(self, vector: "Tensor") -> float:
        """Return the length of a vector there, summed up in float64 where the device has that."""
        import torch

        wide = torch.float32 if self.name.startswith("mps") else torch.float64
        return self.number(torch.linalg.vector_norm(vector, dtype=wide))

    def hold(self, module: "nn.Module", parameters: Mapping[int, "Tensor"]) -> None:
        """Have a module compute here: with these parameters, and its buffers moved.

        Buffers that a part of it names in `HOST_BUFFERS` stay where they are.

        Args:
            module: On the CPU.
            parameters: What takes the place of each parameter, by its id.
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
"""The CPU, with what is compiled for it."""

_current: ContextVar[Device] = ContextVar("_current", default=HOST)


def current_device() -> Device:
    """Return the device for which networks are made here: the CPU outside of `networks_on`."""
    return _current.get()


@contextmanager
def networks_on(device: Device) -> Iterator[None]:
    """Have what is made in this block compute its networks on a device, for good."""
    before = _current.set(device)
    try:
        yield
    finally:
        _current.reset(before)


def check_name(name: object) -> None:
    """Raise OptionError for what is no name of a device. Whether it is there is not asked."""
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
            f"{found[1]} has no numbers",
            f"device={found[1]}",
        )


def find_device(name: str) -> Device:
    """Return a device by its name, if it is there; loads torch unless it is the CPU.

    Args:
        name: "cpu", "cuda", "cuda:1", "mps", "xpu"; "auto" for the first accelerator that torch
            finds, else the CPU.

    Raises:
        OptionError: There is none of that name, or this machine or this torch does not have it.
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
    raise OptionError(f"device={name} is not here", why, f"device={here[-1]}, or device=auto")


def device_in_turn(name: str, member: int) -> str:
    """Return the device of one of several processes that compute: each has the next of its kind.

    Args:
        name: What was asked for. One with a number is the same for all.
        member: Which process, from 0 on.
    """
    if name == "cpu" or ":" in name:
        return name
    kind = devices_here()[:2][-1] if name == AUTO else name
    number = 0 if kind == "cpu" else member % max(1, _count(kind))
    return f"{kind}:{number}" if number else name


def _sum_repeatably(kind: str) -> None:
    """Ask the libraries of a device for sums that come out the same every time."""
    import torch

    if kind == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS begins
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False


def devices_here() -> list[str]:
    """Return the devices that torch finds on this machine; the CPU is always the first."""
    return ["cpu", *(kind for kind in _ACCELERATORS if _count(kind))]


def as_tensors(tree: Any, own: bool = False) -> Any:
    """Return arrays (or a dict or tuple of them) as tensors on the CPU, sharing memory.

    What is float64 becomes float32, because weights are; other types stay, images as uint8.

    Args:
        tree: An array, or a dict or tuple of them; tensors and None stay as they are.
        own: Have those of floats in memory of torch's own, see `Device.stage`.
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
        array = array.copy()  # torch has no negative strides, and warns about read-only memory
    tensor = from_numpy(array)
    return tensor.clone() if own and tensor.is_floating_point() else tensor


def beside(module: "nn.Module", tree: Any) -> Any:
    """Return arrays as tensors where the parameters of a module are."""
    import torch

    first = next(module.parameters(), None)
    tensors = as_tensors(tree)
    if first is None or first.device.type == "cpu":
        return tensors
    return _mapped(lambda tensor: tensor.to(first.device), tensors, torch.Tensor)


def as_array(values: Any) -> Array:
    """Return an array, or what a tensor of any device holds, as an array."""
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()


def fill(into: Any, values: Array) -> None:
    """Overwrite an array, or a tensor of any device, with an array."""
    if isinstance(into, np.ndarray):
        into[:] = values
        return
    import torch

    into.copy_(torch.from_numpy(np.array(values)))


def _mapped(change: Any, tree: Any, leaf: Any = None) -> Any:
    """Return a tree with each of its arrays changed; tensors and None stay, unless asked for."""
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
    """Return the name of the device that an extension has added to torch, if one has."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    name: str = torch._C._get_privateuse1_backend_name()
    return (name,) if hasattr(torch, name) else ()


def _count(kind: str) -> int:
    """Return how many devices of a kind torch finds here."""
    import torch

    try:
        module = torch.get_device_module(kind)
    except RuntimeError:  # it was built without
        return 0
    if not module.is_available():
        return 0
    return int(module.device_count()) if hasattr(module, "device_count") else 1
