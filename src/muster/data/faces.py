"""The interfaces of replay for a program: in this process, on one node or in shards."""

from typing import Any, Protocol

from muster.data.batch import Batch
from muster.data.block import StepBlock
from muster.data.feed import FragmentLog
from muster.data.obs import Array


class Takes(Protocol):
    """Accepts experience: `ReplayBuffer`, `ShardFeed`."""

    def push(
        self,
        data: StepBlock,
        cur_collector_envstep: int | None = None,
        *,
        version: int = 0,
        note: Any = None,
    ) -> bool:
        """Store experience, or send it to where it is stored. False if the run finished first."""


class Gives(Protocol):
    """Returns batches: `ReplayBuffer`, `ShardedReplay`."""

    @property
    def prioritized(self) -> bool:
        """Whether replay needs TD errors."""

    def sample(
        self, batch_size: int, train_iter: int | None = None, *, beta: float | None = None
    ) -> Batch | None:
        """Draw a batch; None while there is too little data."""

    def sample_many(self, count: int, batch_size: int) -> Batch | None:
        """Draw several batches at once, from uniform replay."""

    def update_priorities(self, index: Array, td_error: Array) -> None:
        """Set priorities from TD errors."""


class Receives(Protocol):
    """Receives experience of other nodes: `ReplayBuffer` at home, `ShardedReplay`."""

    @property
    def inserted(self) -> int:
        """Transitions ever stored."""

    @property
    def feed(self) -> FragmentLog | None:
        """Versions and notes of the fragments that arrived."""

    def receive(self, samples: int) -> bool:
        """Receive until `samples` transitions may be sampled. False if the run finished first."""
