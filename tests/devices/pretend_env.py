"""An environment whose module brings the pretended devices to every process that makes it.

Nodes of a run import it before they make their agents. The process of the tests opens the devices
itself, and closes them.
"""

import sys

import gymnasium as gym
import pretend
from gymnasium.envs.classic_control import CartPoleEnv

if "pytest" not in sys.modules:
    open_for_good = pretend.devices()
    open_for_good.__enter__()

gym.register("Pole-v0", CartPoleEnv, max_episode_steps=200)
