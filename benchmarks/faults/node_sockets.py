"""G: strangers at the sockets of the nodes. Every listener is found from the kernel's tables."""

import os
import pickle
import random
import re
import signal
import socket
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.node_misuse import network_sockets
from benchmarks.faults.node_scene import Broken, Trial, trial

from muster.engines.local import frames, handshake
from muster.engines.local.blocks import BlockPool
from muster.engines.local.frames import FrameError
from muster.engines.local.handshake import LinkRequest, Secrets
from muster.engines.local.link import Link
from muster.version import __version__

Outcome = dict[str, Any]
INPUTS = int(os.environ.get("MUSTER_FUZZ_INPUTS", "100000"))
IDLE = 10_000
MEMORY = 10 * 1024
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
TLS = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))


def listeners(it: Trial) -> dict[int, str]:
    """Return the path of each node's listening socket, from /proc/net/unix."""
    found = {}
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and fields[7].startswith(str(it.runtime)) and fields[3] == "00010000":
            node = re.search(r"node-(\d+)$", fields[7])
            if node is not None:
                found[int(node[1])] = fields[7]
    if len(found) != it.size:
        raise Broken(f"{len(found)} listeners of {it.size} nodes: {found}")
    return found


def other_listeners(it: Trial) -> list[str]:
    """Return listening sockets of the run that are not muster's."""
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    ours = [f[7] for f in lines if len(f) == 8 and f[7].startswith(str(it.runtime))]
    return sorted({path for path in ours if not re.search(r"/muster-[^/]*/node-\d+$", path)})


def memory(pids: list[int]) -> dict[int, int]:
    """Return the memory in use, in kB, of each process."""
    found = {}
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                found[pid] = int(line.split()[1])
    return found


def connect(path: str) -> socket.socket:
    """Return a connection to a listener."""
    sock = socket.socket(socket.AF_UNIX)
    # Without a timeout of Python's it waits for room in the backlog; the kernel keeps the time.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 10, 0))
    sock.connect(path)
    sock.settimeout(5.0)
    return sock


def hello_to(node: int, known: Secrets, incarnation: int = 0) -> tuple[LinkRequest, bytes]:
    """Return a hello to a node, by another that is said to be its neighbour."""
    hello = LinkRequest.fresh(2 if node != 2 else 3, 7, node, incarnation)
    return hello, handshake.pack_link_request(hello, known)


