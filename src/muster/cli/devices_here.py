"""Which device would train an environment's agent faster here, and why: `muster doctor --device`.

time_device(...)    acting and one update on a device        a second each
say_devices(...)    a line for each, then the fastest; a function of the numbers alone
"""

from dataclasses import dataclass
from typing import Any

from muster.cli.limits_here import BATCH, ENVS, HIDDEN, seconds_each, trial, us
from muster.devices import HOST, KINDS, find_device, networks_on

_CLEARLY = 1.1


@dataclass(frozen=True)
class DeviceCost:
    """Microseconds on one device, for the network that `muster doctor` times."""

    name: str
    compiled: bool
    """Whether muster's own kernels run it, rather than torch."""
    act_us: float
    """Choosing the actions of 8 environments."""
    update_us: float
    """One DQN update with a batch of 64."""
    copy_us: float
    """The part of `update_us` spent on copying batch and outputs; 0 on the host."""

    @property
    def step_us(self) -> float:
        """One environment step with one update."""
        return self.act_us / ENVS + self.update_us


def time_device(name: str, obs_space: Any, action_space: Any) -> DeviceCost:
    """Time an agent for these spaces on a device."""
    device = find_device(name)
    with networks_on(device):
        agent, some, batch = trial(obs_space, action_space)
    act = seconds_each(lambda: agent.act(some))
    update = seconds_each(lambda: agent.update(batch))
    copy = 0.0
    if not device.is_host:
        reward = device.stage(batch.reward)
        copy = seconds_each(lambda: device.stage((batch.obs, batch.next_obs)))
        copy += seconds_each(lambda: device.fetch(reward))
    return DeviceCost(name, agent.by_torch is None, 1e6 * act, 1e6 * update, 1e6 * copy)


def say_devices(costs: list[DeviceCost], torch_version: str) -> list[str]:
    """Return the measurements and the conclusion, in lines of at most 80 columns.

    Args:
        costs: The CPU's first.
        torch_version: The torch version that found the devices.
    """
    layers = "x".join(map(str, HIDDEN))
    lines = [f"devices: a {layers} network, {ENVS} environments, updates of {BATCH}"]
    for cost in costs:
        how = "compiled" if cost.compiled else "by torch"
        copies = "" if cost.name == HOST.name else f", of which copies {us(cost.copy_us)}"
        lines.append(
            f"  {cost.name:10} {how}: acting {us(cost.act_us)}, "
            f"an update {us(cost.update_us)}{copies}"
        )
    if len(costs) == 1:
        others = ", ".join(kind for kind in KINDS if kind != HOST.name)
        lines.append(f"  --device cpu: torch {torch_version} finds no {others} here")
        return lines
    best, *others_slower = sorted(costs, key=lambda cost: cost.step_us)
    ratio = others_slower[0].step_us / best.step_us
    if ratio < _CLEARLY:
        lines.append(f"  --device cpu: {best.name} is no faster than {others_slower[0].name}")
        return lines
    lines.append(f"  --device {best.name}: {ratio:.1f} times as fast, because {_why(costs, best)}")
    return lines


def _why(costs: list[DeviceCost], best: DeviceCost) -> str:
    if best.name != HOST.name:
        return "speed outweighs the cost of copies"
    other = min(costs[1:], key=lambda cost: cost.step_us)
    if other.copy_us >= best.update_us:
        return "copying takes longer than updates"
    return "overhead dominates small networks"
