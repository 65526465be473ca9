"""`Hardware`: the machines that a run is planned for, and the link between them."""

import math
from dataclasses import dataclass

from muster.algos.options import check_number, check_whole
from muster.container import whole_cores

MOST_MACHINES = 100_000
LINK_GBPS, LATENCY_US = 10.0, 50.0


@dataclass(frozen=True)
class Hardware:
    """Equal machines."""

    machines: int | None = None
    """Number of machines; None for as many as the processes need, one core each."""
    cores: int = 1
    """Cores of each machine."""
    link_gbps: float = LINK_GBPS
    """Gigabits per second of a machine's link, in each direction."""
    latency_us: float = LATENCY_US
    """Microseconds that a message takes from one machine to another."""

    @property
    def bytes_per_s(self) -> float:
        """Rate of a link in each direction."""
        return self.link_gbps * 1e9 / 8

    @property
    def latency_s(self) -> float:
        """Seconds that a message takes from one machine to another."""
        return self.latency_us * 1e-6

    def machines_for(self, processes: int) -> int:
        """Return how many machines the processes are on; no machine is empty."""
        if self.machines is None:
            return math.ceil(processes / self.cores)
        return min(self.machines, processes)

    def slowdown(self, processes: int) -> float:
        """Return the processes for each core of the fullest machine, at least 1."""
        fullest = math.ceil(processes / self.machines_for(processes))
        return max(1.0, fullest / self.cores)


def checked_hardware(
    machines: int | None, cores_per_machine: int | None, link_gbps: float, latency_us: float
) -> Hardware:
    """Return the hardware that options describe; by default machines like this one.

    Raises:
        OptionError: A number is not possible.
    """
    if machines is not None:
        check_whole("machines", machines, high=MOST_MACHINES)
    if cores_per_machine is not None:
        check_whole("cores_per_machine", cores_per_machine, high=MOST_MACHINES)
    check_number("link_gbps", link_gbps, example=LINK_GBPS)
    check_number("latency_us", latency_us, low_too=True, example=LATENCY_US)
    return Hardware(machines, cores_per_machine or whole_cores(), link_gbps, latency_us)
