"""Signals that ask a run to end, as bytes on a socket that a selector can wait for."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from muster.framework.signals import STOP_SIGNALS


@contextmanager
def signals_as_bytes() -> Iterator[socket.socket | None]:
    """Yield a socket that receives one byte for each SIGINT, SIGTERM and SIGHUP in this block.

    A signal that is ignored, such as SIGHUP under nohup, stays ignored. Yields None outside the
    main thread, because only the main thread can handle signals.
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
