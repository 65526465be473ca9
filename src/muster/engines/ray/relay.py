"""`Relay`: one incarnation of a node, as the driver hears of it from the node's keeper.

    keeper ──news──> thread of the relay ──> pipe, logs, progress page ──> supervisor

The thread asks the keeper for news and says them where the supervisor listens, as the node itself
would on one machine. Where Ray never answers it, it is left behind, and the node counts as ended.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Pipe
from typing import Any

import ray

from muster.engines.progress import ProgressPage
from muster.engines.ray.calls import first_line, heard
from muster.engines.ray.desk import Ended, News, Printed, ProgressUpdate, Said, Unusable
from muster.engines.ray.keeper import Neighbour, Order
from muster.engines.ray.process import Conception, PortableProgram
from muster.engines.ray.roll import Roll
from muster.engines.ray.side_effects import leave_thread_behind
from muster.errors import ClusterError, MusterError
from muster.framework.node import Place

_TELL_AGAIN_SECONDS = 1.0


class Relay:
    """Begins with the node's start.

    Args:
        place: The node's.
        program: What it is to do.
        threads: Of numeric libraries; None for what its resources allow.
        pin: Whether it is bound to cores of its own.
        page: Where its progress is noted.
        roll: Knows the keepers.
        ask_every: Seconds that the keeper may wait for news.
        lose: Called with what ends the whole run, if the cluster fails it.
    """

    def __init__(
        self,
        place: Place,
        program: PortableProgram,
        threads: int | None,
        pin: bool,
        page: ProgressPage,
        roll: Roll,
        ask_every: float,
        lose: Callable[[ClusterError], None],
    ) -> None:
        self._place = place
        self._program = program
        self._threads = threads
        self._pin = pin
        self._page = page
        self._roll = roll
        self._ask_every = ask_every
        self._lose = lose
        self.pipe, self._say = Pipe(duplex=False)
        self.sentinel, self._end = os.pipe()
        (self.out, out), (self.err, err) = os.pipe(), os.pipe()
        self._logs = out, err
        self.keeper: Any = None
        """The node's, once there is one."""
        self.status = ""
        """How it ended."""
        self.unwanted = False
        """Whether it need not begin any more."""
        self._orders: list[Order] = []
        """Those that may not have been heard yet."""
        self._told = 0
        self._told_at = 0.0
        self._orders_lock = threading.Lock()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._left_behind = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"muster-news-{place.node_id}", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether the node has ended, or counts as such; waits for so long if not."""
        return self._over.wait(seconds)

    def tell(self, order: object, neighbours: Sequence[Neighbour]) -> None:
        """Give the node an order, after those before it; does not wait until it is heard."""
        with self._orders_lock:
            self._told += 1
            self._orders.append(Order(self._told, order, neighbours))
            self._told_at = time.monotonic()
            self.keeper.tell.remote(list(self._orders), self._place.incarnation)

    def _tell_again(self, heard_of: int) -> None:
        """Repeat orders that the node has not heard; the call that they were in is lost."""
        with self._orders_lock:
            self._orders = [each for each in self._orders if each.number > heard_of]
            if self._orders and time.monotonic() - self._told_at > _TELL_AGAIN_SECONDS:
                self._told_at = time.monotonic()
                self.keeper.tell.remote(list(self._orders), self._place.incarnation)

    def leave_behind(self, why: str) -> None:
        """Have the node count as ended, whatever its thread is waiting for."""
        with self._lock:
            if not self._over.is_set():
                self._left_behind.set()
                leave_thread_behind(self._thread.name)
                self._roll.lose(self._place.node_id)
                self._ended(why)
                os.write(self._end, b"x")
                self._over.set()

    # ---- on the thread

    def _run(self) -> None:
        node = self._place.node_id
        try:
            self.keeper = self._roll.keeper_of(node)
            if self.unwanted:
                self._ended("it was ended before it began")
                return
            told = Conception(
                self._place,
                self._program,
                self._threads or self._roll.threads_of(node),
                self._roll.is_spread,
                self._roll.position(node) if self._pin else None,
            )
            heard(partial(self.keeper.start.remote, told, self._roll.memory_lost))
            number = 0
            while not self.status and not self._left_behind.is_set():
                answer = heard(partial(self.keeper.news.remote, number, self._ask_every))
                news = answer.news if answer.number > number else ()
                number = answer.number
                self._tell_again(answer.orders_heard)
                for each in news:
                    if self._left_behind.is_set():
                        return
                    self._pass_on(each)
        except ray.exceptions.RayError as error:
            self._roll.lose(node)
            self._ended(f"its Ray actor is gone: {first_line(error)}")
        except MusterError as error:
            if isinstance(error, ClusterError):
                self._lose(error)
            self._roll.lose(node)
            self._ended(f"{error.args[0]}: {error.args[1]}")
        except BaseException as error:
            if self._left_behind.is_set():  # nobody listens any more
                return
            self._roll.lose(node)
            self._ended(f"it could not be watched: {error!r}")
            raise
        finally:
            with self._lock:
                self._say.close()
                for fd in (*self._logs, self._end):
                    os.close(fd)
                self._over.set()

    def _ended(self, status: str) -> None:
        self.status = self.status or status

    def _pass_on(self, news: News) -> None:
        if isinstance(news, Said):
            self._say.send(news.order)
        elif isinstance(news, Printed):
            _write_all(self._logs[news.is_error], news.data)
        elif isinstance(news, ProgressUpdate):
            self._page.write(self._place.node_id, news.row)
        elif isinstance(news, Ended):
            self._ended(news.status)
        elif isinstance(news, Unusable):
            self._lose(ClusterError(news.what, news.why, news.fix))


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
