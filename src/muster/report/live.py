"""`LivePage`: the page of one run, served to a browser on this machine while the run continues.

    GET /?token=...        the page
    GET /events?token=...  updates, as server-sent events
    POST /stop             asks the run to save and stop

Other sites open in the same browser must not have access. So the server listens on the loopback
interface only, answers only to its own name (a foreign `Host` indicates DNS rebinding), and
requires the token, which is in the printed address. For /stop the token has to be in a header, and
the `Origin` must be the page itself. No file is served by its path.
"""

import contextlib
import hmac
import json
import os
import secrets
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from muster.errors import MusterError
from muster.report.html import joined, tag
from muster.report.page import body, page, policy, title
from muster.report.runs import RunSummary, read_run
from muster.run.claim import WRITER, ask_to_stop, living_writer

TOKEN_HEADER = "X-Muster-Token"
_SCRIPTS = ("page.js", "live.js")
_ALSO = ("connect-src 'self'",)
_MOST_CONNECTIONS = 32
_SLOWEST_CLIENT_S = 10.0
_LOOK_EVERY_S = 0.5
_SIGN_OF_LIFE_S = 10.0
_SHARE = 20
"""Reading and drawing may use at most one part in so many of a core: training needs the rest."""
_FILES = ("metrics.jsonl", "result.json", "config.yaml", WRITER)


class LivePage:
    """A server of one run's page; a context manager. `serve` runs until `close` is called.

    Args:
        run: The run directory.

    Attributes:
        url: The address, with the token.

    Raises:
        RunDirectoryError: There is no run.
    """

    def __init__(self, run: str | Path) -> None:
        self._content = _PageContent(read_run(run).path)
        self._server = _PageServer(self._content)
        self.url = f"http://{self._server.hosts[0]}/?token={self._server.token}"

    def serve(self) -> None:
        """Answer requests until `close` is called from another thread."""
        self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """End `serve`, and every connection."""
        self._content.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> "LivePage":
        """Return this page."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the port."""
        self._content.closed.set()
        self._server.server_close()


