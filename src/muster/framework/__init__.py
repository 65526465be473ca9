"""The loop and where it runs. Depends on no reinforcement learning, no torch and no numpy."""

from muster.framework.context import AbsentKeyError, Context
from muster.framework.parallel import Parallel
from muster.framework.step import Middleware
from muster.framework.task import Task
from muster.framework.uses import StepWrapper

__all__ = ["AbsentKeyError", "Context", "Middleware", "Parallel", "StepWrapper", "Task"]
