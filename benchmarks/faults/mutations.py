"""Every fault harness can fail: one fault is put into muster for each, which it must catch.

    python -m benchmarks.faults.mutations --json benchmarks/results/mutations.json

Each mutation is one replacement in a copy of the source. Its harness, with few trials, must end
with a violation on the copy, and without one on the source as it is (`--calm`, which takes as long
again). A replacement whose text is not in the source any more is an error: then the mutation has to
be written anew. Run it from the repository, as root where a harness needs that.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 900.0


@dataclass(frozen=True)
class Mutation:
    """A fault of muster's own, and the harness that has to notice it."""

    harness: tuple[str, ...]
    """The module under `benchmarks.faults`, and its options."""
    file: str
    """Under `src/muster`."""
    before: str
    after: str
    why: str
    """What is wrong then."""


MUTATIONS = {
    "checkpoint damage": Mutation(
        ("checkpoint_faults", "--only", "D7"),
        "run/reading.py",
        "if len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256:",
        "if len(data) != entry.size:",
        "a flipped bit of an array is loaded",
    ),
    "checkpoint writes": Mutation(
        ("checkpoint_faults", "--only", "D5"),
        "run/files.py",
        "        files.fsync(fd)\n    finally:\n",
        "    finally:\n",
        "what was written is not on the disk when it gets its name",
    ),
    "signals": Mutation(
        ("signals", "--only", "F1", "--count", "2"),
        "cli/train.py",
        "return 128 + signal.Signals(result.stop_signal)",
        "return 0",
        "a run that a signal ended says that it ended well",
    ),
    "wire": Mutation(
        ("wire_fuzz", "--inputs", "20000"),
        "flow/wire_format.py",
        "or set(map(type, sizes)) != {int} or min(sizes) < 0:",
        "or set(map(type, sizes)) != {int}:",
        "a buffer of a negative size is not refused as malformed",
    ),
    "deaths of nodes": Mutation(
        ("node_faults", "--kind", "A1", "--trials", "1"),
        "engines/supervisor.py",
        "member.restart_at = now + member.restart_policy.back_off()",
        "member.restart_at = 1e9 + now",
        "a node that was killed does not come back",
    ),
    "hangs of nodes": Mutation(
        ("node_faults", "--kind", "B1", "--trials", "1"),
        "engines/supervisor.py",
        "        if seconds > limit:\n",
        "        if seconds > 1000 * limit:\n",
        "a node that is stopped is never noticed",
    ),
    "strangers": Mutation(
        ("node_faults", "--kind", "G2-replay", "--trials", "1"),
        "engines/local/handshake.py",
        '    if not hmac.compare_digest(proof, _prove(b"newcomer", hello, nonce, known)):\n',
        "    if False:\n",
        "whoever does not know the token is let in",
    ),
    "stops of nodes": Mutation(
        ("node_faults", "--kind", "F2", "--trials", "1"),
        "engines/supervisor.py",
        "raise left or SystemExit(128 + self._signal)",
        "raise left or SystemExit(1)",
        "the exit code does not say which signal it was",
    ),
    "kills of workers": Mutation(
        ("worker_kills", "--trials", "2", "--env-steps", "100000"),
        "workers/learner_group.py",
        "            sums = self._sums[agent.train_iter % 2].copy()\n",
        "            sums = np.zeros(_SUMS)\n            agent.weights.vector[0] += 1e-3\n",
        "a worker that takes over goes on with other weights",
    ),
    "kills of roles": Mutation(
        ("role_kills", "--algo", "dqn", "--role", "learner", "--count", "2"),
        "recipes/roles.py",
        "    if task.router.resumed and store.last() is not None:\n",
        "    if False:\n",
        "a learner that was killed begins anew",
    ),
    "whole runs": Mutation(
        ("whole_runs", "--only", "ppo-serial", "--count", "5"),
        "recipes/in_step.py",
        "{name: start_from.parts[name] for name in agent.parts()}",
        '{"policy": start_from.parts["policy"]}',
        "a resumed run begins with an empty optimiser",
    ),
    "Ray's head lost": Mutation(
        ("ray_faults", "--kind", "K4-gcs", "--trials", "1"),
        "engines/ray/watch.py",
        '        self.lose(ClusterError(f"the Ray cluster {whose} is lost", why, fix))\n',
        '        self.lose(RuntimeError(f"the Ray cluster {whose} is lost", why, fix))\n',
        "a run whose cluster is lost ends in a traceback",
    ),
    "Ray's head back": Mutation(
        ("ray_faults", "--kind", "K4-stored", "--trials", "1"),
        "engines/ray/watch.py",
        "            elif self._silent > HEAD_SECONDS:\n",
        "            elif self._silent > 5.0:\n",
        "a head that is about to come back is given up",
    ),
    "Ray's stores full": Mutation(
        ("ray_faults", "--kind", "K6-disk", "--trials", "1"),
        "engines/ray/calls.py",
        "_ROOM_SECONDS = 20.0\n",
        "_ROOM_SECONDS = 2000.0\n",
        "a run that has no room to go on waits for ever",
    ),
    "Ray's calls lost": Mutation(
        ("ray_faults", "--kind", "K7-requests", "--trials", "1"),
        "engines/ray/replicas.py",
        "                call_until_answered(self._ask, begun=self._begun)\n",
        "                ray.wait([self._begun])\n",
        "what was lost on its way to another machine counts as written there",
    ),
    "Ray's machine drained": Mutation(
        ("ray_faults", "--kind", "K8", "--trials", "1"),
        "engines/ray/replicas.py",
        "            self._reaching(len(image))[: len(image)] = image\n",
        "            self._reaching(len(image))\n",
        "a machine that takes the place of another one does not get what the others know",
    ),
    "second user": Mutation(
        ("second_user", "--kind", "ray", "--trials", "1"),
        "engines/local/runtime_dir.py",
        "        yield directory\n",
        "        directory.chmod(0o777)\n        yield directory\n",
        "the private directory is open to every user",
    ),
}


