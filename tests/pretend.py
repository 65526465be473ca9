"""Devices "pretend:0" and "pretend:1", which torch takes for accelerators where there are none.

    with pretend.devices() as crossings:
        net.to("pretend")
    assert crossings.to_device == 4

Their sums are those of the CPU's kernels, so results are bit-equal to the CPU's; but to torch they
are another device: mixing devices raises, `.numpy()` is refused, and every copy and every number
that is read is counted. Written for torch 2.13.0+cpu, in Python alone.

What it cannot show: speed, pinned memory, streams, device generators, other rounding, backward on
any other index than 0, and threads besides the one that opened `devices`.
"""

import contextlib
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
aten = torch.ops.aten


@dataclass
class Crossings:
    """What went from one to the other while `devices` was open."""

    to_device: int = 0
    to_host: int = 0
    numbers_read: int = 0
    """By float(tensor), bool(tensor) and such: each is a stall on a real device."""


class _Module:
    """What torch asks of `torch.pretend`."""

    current = 0

    def is_initialized(self):
        return True

    def is_available(self):
        return True

    def current_device(self):
        return self.current

    def set_device(self, device):
        self.current = torch.device(device).index or 0

    def _is_in_bad_fork(self):
        return False

    def manual_seed_all(self, seed):
        pass

    def device_count(self):
        return 2

    def synchronize(self, device=None):
        pass


class OnPretend(torch.Tensor):
    """A tensor on a pretended device; `held` has its numbers."""

    @staticmethod
    def __new__(cls, held, index):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=torch.device(NAME, index),
            requires_grad=False,
        )

    def __init__(self, held, index):
        self.held, self.index_of_device = held, index

    def __repr__(self):
        return f"{self.held!r} on {NAME}:{self.index_of_device}"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """Catches what has no tensor among its arguments: torch.empty(3, device="pretend")."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


_crossings = Crossings()

# When it is imported, because autograd asks once, before its first gradient, which devices exist.
if torch._C._get_privateuse1_backend_name() != NAME:
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())


@contextlib.contextmanager
def devices():
    """Have the devices in this block; yields what crosses between them and the host."""
    global _crossings
    before, _crossings = _crossings, Crossings()
    lifted = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor([1.0], device="pretend")
    try:
        with _Factories():
            yield _crossings
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)
        _crossings = before


def _run(func, args, kwargs):
    kwargs = dict(kwargs)
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    here = [t for t in tensors if isinstance(t, OnPretend)]
    named = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    if named is not None:
        kwargs["device"] = torch.device("cpu") if named.type == NAME else named
    if func is aten._to_copy.default:
        return _copied(func(*_held(args), **_held(kwargs)), bool(here), named or tensors[0].device)
    if func is aten.copy_.default:
        func(_held(args[0]), _held(args[1]), *args[2:])
        way = isinstance(args[0], OnPretend) - isinstance(args[1], OnPretend)
        _crossings.to_device += way == 1
        _crossings.to_host += way == -1
        return args[0]
    if here and func in (aten._local_scalar_dense.default, aten.is_nonzero.default):
        _crossings.numbers_read += 1
        return func(*_held(args), **kwargs)
    _refuse_a_mixture(func, tensors, here)
    index = here[0].index_of_device if here else None
    if not here and named is not None and named.type == NAME:
        index = _index(named)
    out = func(*_held(args), **_held(kwargs))
    if index is None:
        return out
    same = {id(t.held): t for t in here}  # in-place operations return what they were given

    def placed(x):
        if isinstance(x, torch.Tensor) and not isinstance(x, OnPretend):
            return same[id(x)] if id(x) in same else OnPretend(x, index)
        return x

    return tree_map(placed, out)


def _copied(out, was_there, goal):
    if goal.type == NAME:
        _crossings.to_device += not was_there
        return OnPretend(out, _index(goal))
    _crossings.to_host += was_there
    return out


def _refuse_a_mixture(func, tensors, here):
    # As CUDA does: a CPU tensor of one number may meet any device, and so may an index.
    found = {t.device for t in tensors if t.dim() > 0}
    if here and len(found) > 1 and "index" not in func._schema.name:
        names = ", ".join(sorted(map(str, found)))
        raise RuntimeError(f"Expected all tensors on the same device, but found {names} ({func})")


def _held(tree):
    return tree_map(lambda t: t.held if isinstance(t, OnPretend) else t, tree)


def _index(device):
    return torch.get_device_module(NAME).current if device.index is None else device.index
