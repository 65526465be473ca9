"""Another user of this machine, who tries what can be tried on what a run has made.

    python stranger.py UID        a line of JSON with targets -> a line of JSON with what worked

Started by root, it becomes that user before its first attempt, with no group of anybody's. It only
looks, connects, and moves things away; whatever it moved it moves back. Imports nothing of muster:
where the user of the run has it, another user may not be let in.
"""

import encodings.idna  # noqa: F401  # http.client wants it, when it may not be found any more
import http.client
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

_SECONDS = 2.0
_HELLO = b"\x80\x04\x95" + b"x" * 61


def _list(path: str) -> None:
    os.listdir(path)


def _read(path: str) -> None:
    with open(path, "rb") as file:
        if not file.read(1):
            raise FileNotFoundError("nothing is there")  # as of a process that has ended


def _write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def _create(path: str) -> None:
    made = os.path.join(path, "stranger")
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.unlink(made)


def _move(path: str) -> None:
    away = f"{path}.moved"
    os.rename(path, away)
    os.rename(away, path)


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_SECONDS)
        link.connect(path)


def _heard_abstract(path: str) -> None:
    """Say something at an abstract socket, which has no owner; raises unless it is answered."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_SECONDS)
        link.connect(path.replace("@", "\0", 1))
        link.sendall(_HELLO)
        if not link.recv(1):
            raise ConnectionRefusedError("closed")


def _served_http(port: str) -> None:
    """Ask a port for all that HTTP may give; raises unless something was done for it."""
    link = http.client.HTTPConnection("127.0.0.1", int(port), timeout=_SECONDS)
    try:
        link.request("POST", "/get_or_create_runtime_env", body=b"")
        status = link.getresponse().status
    except http.client.HTTPException as error:
        raise ConnectionRefusedError(repr(error)) from None
    finally:
        link.close()
    if status in (401, 403):
        raise PermissionError(f"status {status}")


_TRIES: dict[str, list[Callable[[str], None]]] = {
    "directory": [_list, _create, _move],
    "file": [_read, _write, _move],
    "socket": [_connect, _move],
    "abstract": [_heard_abstract],
    "port": [_served_http],
    "secret": [_read],
    "shared": [_write, _move],
}
"""By kind of target. `shared`: may be read by whom its owner lets, and only changed by nobody."""


def attempts(targets: list[tuple[str, str]]) -> dict[str, Any]:
    """Try everything, and return how much that was and what of it worked."""
    tried, worked = 0, []
    for kind, target in targets:
        for attempt in _TRIES[kind]:
            tried += 1
            try:
                attempt(target)
            except OSError:
                continue
            worked.append([attempt.__name__.strip("_"), target])
    return {"tried": tried, "worked": worked, "uid": os.getuid()}


def main(uid: int) -> None:
    """Become that user, and try what is asked for until the end of the input."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    for line in sys.stdin:
        print(json.dumps(attempts(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
