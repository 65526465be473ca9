"""`GradientSum`: adds the rows of all members in a fixed order, through shared memory.

    member k: writes row k -> all rows have arrived -> every member adds rows 0, 1, ... n-1 in turn

Floating-point addition depends on its order. So rows are added in the order of the members, never
in order of arrival: every member computes the same bits, and so do any two runs.

Each member has one stream to each other member. The stream carries the number of the round and the
row itself. So no member polls, and the supervisor notices a member that dies. Where possible, rows
travel as blocks of shared memory that all members map.
"""

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from muster.errors import OptionError, TaskError
from muster.flow.node import this_node
from muster.flow.stream import Inlet, Item, Outlet
from muster.flow.wire import pack


class GradientSum:
    """Adds up one vector of every member of a group.

    In a single process, or in a group of one, the sum is the vector itself.

    Args:
        members: Ids of the nodes of the group, each once, in the order of addition, with this one.
        name: The same on all members.
    """

    def __init__(self, members: Sequence[int] = (0,), name: str = "gradients") -> None:
        node = this_node()
        me = 0 if node is None else node.place.node_id
        self.members = tuple(members)
        if len(set(self.members)) != len(self.members) or me not in self.members:
            raise OptionError(
                f"members={list(members)} is not possible",
                f"it must hold each node of the group once, including this one, node {me}",
                f"members=[{me}, ...]",
            )
        self._node = node
        self._me = me
        self._round = 0
        self._changed = threading.Condition()
        self._rows: dict[tuple[int, int], Item] = {}
        self._outlets: list[Outlet] = []
        if node is not None and len(self.members) > 1:
            stream = f"sum.{name}"
            self._inlet = Inlet(node.dispatcher, stream, self._accept)
            others = [member for member in self.members if member != me]
            self._outlets = [Outlet(node.dispatcher, stream, other, window=2) for other in others]
            node.on_finish(self._wake)

    def sum(self, row: NDArray[np.float32], timeout: float | None = None) -> NDArray[np.float32]:
        """Return the sum of all members' rows, the same bits on every member.

        Every member calls this equally often, with a vector of the same length.

        Raises:
            TaskError: The run finished, so the rows of the others will not arrive.
            TimeoutError: They did not arrive within `timeout` seconds.
        """
        if not self._outlets:
            return row.copy()
        assert self._node is not None
        self._round += 1
        packed = pack((self._round, row))
        for outlet in self._outlets:
            outlet.put(packed, timeout)
        total: NDArray[np.float32] | None = None
        for member in self.members:
            mine = member == self._me
            other = row if mine else self._row_of(member, row.shape, timeout)
            total = other.copy() if total is None else np.add(total, other, out=total)
        assert total is not None
        return total

    def _row_of(
        self, member: int, shape: tuple[int, ...], timeout: float | None
    ) -> NDArray[np.float32]:
        key = (member, self._round)
        node = self._node
        assert node is not None
        if key not in self._rows and not node.dispatcher.wait_for(
            self._changed, lambda: key in self._rows or node.is_finished, timeout
        ):
            raise TimeoutError(f"no gradients of node {member} within {timeout} s")
        item = self._rows.pop(key, None)
        if item is None:
            raise TaskError(
                f"the gradients of node {member} did not arrive",
                "the run has finished",
                "check ctx.finish before another round",
            )
        number, row = item.value()
        self._inlet.acknowledge(item)
        if number != self._round or row.shape != shape:
            raise OptionError(
                f"node {member} is in round {number} with a row of shape {row.shape}",
                f"this node is in round {self._round} with shape {shape}",
                "call sum() equally often on every member, with equal networks",
            )
        array: NDArray[np.float32] = row
        return array

    def _accept(self, item: Item) -> None:
        with self._changed:
            self._rows[item.sender, item.number] = item
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
