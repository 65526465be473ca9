"""`train`: from the name of an algorithm and an environment to a finished run."""

from dataclasses import asdict, fields, replace
from typing import Any

from muster.algos.dqn import DQN, DQNConfig
from muster.envs import make_envs
from muster.errors import MusterError, OptionError
from muster.recipes.algorithms import configuration_of, unknown
from muster.recipes.dqn import train_dqn
from muster.recipes.graceful import StopRequest
from muster.recipes.options import TrainOptions
from muster.recipes.presets import preset
from muster.recipes.result import RunResult
from muster.run import Checkpoint, RunDirectory


def train(algo: str, env: str, **options: Any) -> RunResult:
    """Train an agent, with a run directory that can be trusted and resumed.

    Args:
        algo: Name of the algorithm: `dqn`.
        env: Id of the environment.
        **options: Fields of `TrainOptions` and of the algorithm's configuration. What is not given
            comes from the preset for this environment, or is the default.
    """
    config_class = configuration_of(algo)
    common = {field.name for field in fields(TrainOptions)}
    own = {field.name for field in fields(config_class)}
    for name in options:
        if name not in common | own:
            raise unknown("option", name, common | own)
    settings = {**preset(algo, env), **options}
    train_options = TrainOptions(**{k: v for k, v in settings.items() if k in common})
    config = config_class(**{k: v for k, v in settings.items() if k in own})
    _try_out(env, config, train_options.seed)
    stop = StopRequest()
    with stop.listening(), _open_run(algo, env, train_options) as run:
        start_from = _start_from(run, algo, env, train_options)
        run.write_config({"algo": algo, "env": env, **asdict(train_options), **asdict(config)})
        try:
            result = train_dqn(env, config, train_options, run, start_from, stop)
        except MusterError as error:
            error.run_failed = True
            raise
        run.write_result(result.as_json())
    return replace(result, stop_signal=stop.signal)


def _try_out(env: str, config: DQNConfig, seed: int) -> None:
    """Have everything refused that does not fit together, before anything is written."""
    envs = make_envs(env, seed=seed)
    try:
        DQN(config, envs.single_observation_space, envs.single_action_space, seed)
    finally:
        envs.close()


def _open_run(algo: str, env: str, options: TrainOptions) -> RunDirectory:
    return RunDirectory.create(options.run_dir, env, algo, options.seed, resume=options.resume)


def _start_from(run: RunDirectory, algo: str, env: str, options: TrainOptions) -> Checkpoint | None:
    if options.resume:
        checkpoint = run.checkpoints.load(run.checkpoint)
    elif options.from_checkpoint is not None:
        source = RunDirectory.open(options.from_checkpoint)
        checkpoint = source.checkpoints.load(source.checkpoint)
    else:
        return None
    saved = (checkpoint.meta.get("algo"), checkpoint.meta.get("env"))
    if saved != (algo, env):
        raise OptionError(
            f"{checkpoint.path} is of {saved[0]} on {saved[1]}",
            f"this run is {algo} on {env}",
            f"muster train {saved[0]} {saved[1]} ...",
        )
    return checkpoint