def fuzz(rng: random.Random, good: bytes) -> bytes:
    """Return something that no node says."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 400))
    if kind == 1:
        return good[: rng.randrange(len(good))]
    if kind == 2:
        flipped = bytearray(good)
        flipped[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if kind == 3:
        return b"\xff" * rng.choice((4, 32, 86, 400))
    if kind == 4:
        return struct.pack("<I", 2**32 - 1) + rng.randbytes(rng.randrange(100))
    if kind == 5:
        return rng.choice((HTTP, TLS))
    if kind == 6:
        return good + rng.randbytes(32)
    sizes = [rng.choice((0, 1, 2**31, 2**32 - 1)) for _ in range(3)]
    return struct.pack("<2sBBIIIQQ", b"mu", 1, 1, *sizes, 2**64 - 1, 1) + good


def _unaffected(it: Trial, births: int = 0) -> None:
    if it.driver.poll() is not None:
        raise Broken(f"the driver left with {it.driver.returncode}")
    roles = ("learner", "evaluator", "actor")
    if sum(event["inc"] for role in roles for event in it.newest(role)) != births:
        raise Broken("a node was replaced")
    before = it.history()["items"]
    it.wait(lambda: it.history()["items"] > before + 5, "items to go on", 10.0)


def _pester(it: Trial, paths: dict[int, str], inputs: int) -> int:
    """Give inputs to the listeners in turn; return how many were taken."""
    strange = Secrets.fresh(__version__)
    sent = 0
    drip: list[socket.socket] = []
    try:
        for number in range(inputs):
            node = number % it.size
            sock = connect(paths[node])
            drip.append(sock)
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(fuzz(it.rng, hello_to(node, strange)[1]))
                sent += 1
                if number % 100 == 0:  # half-open: it says no more, and listens
                    sock.shutdown(socket.SHUT_WR)
                    sock.recv(4096)
            if number % 50 == 1:  # this one stays open, and says a byte now and then
                for old in drip[-20:]:
                    with suppress(OSError):
                        old.send(b"M")
                if len(drip) > 200:
                    drip.pop(0).close()
            else:
                drip.pop().close()
    except OSError as error:
        raise Broken(f"after {sent} inputs a node could not be reached: {error}") from None
    finally:
        for sock in drip:
            sock.close()
    return sent


def fuzz_listeners(seed: int, faulty: bool) -> Outcome:
    """G1: fuzz inputs to every listener, and to the program it is nothing."""
    with trial(seed, config={"pace": 0.05}) as it:
        it.ready()
        paths, pids = listeners(it), it.nodes()
        for path in paths.values():  # so that what is used once is there
            with connect(path) as sock:
                sock.sendall(HTTP)
        time.sleep(0.5)
        first = memory(pids)
        sent = _pester(it, paths, INPUTS if faulty else 0)
        _unaffected(it)
        grown = max(memory(pids)[pid] - first[pid] for pid in pids)
        if faulty and grown > MEMORY:
            raise Broken(f"memory grew by {grown} kB")
        others = other_listeners(it)
        if others:
            raise Broken(f"somebody could connect to {others}")
        it.finish()
        out: Outcome = {"n": max(sent, 1), "landed": sent, "grown_kb": grown}
        return out | {"listeners": len(paths), "not_musters": len(others)} | it.look_round()


def fuzz_frames(seed: int, faulty: bool) -> Outcome:
    """G1: the same number of inputs to the parser of a link that has proved itself."""
    rng = random.Random(seed)
    outcomes = {"refused": 0, "read": 0, "incomplete": 0}
    slowest, first = 0.0, 0
    for number in range(INPUTS if faulty else 100):
        if number == 1000 or not faulty:
            first = memory([os.getpid()])[os.getpid()]
        ours, theirs = socket.socketpair()
        link = Link(ours, 1, 0, BlockPool(lambda block: None), lambda link: None)
        head = rng.randbytes(rng.randrange(64))
        tree = rng.randbytes(rng.randrange(64))
        good = frames.pack_header(frames.DATA, 0, len(head), len(tree), 0, len(tree)) + head + tree
        data = fuzz(rng, good) if faulty else good
        theirs.sendall(data)
        theirs.close()
        started = time.perf_counter()
        try:
            outcome = "read" if list(link.read()) else "incomplete"
        except EOFError:
            outcome = "incomplete"
        except FrameError:
            outcome = "refused"
        finally:
            link.close()
        outcomes[outcome] += 1
        slowest = max(slowest, time.perf_counter() - started)
    grown = memory([os.getpid()])[os.getpid()] - first
    if grown > MEMORY or slowest > 2.0:
        raise Broken(f"memory grew by {grown} kB; the slowest took {slowest:.2f} s")
    if not faulty and outcomes["read"] != 100:
        raise Broken(f"good frames were not read: {outcomes}")
    total = sum(outcomes.values())
    return {"n": total, "landed": total, "t_slowest": slowest, "grown_kb": grown, **outcomes}


def _attempt(path: str, said: bytes, proof: bytes) -> bool:
    """Return whether somebody who says this is let in."""
    with connect(path) as sock:
        try:
            sock.sendall(said)
            answer = b""
            while len(answer) < handshake.ANSWER_SIZE and (more := sock.recv(4096)):
                answer += more
            sock.sendall(proof)
            sock.sendall(frames.pack_header(frames.DATA, head_size=4) + b"head")
            sock.settimeout(1.0)
            while sock.recv(4096):
                pass
            return False  # it was closed
        except TimeoutError:
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False


def tokens(seed: int, faulty: bool) -> Outcome:
    """G2: no token, a wrong one, that of another run, with the right run id, a proof of zeros."""
    with trial(seed) as it, trial(seed + 1000) as other:
        it.ready()
        other.ready()
        paths, elsewhere = listeners(it), listeners(other)
        accepted = tries = 0
        for node, path in paths.items() if faulty else ():
            for known in (Secrets.fresh(__version__), Secrets(bytes(16), bytes(32), b"0")):
                hello, said = hello_to(node, known)
                nonce = bytes(32)
                for proof in (b"", bytes(32), os.urandom(32)):
                    accepted += _attempt(path, said, proof)
                    tries += 1
                accepted += _attempt(path, said, handshake._prove(b"newcomer", hello, nonce, known))
                tries += 1
            # What a node of another run answers is no answer here: both sides hear each other.
            with connect(path) as here, connect(elsewhere[node]) as there:
                said = hello_to(node, Secrets.fresh(__version__))[1]
                here.sendall(said)
                there.sendall(said)
                replies = [sock.recv(4096) for sock in (here, there)]
                accepted += any(any(reply[26:]) for reply in replies)  # a nonce or a proof
                tries += 1
        if accepted:
            raise Broken(f"{accepted} of {tries} were let in")
        _unaffected(it)
        for each in (it, other):
            each.finish()
            each.look_round()
        return {"landed": int(tries > 0), "attempts": tries, "accepted": accepted}


def idle(seed: int, faulty: bool) -> Outcome:
    """G3: 10,000 idle connections; a node that is replaced meanwhile joins all the same."""
    with trial(seed) as it, ExitStack() as held:
        it.ready()
        paths = listeners(it)
        out: Outcome = {"landed": 0}
        opened = 0
        for number in range(IDLE if faulty else 0):
            sock = held.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(paths[number % it.size])  # waits while the backlog is full
            opened += 1
        fault = it.aim(it.newest("actor")[0])
        fault.send(9)
        out["t_detect"], _ = it.replaced(fault)
        out["t_recover"] = it.works_again(fault)
        if out["t_recover"] - out["t_detect"] > 1.0 + 1.0:
            raise Broken(f"it took {out['t_recover']:.1f} s to join")
        out |= {"landed": int(opened == IDLE), "connections": opened}
        held.close()
        it.finish()
        return out | it.look_round()


def burst(seed: int, faulty: bool) -> Outcome:
    """G1: a node is stopped; 64 strangers come and 64 others leave; it hears of all at once."""
    with trial(seed) as it, ExitStack() as old, ExitStack() as new:
        it.ready()
        node, path = sorted(listeners(it).items())[seed % it.size]
        landed = 0
        if faulty:
            for _ in range(64):
                old.enter_context(connect(path))
            it.later(0.1, 0.2)
            roles = ("learner", "evaluator", "actor")
            born = {event["node"]: event for role in roles for event in it.newest(role)}
            fault = it.aim(born[node])
            fault.send(signal.SIGSTOP)
            it.wait(fault.stopped, "it to be stopped", 2.0)
            for _ in range(64):
                new.enter_context(connect(path))
            old.close()
            landed = int(fault.send(signal.SIGCONT))
            it.later(0.1, 0.3)
        _unaffected(it)
        new.close()
        it.finish()
        return {"landed": landed} | it.look_round()


class Canary:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def canary(seed: int, faulty: bool) -> Outcome:
    """G4 and G5: pickles to every listener run nothing; no listener is on a network."""
    with trial(seed) as it:
        it.ready()
        target = it.place / "canary"
        for protocol in range(6) if faulty else ():
            bad = pickle.dumps(Canary(target), protocol)
            for node, path in listeners(it).items():
                good = hello_to(node, Secrets.fresh(__version__))[1]
                length = struct.pack("!i", len(bad))
                for data in (bad, length + bad, good + bad, bad.ljust(len(good), b".") + bad):
                    with connect(path) as sock, suppress(OSError):
                        sock.sendall(data)
        it.later(0.1, 0.2)
        if target.exists():
            raise Broken("a pickle was run")
        if network_sockets(it):
            raise Broken("it listens on the network")
        _unaffected(it)
        it.finish()
        return {"landed": int(faulty), "executions": 0, "off_loopback": 0} | it.look_round()


def versions(seed: int, faulty: bool) -> Outcome:
    """G9: another protocol, or another version of the library, is refused with both values."""
    with trial(seed) as it:
        it.ready()
        node, path = sorted(listeners(it).items())[seed % it.size]
        if faulty:
            said = bytearray(hello_to(node, Secrets.fresh(__version__))[1])
            if seed % 2:
                said[8:10] = struct.pack("<H", handshake.PROTOCOL + 1 + seed)
                theirs = f"(protocol {handshake.PROTOCOL + 1 + seed})"
            else:
                said[10:26] = f"9.9.{seed}".encode().ljust(16, b"\0")
                theirs = f"muster 9.9.{seed} "
            with connect(path) as sock:
                sock.sendall(said)
                answer = sock.recv(4096)
            if answer[:8] != b"MUSTER\r\n" or any(answer[26:]):
                raise Broken(f"the answer is {answer!r}")
            log = it.place / "logs" / f"node.{node}.log"
            wanted = (theirs, f"this one {__version__} (protocol {handshake.PROTOCOL})")
            it.wait(lambda: all(w in log.read_text() for w in wanted), f"{wanted} in the log", 5.0)
        _unaffected(it)
        it.finish()
        return {"landed": int(faulty)} | it.look_round()


KINDS = {
    "G1-listeners": fuzz_listeners,
    "G1-frames": fuzz_frames,
    "G1-burst": burst,
    "G2": tokens,
    "G3": idle,
    "G4": canary,
    "G9": versions,
}
ONCE = {"G1-listeners", "G1-frames"}
