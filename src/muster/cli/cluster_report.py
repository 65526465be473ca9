"""`muster doctor --address HOST:PORT`: the nodes of a Ray cluster, and what would fail on it.

    look()          runs a tiny task on every node of the joined cluster    a few seconds
    say(...)        lines of 80 columns, and what would fail

Only `look` touches the cluster; `say` is a function of its result.
"""

import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.cli.limits_here import WIDTH
from muster.engines.ray.cluster import joined, look_at, my_versions, ray_here
from muster.engines.ray.versions import asker

_ANSWER_SECONDS = 20.0
_GIB = 2**30
_ENDED_WELL = (1, 3, 4)
"""Ray's codes for expected deaths of a node: told to, preempted, idle."""
_REPORTED = ("python", "ray", "torch", "muster")


@dataclass(frozen=True)
class ClusterNode:
    """The facts about one machine of a cluster."""

    address: str
    total: Mapping[str, float] = field(default_factory=dict)
    free: Mapping[str, float] = field(default_factory=dict)
    """By Ray's names: CPU, GPU, memory, object_store_memory."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Of python, ray, torch and muster; None for packages that are not installed."""
    shared_memory: int | None = None
    """Size of /dev/shm in bytes, if there is one."""
    silent: str = ""
    """Why it did not report; empty if it did."""
    died: str = ""
    """Ray's message about its death; empty if it is alive."""


def report(address: str) -> int:
    """Print the findings; return 1 if something would fail."""
    about = look_at(address)
    with joined(address):
        nodes = look()
    lines, problems = say(address, about.auth, nodes, my_versions())
    print("\n".join(lines))
    return 1 if problems else 0


def look(seconds: float = _ANSWER_SECONDS) -> list[ClusterNode]:
    """Query every node of the joined cluster.

    Args:
        seconds: Time limit for the answers of all nodes together.
    """
    ray = ray_here()
    free = ray._private.state.available_resources_per_node()
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    ask = ray.remote(num_cpus=0, max_retries=0)(asker())
    seen = ray.nodes()
    answers = {
        node["NodeID"]: ask.options(
            scheduling_strategy=strategy(node["NodeID"], soft=False)
        ).remote()
        for node in seen
        if node["Alive"]
    }
    until = time.monotonic() + seconds
    found = []
    for node in seen:
        address, key = node["NodeManagerAddress"], node["NodeID"]
        if not node["Alive"]:
            if node["DeathReason"] not in _ENDED_WELL:
                found.append(
                    ClusterNode(address, died=node["DeathReasonMessage"] or "no reason given")
                )
            continue
        told: dict[str, Any] = {}
        silent = ""
        try:
            told = ray.get(answers[key], timeout=max(0.0, until - time.monotonic()))
        except ray.exceptions.GetTimeoutError:
            silent = f"no worker answered in {seconds:g} s"
        except ray.exceptions.RayError as error:
            silent = str(error).strip().splitlines()[-1]
        shared = told.pop("shared_memory", None)
        found.append(
            ClusterNode(address, node["Resources"], free.get(key, {}), told, shared, silent)
        )
    return sorted(found, key=lambda node: (node.died != "", node.address))


def say(
    address: str, auth: bool, nodes: Sequence[ClusterNode], mine: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the lines to show, and the problems among them.

    Args:
        address: Of the cluster.
        auth: Whether it requires a token.
        nodes: The result of `look`.
        mine: Versions in this process: muster, python and ray.
    """
    live = [node for node in nodes if not node.died]
    lines = [
        f"Ray cluster at {address}, {_counted(len(live), 'node')}",
        _row(
            "token",
            "required" if auth else "not required: anyone who can reach it can run programs",
        ),
        _row("here", ", ".join(f"{name} {mine[name]}" for name in sorted(mine))),
    ]
    for node in nodes:
        lines.append(f"node {node.address}{', dead' if node.died else ''}")
        if node.died:
            continue
        for name in ("CPU", "GPU"):
            lines.append(_row(f"{name}s", _free(node, name)))
        lines.append(_row("memory", _free(node, "memory", _GIB, " GiB")))
        lines.append(_row("store", _free(node, "object_store_memory", _GIB, " GiB")))
        versions = [f"{name} {node.versions.get(name) or '(none)'}" for name in _REPORTED]
        lines.append(_row("versions", "unknown" if node.silent else ", ".join(versions)))
    problems = [problem for node in nodes for problem in _problems(node, mine)]
    if live and not any(node.total.get("CPU") for node in live):
        problems.append("no node has a CPU: every node of a run needs one, unless told otherwise")
    lines.append("what would fail")
    lines += [f"  {problem}" for problem in problems or ["nothing that can be seen from here"]]
    return [row for line in lines for row in _wrapped(line)], problems


def _problems(node: ClusterNode, mine: Mapping[str, str]) -> list[str]:
    who = f"node {node.address}"
    if node.died:
        return [f"{who} died: {node.died}"]
    if node.silent:
        return [f"{who} could not be asked: {node.silent}"]
    found = []
    if node.versions.get("muster") is None:
        found.append(f"{who} has no muster: pip install muster-rl=={mine['muster']} there")
    if node.versions.get("torch") is None:
        found.append(f"{who} has no torch: pip install muster-rl=={mine['muster']} there")
    for name, version in mine.items():
        theirs = node.versions.get(name)
        if theirs is not None and theirs != version:
            found.append(f"{who} has {name} {theirs}, and this machine has {version}")
    store = node.total.get("object_store_memory", 0.0)
    if node.shared_memory is not None and node.shared_memory < store:
        found.append(
            f"{who} has {node.shared_memory / _GIB:.2g} GiB of /dev/shm for an object store of "
            f"{store / _GIB:.2g} GiB, which is then on disk and slow: docker run --shm-size=2g, "
            "or ray start --object-store-memory"
        )
    return found


def _free(node: ClusterNode, name: str, size: float = 1, unit: str = "") -> str:
    total, free = (each.get(name, 0.0) / size for each in (node.total, node.free))
    return f"{free:.3g} of {total:.3g}{unit} free" if total else "none"


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _row(name: str, text: str) -> str:
    return f"  {name:10} {text}"


def _wrapped(line: str) -> list[str]:
    """Wrap a line to the width; a message of Ray may contain line breaks."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        " ".join(line.split()) if "\n" in line else line.strip(),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,  # keeps options intact for copying
    )
