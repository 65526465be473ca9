"""Dropout whose random numbers come from a seed that is saved with the network."""

import torch
from torch import Tensor, nn


class SeededDropout(nn.Module):
    """Sets each number to 0 with probability `p` in training, and scales up the others.

    torch's own dropout draws from the global generator, so its result would depend on all other
    code in the process, and a resumed run would differ from an uninterrupted one.

    Args:
        p: Probability, from 0 to below 1.
        generator: Provides the seed.
    """

    HOST_BUFFERS = frozenset({"next_seed"})
    """Random numbers are drawn on the host, so they are the same for every device."""
    next_seed: Tensor

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p = p
        self._generator = torch.Generator()
        self.register_buffer("next_seed", torch.randint(2**62, (), generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        """Return x with some numbers set to 0 and the others scaled up; in evaluation x itself."""
        if not self.training:
            return x
        self._generator.manual_seed(int(self.next_seed))
        self.next_seed += 1
        kept = (torch.rand(x.shape, generator=self._generator) >= self.p).to(x.device)
        return x * kept / (1 - self.p)
