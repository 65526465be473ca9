"""`RunPlan`: what `train` is about to do, from names, options and files."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from muster.errors import OptionError
from muster.recipes.own_code import OwnCode
from muster.recipes.resuming import Resumption, plan_resume
from muster.recipes.saved import HISTORY
from muster.recipes.settings import Settings, read_file, resolve
from muster.run import Checkpoint


@dataclass(frozen=True)
class RunPlan:
    """The run to train: a new one, or a resumed one."""

    algo: str
    env: str
    settings: Settings
    resumption: Resumption | None = None


def plan_run(
    algo: str | None, env: str | None, options: dict[str, Any], config: str | Path | None
) -> RunPlan:
    """Return the plan of a run from names, options and a file. Raises OptionError."""
    for name, value, example in (("algo", algo, "ppo"), ("env", env, "CartPole-v1")):
        if not isinstance(value, str | None):
            raise OptionError(
                f"{name}={value!r:.80} is not possible",
                "files of a run hold names, by which it is resumed and played",
                f'{name}="{example}", or a name that you register',
            )
    if _is_resume(algo, env, options, config):
        found = plan_resume(algo, env, options, config)
        return RunPlan(found.saved.algo, found.saved.env, found.settings, found)
    if algo is None or env is None:
        raise OptionError(
            f"muster.train needs an {'algorithm' if algo is None else 'environment'}",
            "only a resumed run already has one",
            'muster.train("ppo", "CartPole-v1")',
        )
    return RunPlan(algo, env, resolve(algo, env, options, config))


def own_code_of(plan: RunPlan) -> OwnCode | None:
    """Return the code that nodes need; None if there are no nodes."""
    if not plan.settings.on_nodes:
        return None
    options = plan.settings.options
    envs = tuple(each for each in (plan.env, options.eval_env) if each is not None)
    return OwnCode.of(plan.algo, envs, plan.settings.config.model, options.use, options.wrapper)


def to_write(plan: RunPlan, start_from: Checkpoint | None) -> dict[str, Any]:
    """Return the content of `config.yaml`: all settings that a resumed run needs."""
    options = asdict(plan.settings.options)
    for name in ("run_dir", "resume", "quiet"):
        del options[name]
    written = {"algo": plan.algo, "env": plan.env, **options, **asdict(plan.settings.config)}
    if plan.resumption is not None and start_from is not None:
        written["from_checkpoint"] = plan.resumption.saved.from_checkpoint
        written[HISTORY] = plan.resumption.history(start_from.step)
    return written


def _is_resume(
    algo: str | None, env: str | None, options: dict[str, Any], config: str | Path | None
) -> bool:
    if "resume" in options or config is None or algo is None or env is None:
        return options.get("resume") is True
    return read_file(config, algo, env).get("resume") is True