def mutated(place: Path, mutation: Mutation) -> Path:
    """Return a copy of the source with the mutation in it."""
    source = place / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    file = source / "muster" / mutation.file
    text = file.read_text()
    if text.count(mutation.before) != 1:
        raise SystemExit(
            f"{mutation.file} has {mutation.before!r} {text.count(mutation.before)} times: "
            "write this mutation anew"
        )
    file.write_text(text.replace(mutation.before, mutation.after))
    return source


def run(harness: Sequence[str], source: Path, log: Path) -> int:
    """Run a harness on a source, and return its exit code."""
    module, *options = harness
    variables = {"MUSTER_SOURCE": str(source), "PYTHONPATH": f"{source}:{ROOT}"}
    with open(log, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.faults.{module}", *options],
            cwd=ROOT,
            env=os.environ | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
        )
    return done.returncode


def attempt(name: str, calm: bool) -> dict[str, Any]:
    """Return whether a harness catches its mutation, and is content without it."""
    mutation = MUTATIONS[name]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        code = run(mutation.harness, mutated(Path(folder), mutation), log)
        # A harness that does not run at all proves nothing: it must have counted a violation.
        noticed = code == 1 and "violations" in log.read_text(errors="replace")
        found: dict[str, Any] = {"harness": " ".join(mutation.harness), "why": mutation.why}
        found |= {"caught": noticed, "code": code}
        if not noticed:
            found["said"] = log.read_text(errors="replace")[-1500:]
        if calm:
            found["calm"] = run(mutation.harness, ROOT / "src", log) == 0
    return {**found, "seconds": round(time.monotonic() - started, 1)}


def main() -> None:
    """Try every mutation, print a line for each, and write the summary."""
    parser = argparse.ArgumentParser(description="Show that every fault harness can fail.")
    parser.add_argument("--only", nargs="+", choices=list(MUTATIONS), help="only these")
    parser.add_argument("--calm", action="store_true", help="run the harness without it, too")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text())["mutations"]
    failed = []
    for name in options.only or list(MUTATIONS):
        found[name] = attempt(name, options.calm)
        if not found[name]["caught"] or not found[name].get("calm", True):
            failed.append(name)
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
        if options.json:
            summary = {"command": "python -m benchmarks.faults.mutations", "mutations": found}
            options.json.write_text(json.dumps(summary, indent=2) + "\n")
    raise SystemExit(f"not caught: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