class _PageContent:
    """The current content of the page, drawn once for all viewers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = threading.Event()
        self._mutex = threading.Lock()
        self._state: object = None
        self._not_before = 0.0
        self._number = 0
        self._event = b""
        self._asked: str | None = None

    def page(self) -> str:
        """Return the whole page."""
        run = read_run(self.path)
        stop = tag("button", "Save and stop", id="stop", type="button", disabled=True)
        head = tag("p", tag("span", run.status, id="status", role="status"), " ", stop)
        content = joined([head, tag("div", body([run]), id="live")])
        return page(content, title([run]), _SCRIPTS, _ALSO)

    def newer_than(self, number: int) -> tuple[int, bytes]:
        """Return the newest event and its number; an empty event if `number` is the newest."""
        with self._mutex:
            now = time.monotonic()
            state = self._look()
            if self._number == 0 or (state != self._state and now >= self._not_before):
                self._state = state
                self._event = self._draw()
                self._number += 1
                ended = time.monotonic()
                self._not_before = ended + max(_LOOK_EVERY_S, _SHARE * (ended - now))
            return self._number, b"" if number == self._number else self._event

    def stop(self) -> str:
        """Ask the run, once, to save and stop, and return the message for the user.

        A second signal would end the process without a checkpoint.
        """
        with self._mutex:
            run = read_run(self.path)
            if run.writer is None:
                return "No process is training this run."
            if self._asked == run.writer.nonce:
                return "The run was already asked to stop; it saves first."
            if ask_to_stop(self.path) is None:
                return "No process is training this run."
            self._asked = run.writer.nonce
            return "The run was asked to save and stop."

    def _look(self) -> object:
        """Return a value that changes whenever the content changes."""
        found: list[object] = [living_writer(self.path)]  # a killed writer changes no file
        for name in _FILES:
            try:
                status = os.stat(self.path / name)
            except OSError:
                found.append(None)
            else:
                # The writer's record is touched as a heartbeat, which is no change of content.
                found.append((status.st_ino, 0 if name == WRITER else status.st_mtime_ns))
        return found

    def _draw(self) -> bytes:
        run: RunSummary | None = None
        with contextlib.suppress(MusterError):  # its directory was removed
            run = read_run(self.path)
        told: dict[str, Any] = {"status": "gone", "running": False}
        if run is not None:
            told = {"status": run.status, "running": run.status == "running"}
            told["html"] = body([run])
        return f"data: {json.dumps(told)}\n\n".encode()


class _PageServer(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, content: _PageContent) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.token = secrets.token_urlsafe(32)
        self.hosts = [f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")]
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def server_bind(self) -> None:
        """Bind, without asking a name server for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a separate thread; the number of threads is limited."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then free the thread for the next request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that have disconnected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "muster", ""
    timeout = _SLOWEST_CLIENT_S

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Reject every HTTP method that is not defined here."""
        if name.startswith("do_"):
            return lambda: self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
        raise AttributeError(name)

    def do_GET(self) -> None:
        """Send the page or events, if host and token are valid."""
        asked = urlsplit(self.path)
        if self._host() is None:
            self._refuse(HTTPStatus.FORBIDDEN)
        elif asked.path not in ("/", "/events"):
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not self._is_token("".join(parse_qs(asked.query).get("token", [""]))):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif asked.path == "/":
            self._send(
                HTTPStatus.OK,
                "text/html; charset=utf-8",
                self._content.page().encode("utf-8", "replace"),
            )
        else:
            self._send_events()

    def do_POST(self) -> None:
        """Stop the run, if its own page requests it."""
        host = self._host()
        if self.path != "/stop":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
        elif (
            host is None
            or self.headers.get_all("Origin") != [f"http://{host}"]
            or not self._is_token(self.headers.get(TOKEN_HEADER, ""))
        ):
            self._refuse(HTTPStatus.FORBIDDEN)
        else:
            try:
                said = self._content.stop()
            except MusterError as error:
                said = f"It cannot be stopped from here: {error.args[1]}."
            self._send(HTTPStatus.OK, "text/plain; charset=utf-8", said.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the address contains the token."""

    @property
    def _content(self) -> _PageContent:
        return cast(_PageServer, self.server).content

    def _host(self) -> str | None:
        """Return the requested host name, if it is one of ours and the only one."""
        names = self.headers.get_all("Host") or []
        known = cast(_PageServer, self.server).hosts
        return names[0] if len(names) == 1 and names[0] in known else None

    def _is_token(self, given: str) -> bool:
        token = cast(_PageServer, self.server).token
        return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())

    def _refuse(self, status: HTTPStatus) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self._begin(status, kind)
        self.send_header("Content-Length", str(len(content)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _begin(self, status: HTTPStatus, kind: str) -> None:
        self.close_connection = True  # the rest of the request is not read
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Connection": "close",
            "Cache-Control": "no-store",
            "Content-Security-Policy": f"{policy(_SCRIPTS, _ALSO)}; frame-ancestors 'none'",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }.items():
            self.send_header(name, value)

    def _send_events(self) -> None:
        self._begin(HTTPStatus.OK, "text/event-stream")
        self.end_headers()
        number, last = 0, time.monotonic()
        # A browser that accepts nothing for so long is dropped; a heartbeat detects one that left.
        self.connection.settimeout(_SLOWEST_CLIENT_S)
        with contextlib.suppress(OSError):
            while not self._content.closed.is_set():
                number, event = self._content.newer_than(number)
                if event or time.monotonic() - last > _SIGN_OF_LIFE_S:
                    self.wfile.write(event or b":\n\n")
                    last = time.monotonic()
                self._content.closed.wait(_LOOK_EVERY_S)
