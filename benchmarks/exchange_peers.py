"""The measurements of `benchmarks/exchange.py` on multiprocessing.Pipe, ZeroMQ and Ray.

Each as a user of it would write it: whole objects, pickled by the library itself.
"""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Figures = dict[str, float]


def state_dict() -> dict[str, Any]:
    """Return 1 MB of weights in ten arrays."""
    random = np.random.default_rng(0)
    return {f"layer{n}": random.random((128, 205)).astype(np.float32) for n in range(10)}


def _median(seconds: list[float]) -> float:
    return float(np.median(seconds))


# ---- two that send and receive objects: multiprocessing.Pipe, and ZeroMQ over ipc


class End(Protocol):
    """One end of a connection that carries objects."""

    def send(self, value: Any, /) -> object:
        """Send an object."""

    def recv(self) -> Any:
        """Wait for an object."""


class PairEnd:
    """A PAIR socket of ZeroMQ with the methods of a pipe's end."""

    def __init__(self, socket: Any) -> None:
        self.send, self.recv = socket.send_pyobj, socket.recv_pyobj


def _work(end: End, fragment: int) -> None:
    end.send(time.monotonic())
    while (order := end.recv()) is not None:
        kind, count = order
        for _ in range(count):
            if kind == "ping":
                end.send(end.recv())
            elif kind == "read":
                end.recv()
                end.send(time.monotonic())
            else:
                end.send(np.zeros(fragment // 8))


def _measure(
    ends: Sequence[End], started: float, pings: int, broadcasts: int, fragments: int, size: int
) -> tuple[float, float, float, float]:
    """Return ready, round trip and broadcast in seconds, and GB/s; then send the workers home."""
    ready = max(end.recv() for end in ends) - started
    ends[0].send(("ping", pings))
    round_trips = []
    for number in range(pings):
        began = time.perf_counter()
        ends[0].send(number)
        ends[0].recv()
        round_trips.append(time.perf_counter() - began)
    state = state_dict()
    for end in ends:
        end.send(("read", broadcasts))
    reads = []
    for _ in range(broadcasts):
        began = time.monotonic()
        for end in ends:
            end.send(state)
        reads.append(max(end.recv() for end in ends) - began)
    ends[0].send(("write", fragments))
    ends[0].recv()
    began = time.perf_counter()
    for _ in range(fragments - 1):
        ends[0].recv()
    rate = (fragments - 1) * size / (time.perf_counter() - began) / 1e9
    for end in ends:
        end.send(None)
    return ready, _median(round_trips), _median(reads), rate


def _figures(name: str, measured: tuple[float, float, float, float]) -> Figures:
    ready, round_trip, read, rate = measured
    return {
        f"{name} ready_s": ready,
        f"{name} rtt_us": round_trip * 1e6,
        f"{name} broadcast_ms": read * 1e3,
        f"{name} gb_per_s": rate,
    }


def pipe(readers: int, pings: int, broadcasts: int, fragments: int, size: int) -> Figures:
    """Measure multiprocessing's pipes, between spawned processes."""
    context = multiprocessing.get_context("spawn")
    started = time.monotonic()
    ends, workers = [], []
    for _ in range(readers):
        mine, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(theirs, size))
        worker.start()
        ends.append(mine)
        workers.append(worker)
    measured = _measure(ends, started, pings, broadcasts, fragments, size)
    for worker in workers:
        worker.join()
    return _figures("pipe", measured)


def _zmq_worker(address: str, fragment: int) -> None:
    import zmq as library

    socket = library.Context().socket(library.PAIR)
    socket.connect(address)
    _work(PairEnd(socket), fragment)
    socket.close(linger=1000)


def zmq(readers: int, pings: int, broadcasts: int, fragments: int, size: int) -> Figures:
    """Measure ZeroMQ, one PAIR socket for each spawned process."""
    import zmq as library

    context = multiprocessing.get_context("spawn")
    own = library.Context()
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        sockets, workers = [], []
        for number in range(readers):
            address = f"ipc://{os.path.join(folder, str(number))}"
            socket = own.socket(library.PAIR)
            socket.bind(address)
            worker = context.Process(target=_zmq_worker, args=(address, size))
            worker.start()
            sockets.append(socket)
            workers.append(worker)
        ends = [PairEnd(socket) for socket in sockets]
        measured = _measure(ends, started, pings, broadcasts, fragments, size)
        for socket, worker in zip(sockets, workers, strict=True):
            worker.join()
            socket.close()
    own.term()
    return _figures("zmq", measured)


# ---- Ray, one actor per worker


def start_ray() -> float:
    """Start a local cluster and return the seconds that it took."""
    import ray as library

    started = time.monotonic()
    library.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    return round(time.monotonic() - started, 2)


def stop_ray() -> None:
    """End the cluster."""
    import ray as library

    library.shutdown()


def ray(readers: int, pings: int, broadcasts: int, fragments: int, size: int) -> Figures:
    """Measure Ray's actors and object store."""
    import ray as library

    class Worker:
        def at_work(self) -> float:
            return time.monotonic()

        def ping(self, value: int) -> int:
            return value

        def read(self, state: dict[str, Any]) -> float:
            return time.monotonic()

        def write(self) -> Any:
            return np.zeros(size // 8)

    actor: Any = library.remote(Worker)
    started = time.monotonic()
    workers = [actor.remote() for _ in range(readers)]
    ready = max(library.get([worker.at_work.remote() for worker in workers]))
    figures = {"ray ready_s": ready - started}
    took = []
    for number in range(pings):
        began = time.perf_counter()
        library.get(workers[0].ping.remote(number))
        took.append(time.perf_counter() - began)
    figures["ray rtt_us"] = _median(took) * 1e6
    state = state_dict()
    took = []
    for _ in range(broadcasts):
        began = time.monotonic()
        reference = library.put(state)
        took.append(max(library.get([w.read.remote(reference) for w in workers])) - began)
    figures["ray broadcast_ms"] = _median(took) * 1e3
    began = time.perf_counter()
    ahead = [workers[0].write.remote() for _ in range(8)]
    for _ in range(fragments):
        library.get(ahead.pop(0))
        ahead.append(workers[0].write.remote())
    figures["ray gb_per_s"] = fragments * size / (time.perf_counter() - began) / 1e9
    library.get(ahead)
    for worker in workers:
        library.kill(worker)
    return figures
