"""A3C: workers compute gradients for the newest weights, and none waits for another.

Asynchronous advantage actor-critic (Mnih et al. 2016): the loss is that of A2C, but each worker
collects a short rollout of its own, and its gradient is applied when it comes, to weights that
other workers may have changed meanwhile. Differences from the paper are listed in docs/a3c.md.
"""

from muster.algos.a2c import A2C
from muster.algos.a3c_config import A3CConfig

__all__ = ["A3C", "A3CConfig"]


class A3C(A2C):
    """An `A2C` whose gradients come from workers that do not wait for each other."""

    cfg: A3CConfig
