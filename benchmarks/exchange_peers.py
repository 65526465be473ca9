"""The measurements of `benchmarks/exchange.py` on multiprocessing.Pipe, ZeroMQ and Ray.

Each as a user of it would write it: whole objects, pickled by the library itself.
"""

import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

Figures = dict[str, float]


def state_dict() -> dict[str, Any]:
    """Return 1 MB of weights in ten arrays."""
    random = np.random.default_rng(0)
    return {f"layer{n}": random.random((128, 205)).astype(np.float32) for n in range(10)}


def _median(seconds: list[float]) -> float:
    return float(np.median(seconds))


# ---- multiprocessing.Pipe, spawned processes


def _pipe_worker(connection: Connection, fragment: int) -> None:
    connection.send(time.monotonic())
    while (order := connection.recv()) is not None:
        kind, count = order
        for _ in range(count):
            if kind == "ping":
                connection.send(connection.recv())
            elif kind == "read":
                connection.recv()
                connection.send(time.monotonic())
            else:
                connection.send(np.zeros(fragment // 8))


def pipe(readers: int, pings: int, broadcasts: int, fragments: int, size: int) -> Figures:
    """Measure multiprocessing's pipes."""
    context = multiprocessing.get_context("spawn")
    started = time.monotonic()
    ends, workers = [], []
    for _ in range(readers):
        mine, theirs = context.Pipe()
        worker = context.Process(target=_pipe_worker, args=(theirs, size))
        worker.start()
        ends.append(mine)
        workers.append(worker)
    figures = {"pipe ready_s": max(end.recv() for end in ends) - started}
    ends[0].send(("ping", pings))
    took = []
    for number in range(pings):
        began = time.perf_counter()
        ends[0].send(number)
        ends[0].recv()
        took.append(time.perf_counter() - began)
    figures["pipe rtt_us"] = _median(took) * 1e6
    state = state_dict()
    for end in ends:
        end.send(("read", broadcasts))
    took = []
    for _ in range(broadcasts):
        began = time.monotonic()
        for end in ends:
            end.send(state)
        took.append(max(end.recv() for end in ends) - began)
    figures["pipe broadcast_ms"] = _median(took) * 1e3
    ends[0].send(("write", fragments))
    ends[0].recv()
    began = time.perf_counter()
    for _ in range(fragments - 1):
        ends[0].recv()
    figures["pipe gb_per_s"] = (fragments - 1) * size / (time.perf_counter() - began) / 1e9
    for end, worker in zip(ends, workers, strict=True):
        end.send(None)
        worker.join()
    return figures


# ---- ZeroMQ over ipc, one PAIR socket per worker


def _zmq_worker(address: str, fragment: int) -> None:
    import zmq as library

    socket = library.Context().socket(library.PAIR)
    socket.connect(address)
    socket.send_pyobj(time.monotonic())
    while (order := socket.recv_pyobj()) is not None:
        kind, count = order
        for _ in range(count):
            if kind == "ping":
                socket.send_pyobj(socket.recv_pyobj())
            elif kind == "read":
                socket.recv_pyobj()
                socket.send_pyobj(time.monotonic())
            else:
                socket.send_pyobj(np.zeros(fragment // 8))
    socket.close(linger=1000)


def zmq(readers: int, pings: int, broadcasts: int, fragments: int, size: int) -> Figures:
    """Measure ZeroMQ."""
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
        figures = {"zmq ready_s": max(socket.recv_pyobj() for socket in sockets) - started}
        sockets[0].send_pyobj(("ping", pings))
        took = []
        for number in range(pings):
            began = time.perf_counter()
            sockets[0].send_pyobj(number)
            sockets[0].recv_pyobj()
            took.append(time.perf_counter() - began)
        figures["zmq rtt_us"] = _median(took) * 1e6
        state = state_dict()
        for socket in sockets:
            socket.send_pyobj(("read", broadcasts))
        took = []
        for _ in range(broadcasts):
            began = time.monotonic()
            for socket in sockets:
                socket.send_pyobj(state)
            took.append(max(socket.recv_pyobj() for socket in sockets) - began)
        figures["zmq broadcast_ms"] = _median(took) * 1e3
        sockets[0].send_pyobj(("write", fragments))
        sockets[0].recv_pyobj()
        began = time.perf_counter()
        for _ in range(fragments - 1):
            sockets[0].recv_pyobj()
        figures["zmq gb_per_s"] = (fragments - 1) * size / (time.perf_counter() - began) / 1e9
        for socket, worker in zip(sockets, workers, strict=True):
            socket.send_pyobj(None)
            worker.join()
            socket.close()
    own.term()
    return figures


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
