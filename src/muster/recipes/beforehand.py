"""Checks of a run's settings that need neither torch nor a process."""

from muster.devices import find_device
from muster.errors import OptionError
from muster.recipes.own_modules import check_found, is_code
from muster.recipes.settings import Settings
from muster.run import RunDirectory
from muster.run.new_run import check_new


def check_beforehand(settings: Settings, *, is_new: bool) -> None:
    """Check that engine, device, model module and run directory are available.

    Args:
        settings: Settings of the run.
        is_new: Whether the run is new; False for a resumed run.

    Raises:
        OptionError: Ray is not installed, or the device or the module of the model does not exist.
        RunDirectoryError: The directory cannot hold a new run, or there is no run to start from.
    """
    options, model = settings.options, settings.config.model
    if settings.on_nodes and options.engine == "ray":
        from muster.engines.ray.versions import check_installed

        check_installed()
    if options.engine != "ray":  # on Ray, the learner's node decides
        find_device(options.device)
    if model is not None and is_code(model):
        check_found("model", model)
    if is_new and options.run_dir is not None:
        check_new(options.run_dir)
    if is_new and options.from_checkpoint is not None:
        RunDirectory.open(options.from_checkpoint)
    if is_new and options.backbone is not None:
        from muster.recipes.backbone import with_backbone

        with_backbone(settings)


def check_env(env: str, settings: Settings) -> None:
    """Check that the environment exists, and that its observations fit into memory."""
    from muster.envs import make_envs
    from muster.recipes.env_options import WRAPPERS, setup_of
    from muster.recipes.eval_env import check_eval_env
    from muster.recipes.memory import check_memory

    WRAPPERS.load(settings.options.wrapper)
    setup = setup_of(env, settings.options)
    with make_envs(setup, backend=settings.options.backend) as envs:
        spaces = envs.single_observation_space, envs.single_action_space
        try:
            settings.config.check_actions(spaces[1])
        except OptionError as error:
            what, why, fix = error.args
            raise OptionError(what, why, fix.replace("...", env)) from None
        check_eval_env(env, settings.options, spaces)
        check_memory(settings, *spaces)
