"""`WarmPython`: runs programs in forks of a Python that has torch and muster loaded already.

A new Python spends three seconds of CPU on importing torch, and tests run many short programs. A
fork of a process that has done so begins at once. The parent of the forks has one thread, does
nothing but wait, and ends with the file of tests that uses it. A program sees what `python -c CODE`
would see, except that muster's own imports are over: tests of start-up take a new process.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

ZYGOTE = """
import json, os, socket, sys, types, warnings
import gymnasium, torch, muster.cli.main, muster.recipes.train  # what programs begin with
with socket.socket(fileno=int(sys.argv[1])) as asked:
    while True:
        assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
        message, fds, _, _ = socket.recv_fds(asked, 1 << 20, 2)
        if not message:
            sys.exit()
        child = os.fork()
        if child == 0:
            break
        for fd in fds:
            os.close(fd)
        asked.sendall(f"{child}\\n".encode())
        _, status = os.waitpid(child, 0)
        asked.sendall(f"{os.waitstatus_to_exitcode(status)}\\n".encode())
del os.environ["OPENBLAS_NUM_THREADS"]
os.setsid()
for target, fd in enumerate(fds, 1):
    os.dup2(fd, target)
    os.close(fd)
request = json.loads(message)
os.chdir(request["cwd"])
sys.argv[:] = ["-c", *request["arguments"]]
for word in request["warnings"]:
    action, _, category = word.partition("::")
    warnings.filterwarnings(action, category=getattr(__builtins__, category or "Warning"))
main = sys.modules["__main__"] = types.ModuleType("__main__")
main.__builtins__ = __builtins__
exec(compile(request["code"], "<string>", "exec"), main.__dict__)
"""


class WarmPython:
    """Runs programs, one at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-c", ZYGOTE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # which has threads otherwise
                stdin=subprocess.DEVNULL,
            )
        self._answers = self._socket.makefile()

    def run(self, code, *arguments, cwd, warnings=(), timeout=300):
        """Run a program as `python -c` would, and return it as `subprocess.run` does.

        Args:
            code: The program.
            arguments: What follows it on the command line.
            cwd: Where it runs.
            warnings: As behind `-W`: an action, or `action::Category`.
            timeout: Seconds after which it is killed, which is an error.
        """
        request = {
            "code": code, "arguments": arguments, "cwd": str(cwd), "warnings": warnings
        }  # fmt: skip
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            fds = [out.fileno(), err.fileno()]
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            pid = int(self._answers.readline())
            self._socket.settimeout(timeout)
            try:
                status = int(self._answers.readline())
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                raise
            finally:
                self._socket.settimeout(None)
            out.seek(0)
            err.seek(0)
            printed, said = out.read().decode(), err.read().decode()
        return subprocess.CompletedProcess(["-c", *arguments], status, printed, said)

    def close(self):
        """End the process that is forked."""
        self._answers.close()
        self._socket.close()
        self._zygote.wait(60)
