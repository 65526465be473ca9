"""`RayMember`: a node that a keeper keeps, somewhere on a Ray cluster.

A thread asks the keeper for news and says them where the supervisor listens: at a pipe, as the
node itself would on one machine. So the supervisor does not know the difference.
"""

import contextlib
import os
import threading
from multiprocessing.connection import Connection, Pipe

import ray

from muster.engines.base import Launch
from muster.engines.member import Member
from muster.engines.orders import Present
from muster.engines.progress import ProgressPage
from muster.engines.ray.desk import Ended, News, Printed, Progress, Said
from muster.engines.ray.process import Conception, Program
from muster.engines.ray.roll import Roll
from muster.errors import MusterError
from muster.framework.node import Place

_KILL_SECONDS = 5.0
"""That a keeper has for ending its node before it is ended itself."""
_NEWS_SECONDS = 1.0


class RayMember(Member):
    """One node, through all of its incarnations.

    Args:
        place: Its place, as it is at the start.
        launch: The program.
        page: Where the driver notes the progress of nodes.
        roll: Knows the keepers.
        program: What the node is to do.
    """

    def __init__(
        self, place: Place, launch: Launch, page: ProgressPage, roll: Roll, program: Program
    ) -> None:
        super().__init__(place, launch, page)
        self._roll = roll
        self._program = program
        limits = (launch.hang_after, launch.start_within, launch.grace)
        self._ask_every = min(_NEWS_SECONDS, *(limit / 4 for limit in limits))

    def _begin(self) -> None:
        self._roll.places[self.place.node_id] = self.place
        self.pipe, say = Pipe(duplex=False)
        self._sentinel, end = os.pipe()
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        self.logs = (self._log(out, False), self._log(err, True))
        self._status = ""
        self._kill_timer: threading.Timer | None = None
        self._thread = threading.Thread(
            target=self._relay,
            args=(say, end, (to_out, to_err)),
            name=f"muster-news-{self.place.node_id}",
            daemon=True,
        )
        self._thread.start()

    @property
    def sentinel(self) -> int:
        """A descriptor that can be read once the node has ended."""
        return self._sentinel

    def tell(self, order: object) -> None:
        """Give an order; a node that is gone does not hear it."""
        about = [node for node, _ in order.nodes] if isinstance(order, Present) else []
        with contextlib.suppress(ray.exceptions.RayError):
            told = self._roll.neighbours(about)
            self._keeper.tell.remote(order, told, self.place.incarnation)

    def kill(self) -> None:
        """End the node; and its keeper, if that does not see to it."""
        if not self.alive or self._kill_timer is not None:
            return
        self._kill_timer = threading.Timer(_KILL_SECONDS, self._end_keeper)
        self._kill_timer.daemon = True
        self._kill_timer.start()
        with contextlib.suppress(ray.exceptions.RayError, AttributeError):
            self._keeper.kill.remote(self.place.incarnation)

    def join(self) -> None:
        """Wait until it has ended."""
        while self._thread.is_alive():
            for log in self.logs:  # a full one would hold the thread up
                log.read()
            self._thread.join(0.05)

    def exit_status(self) -> str:
        """Say how it ended."""
        self._thread.join()
        return self._status

    def _release(self) -> None:
        if self._thread.is_alive():
            self.kill()
        self.join()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer.join()
        os.close(self._sentinel)

    def _end_keeper(self) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            self._roll.end(self.place.node_id)

    # ---- on the thread

    def _relay(self, say: Connection, end: int, logs: tuple[int, int]) -> None:
        node = self.place.node_id
        try:
            self._keeper = self._roll.keeper_of(node)
            if self._kill_timer is not None:
                self._status = "it was ended before it began"
                return
            told = Conception(
                self.place,
                self._program,
                self._launch.threads or self._roll.threads_of(node),
                self._roll.is_spread,
                self._roll.position(node) if self._launch.pin else None,
            )
            ray.get(self._keeper.start.remote(told, self._roll.memory_lost))
            while not self._status:
                for news in ray.get(self._keeper.news.remote(self._ask_every)):
                    self._pass_on(news, say, logs)
        except ray.exceptions.RayError as error:
            self._roll.lose(node)
            self._status = f"its Ray actor is gone: {_first_line(error)}"
        except MusterError as error:
            self._roll.lose(node)
            self._status = f"{error.args[0]}: {error.args[1]}"
        except BaseException as error:
            self._roll.lose(node)
            self._status = f"it could not be watched: {error!r}"
            raise
        finally:
            say.close()
            for fd in (*logs, end):
                os.close(fd)

    def _pass_on(self, news: News, say: Connection, logs: tuple[int, int]) -> None:
        if isinstance(news, Said):
            say.send(news.order)
        elif isinstance(news, Printed):
            _write_all(logs[news.is_error], news.data)
        elif isinstance(news, Progress):
            self._page.write(self.place.node_id, news.row)
        elif isinstance(news, Ended):
            self._status = news.status


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
