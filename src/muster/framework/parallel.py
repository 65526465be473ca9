"""`Parallel.runner`: the same program on many nodes.

Parallel.runner(3, topology="star")(main)   ->   [the result of main on each node]
"""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.container import whole_cores
from muster.errors import OptionError
from muster.framework import topology as topologies
from muster.framework.driver import DriverLink
from muster.framework.labels import environment_labels, parse_labels
from muster.framework.node import Place, current_node
from muster.framework.sendable_main import sendable
from muster.spelling import nearest

ENGINES = {"local": "muster.engines.local", "ray": "muster.engines.ray"}
"""The module of each engine, by name, so that only the engine in use is imported."""

ELASTIC = frozenset({"ray"})
"""Engines whose nodes may join and leave while a program runs."""

POLICIES = ("stop", "restart", "resume")


class Parallel:
    """Runs programs on several nodes."""

    @classmethod
    def prepare(cls, *modules: str, engine: str = "local", address: str | None = None) -> None:
        """Announce modules that nodes of a later run will import, so that they are loaded in time.

        Returns at once, so a program that has other work first loses no time. Only an address is
        checked, which takes a second; raises OptionError if it has no cluster to run on.

        Args:
            *modules: Names of the modules.
            engine: As for `runner`.
            address: As for `runner`.
        """
        _check_choice("engine", engine, tuple(ENGINES))
        checked = _address(address, engine)
        importlib.import_module(ENGINES[engine]).ENGINE.prepare(modules, checked)

    @classmethod
    def runner(
        cls,
        n_parallel_workers: int | None = None,
        topology: str = "star",
        engine: str = "local",
        roles: Mapping[str, int | tuple[int, int]] | None = None,
        labels: Sequence[str] | Mapping[int, Sequence[str]] | None = None,
        on_failure: Mapping[Any, str] | str | None = None,
        max_restarts: int = 5,
        hang_after: float = 300.0,
        start_within: float = 300.0,
        grace: float = 10.0,
        threads: int | None = None,
        pin: bool = False,
        log_dir: str | Path | None = None,
        resources: Mapping[Any, Mapping[str, float]] | None = None,
        address: str | None = None,
        quiet: bool = False,
        on_signal: str | int | Sequence[str | int] | None = None,
        driver: DriverLink | None = None,
    ) -> Callable[..., list[Any]]:
        """Return a function that runs `main(*args, **kwargs)` on every node.

        The function returns the result of each node, and raises `NodeError` if a node fails.

        Args:
            n_parallel_workers: Number of nodes; may be omitted if `roles` is given.
            topology: Who receives the values that a loop shares: `star` (node 0 and each other
                node), `mesh` (every node), `alone` (no node).
            engine: What runs the nodes: `local`, processes on this machine; `ray`, a Ray cluster.
            roles: Number of nodes per role; node ids follow this order. One role, but not the
                first, may be a range `(least, most)`. On a Ray cluster such a role is elastic: the
                program begins with the least, more nodes join as soon as there is room, and nodes
                whose machine is lost leave without ending the program. On this machine the range
                becomes one number: as many nodes as there are cores, within the range.
            labels: Additional labels, for all nodes or by node id.
            on_failure: What to do when a node is killed or hangs, by role or node id, or one for
                all: `stop` the run (the default), `restart` the node, or `resume` it, which is a
                restart that the program can see (`task.router.resumed`).
            max_restarts: How often a node may be replaced; a minute of progress resets the count.
            hang_after: Seconds without a loop, an environment step or a wait of muster's own after
                which a node counts as hung.
            start_within: The same limit for the start of a node.
            grace: Seconds that a node has to end once the run has ended.
            threads: Threads of numeric libraries in each node; by default the cores are shared.
            pin: Bind each node to its own cores.
            log_dir: Directory for the output of each node (`node.<id>.log`), which is also shown.
            resources: Resources reserved for a node, by role or node id:
                `{"learner": {"num_gpus": 1}}`. Only the Ray engine reserves them; 1 CPU by default.
            address: `HOST:PORT` of a running Ray cluster, for the Ray engine only; by default the
                run starts its own cluster on this machine, and ends it.
            quiet: Report a replaced node in its log only. Otherwise a line on standard error names
                the node, the reason, and how long it took until the node ran again.
            on_signal: The nodes that a SIGINT, SIGTERM or SIGHUP asks to finish, by role or node
                id; all by default. The other nodes keep running, so that these can use them while
                they save, and end when the first of these ends the run.
            driver: Messages between the caller, on another thread, and node 0.
        """
        _check_choice("topology", topology, topologies.TOPOLOGIES)
        _check_choice("engine", engine, tuple(ENGINES))
        crew = _roles(n_parallel_workers, roles, engine)
        role_of = crew.role_of
        _check_seconds(hang_after=hang_after, start_within=start_within, grace=grace)
        _check_count("max_restarts", max_restarts, 0)
        if threads is not None:
            _check_count("threads", threads, 1)
        own = _labels(labels, len(role_of))
        options = {
            "places": _places(crew, topology, own),
            "late": crew.late,
            "on_failure": _policies(on_failure, role_of),
            "max_restarts": max_restarts,
            "hang_after": hang_after,
            "start_within": start_within,
            "grace": grace,
            "threads": threads,
            "pin": pin,
            "resources": _resources(resources, role_of),
            "address": _address(address, engine),
            "quiet": quiet,
            "on_signal": _signalled(on_signal, role_of),
            "driver": driver,
        }

        def run(main: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
            if current_node() is not None:
                raise OptionError(
                    "Parallel.runner was called on a node",
                    "a node cannot start nodes of its own",
                    "call it where the program begins, not in main",
                )
            main, args, kwargs = sendable(main, args, kwargs)
            logs = None if log_dir is None else Path(log_dir).resolve()
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
            module = importlib.import_module(ENGINES[engine])
            launch = importlib.import_module("muster.engines.base").Launch(
                main=main, args=args, kwargs=kwargs, log_dir=logs, **options
            )
            results: list[Any] = module.ENGINE.run(launch)
            return results

        return run


@dataclass(frozen=True, slots=True)
class _Crew:
    """The nodes of a program."""

    role_of: tuple[str | None, ...]
    """The role of every node, by its id."""
    elastic: frozenset[int] = frozenset()
    """Nodes that may join and leave."""
    late: frozenset[int] = frozenset()
    """Elastic nodes that the program begins without."""


def _roles(
    count: int | None, roles: Mapping[str, int | tuple[int, int]] | None, engine: str
) -> _Crew:
    """Return the nodes with their roles."""
    if roles is None:
        _check_count("n_parallel_workers", count, 1)
        assert count is not None
        return _Crew((None,) * count)
    if not isinstance(roles, Mapping) or not roles:
        raise OptionError(
            f"roles={roles!r} is not possible",
            "roles must map each role to a number of nodes",
            'roles={"learner": 1, "actor": 3}',
        )
    ranges = _ranges(roles)
    for role, number in roles.items():
        parse_labels("roles", role)
        if role not in ranges:
            _check_count(f"roles[{role!r}]", number, 0)
    most = {role: number for role, number in roles.items() if isinstance(number, int)}
    for role, (low, high) in ranges.items():
        cores_left = whole_cores() - sum(most.values())
        most[role] = high if engine in ELASTIC else min(high, max(low, cores_left))
    total = sum(most.values())
    if total == 0 or (count is not None and count != total):
        raise OptionError(
            f"n_parallel_workers={count} and roles={dict(roles)} contradict each other",
            f"the roles have {total} nodes in total",
            f"n_parallel_workers={max(total, 1)}",
        )
    role_of = tuple(role for role in roles for _ in range(most[role]))
    if not ranges or engine not in ELASTIC:
        return _Crew(role_of)
    ((role, (low, _)),) = ranges.items()
    elastic = [node for node, its_role in enumerate(role_of) if its_role == role]
    return _Crew(role_of, frozenset(elastic), frozenset(elastic[low:]))


def _ranges(roles: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the roles that are ranges: at most one, and not the role of node 0."""
    found = {role: number for role, number in roles.items() if isinstance(number, tuple | list)}
    for role, number in found.items():
        what = f"roles[{role!r}]={number!r} is not possible"
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in number)
        if len(number) != 2 or not whole or not 1 <= number[0] <= number[1]:
            why = "a range is the least and the most nodes of the role, and the least is 1 or more"
            raise OptionError(what, why, f"roles={{..., {role!r}: (2, 14)}}")
        if len(found) > 1:
            raise OptionError(what, "only one role of a program can be a range", "roles[...]=2")
        if role == next(iter(roles)):
            raise OptionError(
                what,
                "node 0 has this role, and a program cannot run without node 0",
                f"roles={{'learner': 1, {role!r}: {tuple(number)}}}",
            )
    return {role: (number[0], number[1]) for role, number in found.items()}


def _labels(
    labels: Sequence[str] | Mapping[int, Sequence[str]] | None, size: int
) -> list[frozenset[str]]:
    if labels is None:
        return [frozenset()] * size
    if not isinstance(labels, Mapping):
        return [frozenset(parse_labels("labels", labels))] * size
    for node in labels:
        if not isinstance(node, int) or not 0 <= node < size:
            raise OptionError(
                f"labels has node {node!r}",
                f"there are nodes 0 to {size - 1}",
                'labels={0: ["gpu"]}',
            )
    return [frozenset(parse_labels("labels", labels.get(node, ()))) for node in range(size)]


def _places(crew: _Crew, topology: str, own: list[frozenset[str]]) -> tuple[Place, ...]:
    role_of = crew.role_of
    size = len(role_of)
    places = []
    for node, role in enumerate(role_of):
        labels = {"distributed", f"node.{node}"} | own[node] | environment_labels()
        if role is not None:
            labels.add(f"role.{role}")
        places.append(
            Place(
                node_id=node,
                size=size,
                role=role,
                roles=role_of,
                labels=frozenset(labels),
                peers=topologies.neighbours(topology, node, size),
                linked=topologies.linked(topology, node, size),
                elastic=crew.elastic,
            )
        )
    return tuple(places)


def _policies(
    on_failure: Mapping[Any, str] | str | None, role_of: tuple[str | None, ...]
) -> dict[int, str]:
    if on_failure is None:
        return {}
    if isinstance(on_failure, str):
        _check_choice("on_failure", on_failure, POLICIES)
        return dict.fromkeys(range(len(role_of)), on_failure)
    for who, policy in on_failure.items():
        _check_choice(f"on_failure[{who!r}]", policy, POLICIES)
    return _by_node("on_failure", on_failure, role_of)


def _resources(
    resources: Mapping[Any, Mapping[str, float]] | None, role_of: tuple[str | None, ...]
) -> dict[int, dict[str, float]]:
    example = 'resources={"learner": {"num_gpus": 1}}'
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise OptionError(
            f"resources={resources!r} is not possible",
            "resources must map roles to amounts",
            example,
        )
    for who, wanted in resources.items():
        if not isinstance(wanted, Mapping) or not all(isinstance(name, str) for name in wanted):
            raise OptionError(
                f"resources[{who!r}]={wanted!r} is not possible",
                "it must map names of resources to amounts",
                example,
            )
        for name, amount in wanted.items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number or not (0 <= amount < math.inf):
                raise OptionError(
                    f"resources[{who!r}][{name!r}]={amount!r} is not possible",
                    "it must be a number, 0 or more",
                    example,
                )
    found: dict[int, dict[str, float]] = _by_node("resources", resources, role_of)
    return found


def _signalled(
    on_signal: str | int | Sequence[str | int] | None, role_of: tuple[str | None, ...]
) -> frozenset[int]:
    """Return the ids of the nodes that a signal asks to finish."""
    if on_signal is None:
        return frozenset(range(len(role_of)))
    chosen = [on_signal] if isinstance(on_signal, str | int) else list(on_signal)
    nodes = frozenset(_by_node("on_signal", dict.fromkeys(chosen, True), role_of))
    if not nodes:
        raise OptionError(
            f"on_signal={on_signal!r} is not possible",
            "a signal would ask no node to finish",
            "on_signal=None, for all nodes",
        )
    return nodes


def _by_node(
    option: str, values: Mapping[Any, Any], role_of: tuple[str | None, ...]
) -> dict[int, Any]:
    """Convert values by role or node id to values by node id."""
    found: dict[int, Any] = {}
    known = sorted({role for role in role_of if role is not None})
    for who, value in values.items():
        nodes = [node for node, role in enumerate(role_of) if who in (node, role)]
        if not nodes:
            raise OptionError(
                f"{option} has {who!r}, which is not a node of this run",
                f"there are nodes 0 to {len(role_of) - 1}"
                + (f" and the roles {', '.join(known)}" if known else " and no roles"),
                f"{option}={{{known[0] if known else 0!r}: {value!r}}}",
            )
        found.update(dict.fromkeys(nodes, value))
    return found


def _address(address: str | None, engine: str) -> str | None:
    if address is not None and engine != "ray":
        raise OptionError(
            f"address={address!r} is not possible with engine={engine!r}",
            "an address is that of a Ray cluster",
            f'Parallel.runner(..., engine="ray", address={address!r})',
        )
    return address


def _check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        near = nearest(str(value), choices)
        raise OptionError(
            f"{option}={value!r} is not possible",
            f"there are: {', '.join(choices)}",
            f"{option}={(near or choices[0])!r}",
        )


def _check_count(option: str, value: object, at_least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise OptionError(
            f"{option}={value!r} is not possible",
            f"it must be a whole number, {at_least} or more",
            f"{option}={max(at_least, 2)}",
        )


def _check_seconds(**options: object) -> None:
    for option, value in options.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (value > 0) or math.isnan(value):  # type: ignore[operator, arg-type]
            raise OptionError(
                f"{option}={value!r} is not possible",
                "it must be a time in seconds",
                f"{option}=60",
            )
