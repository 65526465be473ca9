"""`Pacing`: what a paced run and its driver share before the first loop, and its signals.

The run's thread prepares everything and starts no process; it waits here for the first step.
"""

import queue
from dataclasses import dataclass
from typing import Any

from muster.framework.driver import DriverLink
from muster.recipes.graceful import StopRequest
from muster.recipes.job import Job
from muster.run import Checkpoint


@dataclass(frozen=True)
class Ready:
    """Everything was checked, and the run directory exists."""

    job: Job
    agent: Any
    """An agent with the policy that the run begins with; training uses another one."""
    env_step: int
    """Environment steps from before, of a resumed run."""


class Pacing:
    """Connects a run to the thread that drives it."""

    def __init__(self) -> None:
        self.link = DriverLink()
        self.stop = StopRequest()
        """Takes the place of signals, which only the main thread receives."""
        self.ended: object | None = None
        """The last message of the run's thread."""
        self._begin: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def begin(self, is_wanted: bool) -> None:
        """Let the run begin; or end it without training."""
        self._begin.put(is_wanted)

    def wait_to_begin(self, job: Job, agent: Any, start_from: Checkpoint | None) -> bool:
        """Report that the run is ready, and wait; return whether it is to train. For its thread."""
        is_resumed = start_from is not None and job.options.resume
        env_step = start_from.counters["env_step"] if start_from and is_resumed else 0
        self.link.deliver(Ready(job, agent, int(env_step)))
        return self._begin.get()
