"""What of a run's settings is refused before torch is loaded or a process starts."""

from muster.devices import find_device
from muster.errors import OptionError
from muster.recipes.own_modules import check_found, is_code
from muster.recipes.settings import Settings
from muster.run import RunDirectory
from muster.run.directory import check_new


def check_beforehand(settings: Settings, *, is_new: bool) -> None:
    """Refuse an engine, a device, a model's module or a directory that is not there, or not free.

    Args:
        settings: Of the run.
        is_new: Whether it begins, or is resumed.

    Raises:
        OptionError: Ray is not installed, or the device or the module of the model is not there.
        RunDirectoryError: A new run cannot begin in its directory, or there is no run to start
            from.
    """
    options, model = settings.options, settings.config.model
    if settings.on_nodes and options.engine == "ray":
        from muster.engines.ray.versions import check_installed

        check_installed()
    if options.engine != "ray":  # there it is a matter of the node that learns
        find_device(options.device)
    if model is not None and is_code(model):
        check_found("model", model)
    if is_new and options.run_dir is not None:
        check_new(options.run_dir)
    if is_new and options.from_checkpoint is not None:
        RunDirectory.open(options.from_checkpoint)


def check_env(env: str, settings: Settings) -> None:
    """Refuse an environment that is not known, or whose observations would not fit into memory."""
    from muster.envs import make_envs
    from muster.recipes.env_options import WRAPPERS, setup_of
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
        check_memory(settings, *spaces)
