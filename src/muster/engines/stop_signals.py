"""Signals that ask a run to end, as bytes that a selector can wait for."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from muster.framework.signals import STOP_SIGNALS


@contextmanager
def signals_as_bytes() -> Iterator[socket.socket | None]:
    """Yield a socket on which each SIGINT, SIGTERM and SIGHUP of the block is one byte.

    A signal that is ignored, as SIGHUP under nohup, stays ignored. None where this is not the main
    thread, which has the signals.
    """
    try:
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)

        def note(number: int, frame: FrameType | None) -> None:
            writer.send(bytes([number]))

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, note)
    except ValueError:
        reader.close()
        writer.close()
        yield None
        return
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()
