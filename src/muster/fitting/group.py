"""`ReplicaGroup`: replicas that take the same steps, each with the gradients of its own slots.

    update     gradient rows of own slots -> barrier -> sum of rows 0..S-1 -> one step, the same
               on every replica
    evaluate   counts of own chunks of the test set -> barrier -> sum of all chunks, in order

The counterpart of `workers.LearnerGroup` for a fitted network: the state of a replica after an
update is on one of two pages of shared memory, from which its replacement continues.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.fitting.augment import Augmentation
from muster.fitting.batches import BatchPlan, Rows, share_of
from muster.fitting.data import rows_of
from muster.fitting.job import AnyData
from muster.fitting.network import CHUNK, SAMPLES, FittedNetwork
from muster.flow import Team
from muster.flow.team import members
from muster.nets.flat import add_rows
from muster.workers.pace import ENDED, MINIBATCH, Pace

Array = NDArray[Any]

_STATS = 3
_SUMS = _STATS + 1
"""Sums of an epoch: LOSS, CORRECT, SAMPLES, and the gradient norms."""


class ReplicaGroup:
    """One member of the group.

    Args:
        network: The network that learns, with the same weights on every replica.
        dataset: The data that it learns from.
        plan: The batches and slots.
        augmentation: The random changes of training images.
        rate: Maps the number of completed epochs to the learning rate.
        begin: Called if this replica starts and replaces no other: sets the initial state of the
            network, and returns the sums of the current epoch, or None.
    """

    def __init__(
        self,
        network: FittedNetwork,
        dataset: AnyData,
        plan: BatchPlan,
        augmentation: Augmentation,
        rate: Callable[[float], float],
        begin: Callable[[], Array | None],
    ) -> None:
        self._network = network
        self._data = dataset
        self._plan = plan
        self._augment = augmentation
        self._rate = rate
        self._pages = [each.size for each in network.state()]
        chunks = -(-len(dataset.y_test) // CHUNK)
        width = network.weights.vector.size
        self._team = Team(
            {
                "grads": ((2, plan.slots, width), np.float32),
                "stats": ((2, plan.slots, _STATS), np.float64),
                "norms": ((2, plan.slots, network.statistics.size), np.float32),
                "scores": ((chunks, _STATS), np.float64),
                "last": ((2,), np.int64),
                "version": ((members(), 8), np.int64),
                "state": ((2, members(), sum(self._pages)), np.float32),
                "sums": ((2, members(), _SUMS), np.float64),
                "began": ((2,), np.float64),
            }
        )
        team = self._team
        self.is_first = team.index == 0
        """Whether this replica shows progress and writes files."""
        self.began: Array = team["began"]
        """When the first incarnation of the first replica began, and after how many updates; for
        the result."""
        self._pace = Pace(team)
        self._mine = share_of(team.index, team.size, plan.slots)
        self._tested = range(team.index, chunks, team.size)
        self._total = np.empty(width, np.float32)
        self._order: tuple[int, Rows] | None = None
        self.sums = np.zeros(_SUMS)
        """Sums of the epoch so far."""
        if self._pace.taken_over:
            self._take_over()
        else:
            sums = begin()
            self.sums = np.zeros(_SUMS) if sums is None else np.array(sums, np.float64)
            self._show()
        self.taken_over = self._pace.taken_over
        """Whether this replica replaces one that died."""
        self.first_update = self._pace.loop if self.taken_over else network.train_iter
        """The first update in which this replica takes part."""

    # ---- one update

    def update(self, update: int, is_last: bool) -> bool:
        """Learn from a batch with all replicas, and return whether the first one wants to stop.

        Args:
            update: The number of the update, from 0.
            is_last: Whether this replica wants to stop; only the first replica's value counts.
        """
        page = update % 2
        last = self._team["last"]
        if self._pace.is_new(update, MINIBATCH):
            if self.is_first:
                last[page] = is_last
            self._write_gradients(update, page)
        self._pace.meet(update, MINIBATCH)
        if self._network.train_iter == update:  # or the previous incarnation took this step
            self._apply(update, page)
        return bool(last[page])

    def _write_gradients(self, update: int, page: int) -> None:
        team, data = self._team, self._data
        epoch, batch = self._plan.place(update)
        span = self._plan.span(batch)
        rows = self._ordered(epoch)[span.start : span.stop]
        shares = self._plan.shares(len(rows))
        for slot in self._mine:
            chosen = rows[shares[slot]]
            samples = self._augment(rows_of(data.x_train, chosen), chosen.tolist(), epoch)
            self._network.gradient(
                samples,
                data.y_train[chosen],
                len(rows),
                team["grads"][page, slot],
                team["stats"][page, slot],
                team["norms"][page, slot],
            )

    def _apply(self, update: int, page: int) -> None:
        team = self._team
        if self._plan.place(update)[1] == 0:
            self.sums[:] = 0.0
        add_rows(team["grads"][page], self._total)  # in the order of slots, on every replica
        stats = team["stats"][page]
        norm = self._network.step(
            self._total, team["norms"][page], stats[:, SAMPLES], self.rate(update)
        )
        for row in stats:
            self.sums[:_STATS] += row
        self.sums[_STATS] += norm
        self._show()

    def rate(self, update: int) -> float:
        """Return the learning rate of an update."""
        return self._rate(update / self._plan.batches)

    def _ordered(self, epoch: int) -> Rows:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._plan.order(epoch)
        return self._order[1]

    # ---- one evaluation

    def evaluate(self, update: int) -> Array:
        """Return LOSS, CORRECT and SAMPLES of the whole test set, after an update.

        One replica computes each chunk of the test set, so each sample counts once.
        """
        scores: Array = self._team["scores"]
        if self._pace.is_new(update, ENDED):
            for chunk in self._tested:
                part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
                x, y = rows_of(self._data.x_test, part), self._data.y_test[part]
                scores[chunk] = self._network.judge(x, y)
        self._pace.meet(update, ENDED)
        total = np.zeros(_STATS)
        for row in scores:
            total += row
        return total

    # ---- replacement

    def _show(self) -> None:
        """Write this replica's state to the inactive page, then make that page the active one."""
        team, version = self._team, self._network.train_iter
        if not team.is_alone:  # a single replica is never replaced
            page = team["state"][version % 2, team.index]
            start = 0
            for array in self._network.state():
                page[start : start + array.size] = array
                start += array.size
            team["sums"][version % 2, team.index] = self.sums
            team["version"][team.index, 0] = version

    def _take_over(self) -> None:
        """Load the state of the replica that this one replaces."""
        team = self._team
        version = int(team["version"][team.index, 0])
        page = team["state"][version % 2, team.index]
        pieces = np.split(page, np.cumsum(self._pages)[:-1])
        self._network.become(pieces, version)
        self.sums = team["sums"][version % 2, team.index].copy()
