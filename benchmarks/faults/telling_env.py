"""CartPole-v1 that tells what a run is doing, so that a signal can be sent at a known moment.

    Telling-v0, by its id "benchmarks.faults.telling_env:Telling-v0"

`MUSTER_TELL` names a file: it appears when an evaluation has begun, which is the first time that
many environments are there at once. `MUSTER_SLOW_AFTER` is a number of steps: those of the process
after it take 20 ms each, so that a loop in progress is one that a second signal finds.
"""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

_MOST_THAT_TRAIN = 4


class TellingCartPole(CartPoleEnv):
    """CartPole with a clock and a mouth."""

    alive = 0
    steps = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        TellingCartPole.alive += 1
        told = os.environ.get("MUSTER_TELL")
        if told and TellingCartPole.alive > _MOST_THAT_TRAIN:
            Path(told).touch()

    def step(self, action: Any) -> Any:
        """Step, slowly if there were enough."""
        TellingCartPole.steps += 1
        if TellingCartPole.steps > int(os.environ.get("MUSTER_SLOW_AFTER", 10**12)):
            time.sleep(0.02)
        return super().step(action)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Be one less."""
        TellingCartPole.alive -= 1
        super().close()  # type: ignore[no-untyped-call]


gym.register("Telling-v0", TellingCartPole, max_episode_steps=500)
