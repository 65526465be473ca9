"""Environments: many at once behind one interface, checked at every step, restorable to the step.

Importing this package loads gymnasium and numpy, but neither torch nor EnvPool.
"""

from muster.envs.base import Episode, StepInfo, StepResult, VectorEnv, true_next_obs
from muster.envs.check import CheckReport, check_env
from muster.envs.errors import EnvError, MissingPackageError, UnknownEnvError
from muster.envs.make import make_envs
from muster.envs.observations import Observation
from muster.envs.vector import GymnasiumVectorEnv

__all__ = [
    "CheckReport",
    "EnvError",
    "Episode",
    "GymnasiumVectorEnv",
    "MissingPackageError",
    "Observation",
    "StepInfo",
    "StepResult",
    "UnknownEnvError",
    "VectorEnv",
    "check_env",
    "make_envs",
    "true_next_obs",
]
