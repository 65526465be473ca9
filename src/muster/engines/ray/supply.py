"""Checks that a cluster has the resources that the nodes of a run need: at once or after a wait.

Ray itself waits forever, silently, for resources that it does not have.
"""

import importlib
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from muster.errors import OptionError

Resources = Mapping[str, float]

_WAIT_SECONDS = 5.0
_WAIT_VARIABLE = "MUSTER_RAY_WAIT"
_POLL = 0.1
_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU"}
_DUST = 1e-6


def check_supply(needs: Mapping[str, Resources]) -> None:
    """Raise OptionError if the joined cluster cannot provide the resources.

    Resources that the cluster does not have are an error at once; resources that are only busy are
    an error after 5 seconds. MUSTER_RAY_WAIT sets another number of seconds, and then the wait
    includes resources that the cluster does not have yet; the cluster is asked to grow meanwhile.

    Args:
        needs: By the name of a node, such as `node 2 (actor)`, its resources, named as in Ray's
            options: `num_cpus`, `num_gpus`, `memory` in bytes, or a name of your own.

    Raises:
        OptionError: The message names need and supply.
    """
    wanted = {name: _as_resources(need) for name, need in needs.items()}
    asked = patience()
    grows = asked is not None
    seconds = _WAIT_SECONDS if asked is None else asked
    totals, free = _machines()
    if not grows:
        _refuse_impossible(wanted, totals, free)
    if _fit(list(wanted.values()), free):
        return
    if grows:
        _ask_to_grow(list(wanted.values()))
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(_POLL)
            totals, free = _machines()
            if _fit(list(wanted.values()), free):
                return
    finally:
        if grows:
            _ask_to_grow([])
    _refuse_impossible(wanted, totals, free, after=f" after {seconds:g} s")
    names = _names_of(wanted)
    raise OptionError(
        _say_need(wanted),
        f"the cluster has {_say(_sum(totals), names)}, and of it free, after {seconds:g} s, only "
        f"{_say(_sum(free), names)}",
        f"{_less(wanted, names, _sum(free))}, or {_WAIT_VARIABLE}=600 to wait longer",
    )


def _refuse_impossible(
    wanted: Mapping[str, Resources],
    totals: Sequence[Resources],
    free: Sequence[Resources],
    after: str = "",
) -> None:
    have = _sum(totals)
    need = _sum(list(wanted.values()))
    lacking = [name for name in need if need[name] > have.get(name, 0.0) + _DUST]
    if lacking:
        names = _names_of(wanted)
        raise OptionError(
            _say_need(wanted),
            f"the cluster has {_say(have, names)}{after} ({_say_free(free, names)})",
            f"{_less(wanted, lacking, have)}, or a larger cluster",
        )
    for name, one in wanted.items():
        if not any(_fits(one, machine) for machine in totals):
            names = [resource for resource in one if one[resource] > 0]
            largest = max(totals, key=lambda machine: [machine.get(each, 0.0) for each in names])
            raise OptionError(
                f"{name} needs {_say(one, names)}",
                f"no machine of the cluster has that{after}; the largest has "
                f"{_say(largest, names)}, all {len(totals)} together {_say(have, names)}",
                f"{_less({name: one}, names, largest)}, or a larger machine",
            )
    if not _fit(list(wanted.values()), totals):
        names = _names_of(wanted)
        each = "; ".join(_say(machine, names) for machine in totals[:8])
        raise OptionError(
            _say_need(wanted),
            f"that does not fit side by side on the cluster's machines{after}, which have {each}",
            f"{_less(wanted, names, have)}, or larger machines",
        )


