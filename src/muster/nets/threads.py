"""One torch thread: with more, the last bit of a product depends on how many there are."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Make torch compute with one thread in this block.

    Small networks lose more by waiting for threads than they gain, and large ones train on several
    workers. Afterwards the previous number of threads is restored.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
