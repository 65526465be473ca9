"""`follow`: takes part in a run as a rank other than 0, which writes no files.

A new run: this command has the same settings as that of rank 0. A resumed run: rank 0 hands over
the settings, and the run directory is needed only there.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.engines.logs import say
from muster.nets.threads import one_torch_thread
from muster.recipes.algorithms import load_algorithm
from muster.recipes.backbone import with_backbone
from muster.recipes.beforehand import check_beforehand
from muster.recipes.env_options import WRAPPERS
from muster.recipes.graceful import StopRequest
from muster.recipes.hooks import HOOKS
from muster.recipes.job import Job
from muster.recipes.join_options import Membership, as_rank
from muster.recipes.joining import Ranks, attending
from muster.recipes.models import load_model
from muster.recipes.ranks import as_recipe, common_settings, failures_kept
from muster.recipes.result import RunResult
from muster.recipes.resuming import plan_with, run_of_config
from muster.recipes.run_plan import RunPlan, plan_run, to_write
from muster.recipes.settings import Settings
from muster.recipes.train import try_out, with_policy
from muster.run import Checkpoint

_OF_RANK_0 = ("run_dir", "from_checkpoint", "resume")
"""Options that name files: only rank 0 reads and writes them."""


def follow(
    joined: Membership,
    algo: str | None,
    env: str | None,
    options: dict[str, Any],
    config: str | Path | None,
) -> RunResult:
    """Train as a rank other than 0, and return the same result as rank 0 does.

    Args:
        joined: How this command takes part.
        algo: As for `train`.
        env: As for `train`.
        options: As for `train`.
        config: As for `train`.
    """
    resumes = options.get("resume") is True
    options = {name: value for name, value in options.items() if name not in _OF_RANK_0}
    own = None if resumes else plan_run(algo, env, options, config)
    if own is not None:
        check_beforehand(as_rank(own.algo, own.settings, joined), is_new=True)
        own = replace(own, settings=with_backbone(own.settings))
    settings = None if own is None else common_settings(to_write(own, None))
    with attending(joined, settings) as (ranks, told):
        plan = own or _plan_of_rank_0(told, algo, env, options, config)
        return _train(ranks, as_rank(plan.algo, plan.settings, joined), plan, told)


def follow_resumed(
    ranks: Ranks,
    joined: Membership,
    told: dict[str, Any],
    algo: str | None,
    env: str | None,
    options: dict[str, Any],
    config: str | Path | None,
) -> RunResult:
    """Take part in a run that rank 0 resumes, after it has handed over the run.

    For the command line, which learns from rank 0 what kind of run it is.
    """
    plan = _plan_of_rank_0(told, algo, env, options, config)
    return _train(ranks, as_rank(plan.algo, plan.settings, joined), plan, told)


def _plan_of_rank_0(
    told: dict[str, Any],
    algo: str | None,
    env: str | None,
    options: dict[str, Any],
    config: str | Path | None,
) -> RunPlan:
    """Return the resumed run. Code that it needs is named on this command, as on rank 0's."""
    load_algorithm(algo)
    saved = run_of_config(dict(told["config"]), Path(told["run_dir"]))
    found = plan_with(saved, algo, env, options, config)
    return RunPlan(saved.algo, saved.env, found.settings, found)


def _train(ranks: Ranks, settings: Settings, plan: RunPlan, told: dict[str, Any]) -> RunResult:
    settings = settings.on_backend(told["backend"])
    load_model(settings.config.model)
    WRAPPERS.load(settings.options.wrapper)
    agent, _ = try_out(plan.algo, plan.env, settings)
    HOOKS.load(settings.options.use)
    resumes = plan.resumption is not None
    job = Job(
        plan.algo,
        plan.env,
        settings.config,
        replace(settings.options, resume=resumes, run_dir=told["run_dir"], from_checkpoint=None),
        settings.workers,
        told["run_dir"],
        start_from=None,
        handed=_handed(told),
    )
    if not settings.options.quiet:
        say(f"rank {ranks.rank} of {ranks.world}; rank 0 writes {told['run_dir']}")
    stop = StopRequest()
    with stop.listening(), one_torch_thread(), failures_kept(ranks):
        if told["reached"] is not None:
            result = _reached(ranks, job, agent, told["reached"])
        else:
            result = as_recipe(ranks)(job, None, stop)
    return with_policy(replace(result, stop_signal=stop.signal), agent, settings)


def _handed(told: dict[str, Any]) -> Checkpoint | None:
    state = told["state"]
    if state is None:
        return None
    path = Path(told["run_dir"]) / "checkpoints"
    return Checkpoint(path, state["step"], state["parts"], state["counters"], {})


def _reached(ranks: Ranks, job: Job, agent: Any, reached: str) -> RunResult:
    """Return the result of a run that needs no more training; rank 0 completes it."""
    assert job.handed is not None
    agent.load_parts({"policy": job.handed.parts["policy"]})
    ranks.wait_for_end()
    return RunResult(
        algo=job.algo,
        env=job.env,
        seed=job.options.seed,
        workers=ranks.world,
        env_steps=int(job.handed.counters["env_step"]),
        train_iter=int(job.handed.counters["train_iter"]),
        seconds=0.0,
        env_steps_per_s=0.0,
        eval_return_mean=None,
        eval_return_std=None,
        eval_episodes=0,
        policy_sha256=agent.policy_sha256(),
        stopped_by=reached,
        run_dir=Path(job.run_dir),
        policy=agent,
        backend=job.options.backend,
    )
