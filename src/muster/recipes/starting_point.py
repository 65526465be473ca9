"""The checkpoint that a run begins with: that of a resumed run, or the policy of another one."""

from typing import Any

from muster.errors import OptionError
from muster.recipes.clones import check_start, is_fitted
from muster.recipes.other_env import check_spaces
from muster.recipes.run_plan import RunPlan
from muster.recipes.saved import saved_config
from muster.run import Checkpoint, RunDirectory


def policy_to_start_from(plan: RunPlan, agent: Any) -> Checkpoint | None:
    """Load the checkpoint whose policy a new run begins with; None if it begins with none."""
    path = plan.settings.options.from_checkpoint
    if path is None:
        return None
    run = RunDirectory.open(path)
    if not is_fitted(saved_config(run)):
        checkpoint = _checked(run, plan, is_same_env=False)
        check_spaces(run, plan.env, agent)
        return checkpoint
    checkpoint = run.checkpoints.load(run.checkpoint or run.best.path())
    spaces = agent.obs_space, agent.action_space
    check_start(checkpoint, run.path, plan.algo, plan.settings.config, spaces)
    return checkpoint


def checkpoint_to_resume(run: RunDirectory, plan: RunPlan) -> Checkpoint:
    """Load the checkpoint to resume from. Raises OptionError if that is impossible."""
    if run.checkpoint is not None and run.checkpoint.parent != run.checkpoints.path:
        raise OptionError(
            f"{run.checkpoint} cannot be resumed",
            "the best checkpoint holds only the policy, without the state that training needs",
            f"muster resume {run.path}, or --from-checkpoint {run.checkpoint} for a new run",
        )
    start_from = _checked(run, plan)
    plan.settings.config.check_resume(start_from.parts, plan.settings.options.num_envs)
    _check_total(plan, start_from)
    return start_from


def _check_total(plan: RunPlan, last: Checkpoint) -> None:
    """Raise OptionError if the run has already passed the new total of steps."""
    asked, done = plan.settings.options.env_steps, int(last.counters["env_step"])
    changed = plan.resumption is not None and "env_steps" in plan.resumption.changes
    if changed and asked is not None and asked < done:
        raise OptionError(
            f"env_steps={asked} is not possible: the run has done {done:,}",
            "env_steps is the new total, including the steps so far",
            f"env_steps={2 * done}",
        )


def _checked(run: RunDirectory, plan: RunPlan, is_same_env: bool = True) -> Checkpoint:
    """Load a checkpoint of `run`. Raises OptionError if it belongs to something else."""
    checkpoint = run.checkpoints.load(run.checkpoint)
    saved = (checkpoint.meta.get("algo"), checkpoint.meta.get("env"))
    if saved[0] != plan.algo or (is_same_env and saved[1] != plan.env):
        raise OptionError(
            f"{checkpoint.path} is of {saved[0]} on {saved[1]}",
            f"this run is {plan.algo} on {plan.env}",
            f"muster train {saved[0]} {saved[1]} ...",
        )
    model, mine = saved_config(run).get("model"), plan.settings.config.model
    if model != mine:
        raise OptionError(
            f"the policy in {checkpoint.path} is of the model {model!r:.80}",
            f"this run's model is {mine!r:.80}; "
            "the files of a run cannot choose it, because it may be code",
            f"--model {model:.80}" if model else "leave --model out",
        )
    return checkpoint