def _machines() -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return the resources of each live machine, and the free part of them."""
    state: Any = importlib.import_module("ray._private.state")
    free = state.available_resources_per_node()
    alive = [node for node in state.nodes() if node["Alive"]]
    return (
        [dict(node["Resources"]) for node in alive],
        [dict(free.get(node["NodeID"], {})) for node in alive],
    )


def _fit(needs: Sequence[Resources], machines: Sequence[Resources]) -> bool:
    """Whether all needs fit: the largest first, by any one resource, on the fullest machine.

    Ray does not try harder. With several resources, another order might still fit.
    """
    names = sorted(_sum(needs)) or ["CPU"]
    return any(_fit_by(name, needs, machines) for name in names)


def _fit_by(name: str, needs: Sequence[Resources], machines: Sequence[Resources]) -> bool:
    left = [dict(machine) for machine in machines]
    for need in sorted(needs, key=lambda need: need.get(name, 0.0), reverse=True):
        with_room = [machine for machine in left if _fits(need, machine)]
        if not with_room:
            return False
        fullest = min(with_room, key=lambda machine: machine.get(name, 0.0))
        for resource, amount in need.items():
            fullest[resource] = fullest.get(resource, 0.0) - amount
    return True


def _fits(need: Resources, machine: Resources) -> bool:
    return all(amount <= machine.get(name, 0.0) + _DUST for name, amount in need.items())


def _as_resources(need: Resources) -> dict[str, float]:
    return {_NAMES.get(name, name): float(amount) for name, amount in need.items() if amount}


def _sum(each: Sequence[Resources]) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in each:
        for name, amount in one.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _ask_to_grow(bundles: Sequence[Resources]) -> None:
    """Tell an autoscaler which resources to provide; a cluster without one ignores it."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[dict(bundle) for bundle in bundles])


def patience() -> float | None:
    """Return how many seconds the user wants to wait for resources; None if not set."""
    text = os.environ.get(_WAIT_VARIABLE)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise OptionError(
            f"{_WAIT_VARIABLE}={text!r:.80} is not a time",
            "it must be the number of seconds to wait for resources of a Ray cluster",
            f"export {_WAIT_VARIABLE}=600",
        )
    return seconds


# ---- wording


def _names_of(wanted: Mapping[str, Resources]) -> list[str]:
    """Return the names of the needed resources, CPUs and GPUs first."""
    names = sorted(_sum(list(wanted.values())))
    first = [name for name in ("CPU", "GPU") if name in names]
    return first + [name for name in names if name not in first]


def _say_need(wanted: Mapping[str, Resources]) -> str:
    who = f"{len(wanted)} nodes need" if len(wanted) != 1 else f"{next(iter(wanted))} needs"
    return f"{who} {_say(_sum(list(wanted.values())), _names_of(wanted))}"


def _say_free(free: Sequence[Resources], names: Sequence[str]) -> str:
    amounts = [_amount(name, _sum(free).get(name, 0.0))[0] for name in names]
    return f"{' and '.join(amounts)} free"


def _say(resources: Mapping[str, float], names: Sequence[str]) -> str:
    """Return amounts in words: `20 CPUs and 1 GPU`."""
    parts = []
    for name in names:
        number, unit = _amount(name, resources.get(name, 0.0))
        parts.append(f"{number} {unit}")
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _amount(name: str, value: float) -> tuple[str, str]:
    if name == "memory":
        return f"{value / 2**30:.3g}", "GiB of memory"
    number = f"{round(value, 4):g}"
    if name in ("CPU", "GPU"):
        return number, f"{name}s" if number != "1" else name
    return number, f"of {name!r}"


def _less(wanted: Mapping[str, Resources], lacking: Sequence[str], have: Resources) -> str:
    """Return the option that requests less of a lacking resource, for the node that wants most."""
    spelled = {value: key for key, value in _NAMES.items()}
    name = lacking[0]
    greedy = max(wanted, key=lambda node: wanted[node].get(name, 0.0))
    role = re.search(r"\((.+)\)$", greedy)
    number = re.search(r"\d+", greedy)
    key = f'"{role[1]}"' if role else number[0] if number else "0"
    less = "0.1"
    if name != "CPU":
        share = have.get(name, 0.0) / sum(name in need for need in wanted.values())
        less = f"{int(share)}" if share >= 1 else f"{share:.2g}"
    return f'resources={{{key}: {{"{spelled.get(name, name)}": {less}}}}}'
