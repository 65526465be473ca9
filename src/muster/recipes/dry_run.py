"""`dry_run`: what `train` would do, without doing it.

    names, options -> the checks of a real run: options, env, spaces, agent, memory, directory
                   -> DryRun: the resolved config, and the path that the run would take

Starts no process and writes no file. An option that a real run would refuse raises the same error.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muster import container
from muster.columns import lines
from muster.devices import find_device
from muster.envs import UnknownEnvError
from muster.recipes.algorithms import load_algorithm, roles_of_program
from muster.recipes.backbone import first_parts, with_backbone
from muster.recipes.beforehand import check_beforehand
from muster.recipes.completing import limit_reached
from muster.recipes.env_options import WRAPPERS
from muster.recipes.eval_env import is_apart
from muster.recipes.given import as_written
from muster.recipes.hooks import HOOKS
from muster.recipes.job import Job
from muster.recipes.memory import memory_needs, shared_memory_need
from muster.recipes.models import load_model
from muster.recipes.roles import with_range
from muster.recipes.run_plan import RunPlan, own_code_of, plan_run, to_write
from muster.recipes.starting_point import checkpoint_to_resume, policy_to_start_from
from muster.recipes.train import try_out
from muster.run import Checkpoint, RunDirectory
from muster.run.claim import in_use, living_writer
from muster.run.config_io import to_yaml
from muster.run.names import safe_name
from muster.run.new_run import check_new, not_made
from muster.shown import shown


@dataclass(frozen=True)
class DryRun:
    """What a run would do. Prints as text."""

    config: str
    """The content that `config.yaml` would have."""
    path: tuple[tuple[str, str], ...]
    """Name and value of each property of the run that is not an option."""

    def __str__(self) -> str:
        """Return the config, and the path below it."""
        config = (f"  {line}" for line in self.config.splitlines())
        end = "nothing was started, and nothing was written"
        return "\n".join(["config.yaml would be:", *config, "", *lines(self.path), "", end])


def dry_run(
    algo: str | None = None,
    env: str | None = None,
    config: str | Path | None = None,
    **options: Any,
) -> DryRun:
    """Check everything that `muster.train` would check, and return what it would do.

    Args:
        algo: As for `muster.train`.
        env: As for `muster.train`.
        config: As for `muster.train`.
        **options: As for `muster.train`, `resume` and `run_dir` included.
    """
    load_algorithm(algo)
    plan = plan_run(algo, env, as_written(options), config)
    settings = plan.settings
    check_beforehand(settings, is_new=plan.resumption is None)
    if plan.resumption is None:
        settings = with_backbone(settings)
    load_model(settings.config.model)
    WRAPPERS.load(settings.options.wrapper)
    try:
        agent, backend = try_out(plan.algo, plan.env, settings, prepare=False)
    except UnknownEnvError as error:
        raise error.to_try("muster.train({!r}, {!r})", plan.algo) from None
    HOOKS.load(settings.options.use)
    own_code_of(plan)  # raises if a node could not receive it
    settings = replace(settings, options=replace(settings.options, backend=backend))
    plan = replace(plan, settings=settings)
    start_from = _start(plan, agent)
    if start_from is not None:
        agent.load_parts({"policy": start_from.parts["policy"]})  # raises if it does not fit
    if plan.resumption is None and settings.options.backbone is not None:
        first_parts(settings.options.backbone, agent)  # raises if it does not fit
    place = _place(plan)
    started_at = None if start_from is None else str(start_from.path)
    job = Job(
        plan.algo,
        plan.env,
        settings.config,
        settings.options,
        settings.workers,
        str(place),
        started_at,
    )
    return DryRun(to_yaml(to_write(plan, start_from)), tuple(_path(plan, job, agent, start_from)))


def _start(plan: RunPlan, agent: Any) -> Checkpoint | None:
    """Load the checkpoint that the run would begin with."""
    if plan.resumption is None:
        return policy_to_start_from(plan, agent)
    run = RunDirectory.open(str(plan.settings.options.run_dir))
    writer = living_writer(run.path)
    if writer is not None:
        raise in_use(run.path, writer)
    return checkpoint_to_resume(run, plan)


def _place(plan: RunPlan) -> Path:
    """Return the directory of the run. Raises RunDirectoryError if it could not be made."""
    options = plan.settings.options
    if plan.resumption is not None:
        return plan.resumption.saved.path
    if options.run_dir is not None:
        place = check_new(options.run_dir)
    else:
        parent = Path("runs") / safe_name(plan.env) / safe_name(plan.algo)
        place = Path(os.path.abspath(parent)) / f"<date-time>-{options.seed}"
    above = next(each for each in place.parents if os.path.lexists(each))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        in_the_way = errno.EEXIST if above == place.parent else errno.ENOTDIR
        number = errno.EACCES if above.is_dir() else in_the_way
        raise not_made(place, OSError(number, os.strerror(number)))
    return place


def _path(
    plan: RunPlan, job: Job, agent: Any, start_from: Checkpoint | None
) -> Iterator[tuple[str, str]]:
    """Yield the properties of the run that its options do not show."""
    options, settings = job.options, plan.settings
    yield "run directory", shown(Path(job.run_dir))
    if start_from is not None:
        yield "starts from", f"{shown(start_from.path)}, step {start_from.step:,}"
    if plan.resumption is not None and start_from is not None:
        changed = ", ".join(f"{k} {a!r} -> {b!r}" for k, (a, b) in plan.resumption.changes.items())
        yield "changes", changed or "none: its own settings"
        reached = limit_reached(job, start_from)
        if reached is not None:
            yield "limit", f"reached ({reached}): only evaluation and result would be completed"
    yield "environment", f"{job.env}, run by {options.backend}"
    if is_apart(options):
        yield "evaluations", f"on {options.eval_env or job.env} {' '.join(options.eval_env_kwargs)}"
    yield "observations", " ".join(str(agent.obs_space).split())
    yield "actions", str(agent.action_space)
    yield "steps", f"{job.env_steps:,} in all"
    yield "processes", _processes(plan, job)
    yield "network", _network(job, agent)
    needs = memory_needs(settings, agent.obs_space, agent.action_space)
    needs["shared memory"] = shared_memory_need(settings, agent)
    here = container.memory()
    told = ", ".join(f"{name} {_size(need)}" for name, need in needs.items() if need)
    yield "memory", f"{told}; {_size(here.amount)} is {here.by}"


def _processes(plan: RunPlan, job: Job) -> str:
    if not plan.settings.on_nodes:
        return "this one alone"
    role, roles = roles_of_program(plan.algo)(job)
    told = []
    for name, count in with_range(job, roles, role).items():
        told.append(f"{name} {count if isinstance(count, int) else f'{count[0]}..{count[1]}'}")
    return f"{', '.join(told)}; engine {job.options.engine}"


def _network(job: Job, agent: Any) -> str:
    model = getattr(agent, "model", None)  # an algorithm of the user's may have none
    size = 0 if model is None else sum(each.numel() for each in model.parameters())
    on = "cpu" if job.options.engine == "ray" else find_device(job.options.device).name
    by_torch = getattr(agent, "by_torch", None)
    if on != "cpu":
        how = f"run by torch on {on}"
    elif by_torch:
        how = f"run by torch: {by_torch}"
    else:
        how = "run by compiled kernels on cpu"
    return f"{size:,} parameters, {how}" if size else how


def _size(amount: int) -> str:
    return f"{amount / 2**30:,.1f} GiB" if amount >= 2**30 else f"{amount / 2**20:,.1f} MiB"
