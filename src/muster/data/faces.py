"""What a program needs of replay, wherever it lies: in this process, on one node or in shards."""

from typing import Any, Protocol

from muster.data.batch import Batch
from muster.data.block import StepBlock
from muster.data.feed import FragmentLog
from muster.data.obs import Array


class Takes(Protocol):
    """Takes experience: `ReplayBuffer`, `ShardFeed`."""

    def push(
        self,
        data: StepBlock,
        cur_collector_envstep: int | None = None,
        *,
        version: int = 0,
        note: Any = None,
    ) -> bool:
        """Store it or send it to where it is stored. False if the run finished first."""


class Gives(Protocol):
    """Gives batches: `ReplayBuffer`, `ShardedReplay`."""

    @property
    def prioritized(self) -> bool:
        """Whether it wants to be told errors."""

    def sample(
        self, batch_size: int, train_iter: int | None = None, *, beta: float | None = None
    ) -> Batch | None:
        """Draw a batch; None while there is too little."""

    def sample_many(self, count: int, batch_size: int) -> Batch | None:
        """Draw several at once, where replay is uniform."""

    def update_priorities(self, index: Array, td_error: Array) -> None:
        """Hear how large errors were."""


class Receives(Protocol):
    """Lets in what other nodes have experienced: `ReplayBuffer` at home, `ShardedReplay`."""

    @property
    def inserted(self) -> int:
        """StepBlock ever stored."""

    @property
    def feed(self) -> FragmentLog | None:
        """What is to be known of those that came."""

    def receive(self, samples: int) -> bool:
        """Let in until so many may be sampled. False if the run finished first."""
