"""`Learner`: draws batches, computes gradients, and sends them to the parameter server.

batch (drawn while the last one is computed) -> gradient -> ParameterServer -> newest weights

Any number of learners share one set of weights: each gradient is applied exactly once.
`ParameterServer(max_lag=...)` bounds the age of the weights for which a gradient was computed.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from muster.actors.block import Block
from muster.actors.calls import Call
from muster.actors.errors import ReplayEmptyError
from muster.actors.parameters import ParameterServer
from muster.actors.replay import ReplayBuffer
from muster.actors.sampled_batch import SampledBatch
from muster.errors import OptionError
from muster.flow.ledger import LagCount

_LOOK_UP = 1.0
"""Seconds that a wait for a batch lasts before checking whether it is still needed."""


class LearningAgent(Protocol):
    """The agent with which a learner computes gradients."""

    td_error: NDArray[Any]
    """TD errors of the last gradient, [B]: the new priorities."""

    def gradient(self, batch: Any) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Return the gradient of a batch by the names of the weights, and metrics."""

    def load_parts(self, parts: dict[str, dict[str, Any]]) -> None:
        """Initialise all networks with these weights."""

    def follow(self, weights: dict[str, Any], train_iter: int) -> None:
        """Continue with the weights after this many updates of all learners."""


@dataclass
class LearningReport:
    """The work of a learner."""

    learner: int
    updates: int = 0
    """Number of its gradients that were applied."""
    version: int = 0
    """Version of the weights after the last of them."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last batch."""
    data_lag: tuple[int, float, int] = (0, 0.0, 0)
    """Versions between the weights that acted and those that learned: minimum, mean, maximum."""


class Learner(Block):
    """Learns in an actor.

    Args:
        make_agent: Makes the agent.
        server: The server of the weights; made with a learning rate.
        buffer: The source of batches.
        learner: Its number, unique among learners.
        batch_size: Transitions in each batch.
        **options: Options of Ray, such as `num_cpus` (1), `num_gpus` or `resources`.
    """

    def __init__(
        self,
        make_agent: Callable[[], Any],
        server: ParameterServer,
        buffer: ReplayBuffer,
        *,
        learner: int = 0,
        batch_size: int = 64,
        **options: Any,
    ) -> None:
        if batch_size < 1:
            raise OptionError(
                f"batch_size={batch_size} is not possible", "it must be 1 or more", "batch_size=64"
            )
        arguments = {
            "make_agent": make_agent,
            "server": server,
            "buffer": buffer,
            "learner": learner,
            "batch_size": batch_size,
        }
        super().__init__(f"learner {learner}", Updater, arguments, {"num_cpus": 1, **options})

    def train(self, updates: int | None = None) -> Call:
        """Start to learn; `finish` waits for the report.

        Args:
            updates: How many; None: until the buffer is sealed and all samples due are used.
        """
        return self._call("train", updates)


class Updater:
    """The object in the actor. See `Learner`."""

    def __init__(
        self,
        make_agent: Callable[[], Any],
        server: ParameterServer,
        buffer: ReplayBuffer,
        learner: int,
        batch_size: int,
    ) -> None:
        self._agent: LearningAgent = make_agent()
        self._server = server
        self._buffer = buffer
        self._learner = learner
        self._batch_size = batch_size
        self._incarnation = time.time_ns()
        self._sequence = 0
        self._report = LearningReport(learner)
        self._lags = LagCount()
        self._stopping = False
        self._agent.load_parts({"policy": server.get_weights()})

    def train(self, updates: int | None) -> LearningReport:
        """Learn from batches until there are no more."""
        report = self._report
        pulled = self._server.join(self._learner, self._incarnation)
        self._agent.follow(pulled.weights, pulled.version)
        last = None if updates is None else report.updates + updates
        try:
            with ThreadPoolExecutor(1, "next batch") as ahead, self._until_left():
                coming = ahead.submit(self._next_batch)
                while last is None or report.updates < last:
                    batch = coming.result()
                    if batch is None:
                        break
                    if last is None or report.updates + 1 < last:
                        coming = ahead.submit(self._next_batch)
                    pulled = self._learn(batch, pulled.version)
        finally:
            self._server.leave(self._learner, self._incarnation)
        self._buffer.flush()
        report.version = pulled.version
        report.data_lag = self._lags.least, self._lags.mean, self._lags.most
        return report

    @contextmanager
    def _until_left(self) -> Iterator[None]:
        """End the wait for the next batch when this block is left."""
        self._stopping = False
        try:
            yield
        finally:
            self._stopping = True

    def _next_batch(self) -> SampledBatch | None:
        while not self._stopping:
            # Short waits, so that a failed learner reports it without waiting for experience.
            with suppress(ReplayEmptyError):
                return self._buffer.sample_batch(self._batch_size, timeout=_LOOK_UP)
        return None

    def _learn(self, batch: SampledBatch, version: int) -> Any:
        """Send the gradient of a batch, computed for weights of this version."""
        report = self._report
        gradient, report.metrics = self._agent.gradient(batch)
        self._sequence += 1
        pulled = self._server.push_gradients(
            gradient,
            learner=self._learner,
            incarnation=self._incarnation,
            sequence=self._sequence,
            version=version,
        )
        report.updates += 1
        lags = version - batch.version
        self._lags.add(int(lags.min()), float(lags.mean()), int(lags.max()))
        self._buffer.update_priorities(batch, self._agent.td_error)
        self._agent.follow(pulled.weights, pulled.version)
        return pulled
