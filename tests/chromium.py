"""A real browser for tests: headless Chromium, spoken to over a pipe."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
    --disable-background-networking --disable-component-update --disable-dev-shm-usage
    --hide-scrollbars --remote-debugging-pipe"""

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="there is no chromium here")


class Browser:
    """One page of a browser: what it asked for, and what went wrong on it, is noted."""

    def __init__(self, to, answers):
        self._to, self._from = to, answers
        self._number = 0
        self._session = None
        self.requests, self.complaints, self.loaded = [], [], 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Do something, and return what came of it."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def _next(self):
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser has left"
            text += byte
        told = json.loads(text)
        name, what = told.get("method"), told.get("params", {})
        if name == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif name == "Log.entryAdded" and what["entry"]["level"] in ("warning", "error"):
            self.complaints.append(what["entry"]["text"])
        elif name in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(what))
        elif name == "Page.loadEventFired":
            self.loaded += 1
        return told

    def open(self, url, width=1200, height=900, dark=False):
        """Open an address in a window of a size, and wait until it is loaded."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        before = self.loaded
        self.call("Page.navigate", url=url)
        while self.loaded == before:
            self._next()

    def run(self, code):
        """Return the value of a piece of JavaScript, which may be a promise."""
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, condition):
        """Wait until a piece of JavaScript is true, at most 15 seconds."""
        assert self.run(
            "new Promise(done => { const end = Date.now() + 15000; const look = () => "
            f"({condition}) ? done(true) : Date.now() > end ? done(false) : setTimeout(look, 20);"
            " look(); })"
        ), condition

    def press(self, key):
        """Press a key."""
        code = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Enter": 13, "Home": 36, "End": 35}
        for kind in ("keyDown", "keyUp"):
            number = code[key]
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=number, **text,
            )  # fmt: skip

    def point(self, x, y):
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path):
        """Save what is to be seen."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browser():
    """Start a browser with an empty profile, and end it."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *FLAGS.split(), f"--user-data-dir={profile}"]
        child = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", *command],
            pass_fds=(to_read, from_write),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(from_write)
        with open(to_write, "wb") as to, open(from_read, "rb") as answers:
            try:
                yield Browser(to, answers)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
