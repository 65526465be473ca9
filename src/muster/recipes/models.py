"""The network that `model` names: a built-in one, a registered one, or `module:Class`."""

from muster.errors import OptionError
from muster.nets import registry
from muster.recipes.own_modules import is_code, load_code


def check_model(model: str | None) -> None:
    """Raise OptionError for an unknown name. `module:Class` is not imported, only parsed."""
    if model is None:
        return
    if not is_code(model):
        registry.check_name(model)
    elif not all(part.isidentifier() for part in model.replace(":", ".").split(".")):
        raise OptionError(
            f"model={model!r:.120} is not possible",
            "your own code is given as a module and a class or function in it",
            "--model my_package.my_module:MyNetwork",
        )


def load_model(model: str | None) -> None:
    """Load the network that `model` names: `module:Class` is imported and registered.

    The directory in which muster was started is searched for modules.
    """
    check_model(model)
    if model is None or not is_code(model) or registry.is_registered(model):
        return
    registry.register_model(model, load_code("model", model, "--model {}"))


def name_of_model(model: object) -> object:
    """Register a class or function that was passed as the model, and return its name.

    The name is `module:Class`. A value that is not callable is returned unchanged.
    """
    if model is None or isinstance(model, str) or not callable(model):
        return model
    home, name = getattr(model, "__module__", None), getattr(model, "__qualname__", None)
    if not home or not name:  # a functools.partial, an object with __call__
        home, name = type(model).__module__, type(model).__qualname__
    full = f"{home}:{name}".replace("<locals>", "locals").replace("<lambda>", "function")
    registry.replace_model(full, model)
    return full


def refuse_code_of_a_file(model: str | None, path: object) -> None:
    """Raise OptionError if a run's config names code that this process has not loaded yet."""
    if is_code(model) and not registry.is_registered(str(model)):
        raise OptionError(
            f"the policy in {path} uses a network from code, {model!r:.80}",
            "a file can come from anyone, so it must not choose the code that runs",
            f"--model {model:.80}, or load_policy(path, model={model!r:.80}), if you trust it",
        )
