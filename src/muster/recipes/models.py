"""Which network `model` names: one of muster's, a registered one, or `module:Class` of the user's.

Code is loaded only for who asks for it by name: on the command line, or in a call. A file, such as
the `config.yaml` of a run, may name it too, but never makes it run.
"""

import importlib
import os
import sys
from typing import Any

from muster.errors import OptionError
from muster.nets import registry
from muster.spelling import nearest


def is_code(model: object) -> bool:
    """Whether this is `module:Class`, and not the name of a model."""
    return isinstance(model, str) and ":" in model


def check_model(model: str | None) -> None:
    """Refuse a name that is not known; whether code can be loaded is seen when it is."""
    if model is None:
        return
    if not is_code(model):
        registry.check_name(model)
    elif not all(part.isidentifier() for part in model.replace(":", ".").split(".")):
        raise OptionError(
            f"model={model!r:.120} is not possible",
            "code of your own is a module and a class or function in it",
            "--model my_package.my_module:MyNetwork",
        )


def load_model(model: str | None) -> None:
    """Have the network that `model` names ready: `module:Class` is imported and registered.

    The directory in which muster was started counts as a place of modules.
    """
    check_model(model)
    if model is None or not is_code(model) or registry.is_registered(model):
        return
    module_name, _, name = model.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does, it is named
        raise OptionError(
            f"the model {model!r} cannot be loaded",
            f"{type(error).__name__}: {error}",
            f'python -c "import {module_name}"',
        ) from error
    finally:
        sys.path.remove(os.getcwd())
    factory: Any = module
    for part in name.split("."):
        if not hasattr(factory, part):
            near = nearest(part, [each for each in vars(factory) if not each.startswith("_")])
            raise OptionError(
                f"the model {model!r} cannot be loaded",
                f"{module_name} has no {part!r}",
                f"--model {module_name}:{near or 'MyNetwork'}",
            )
        factory = getattr(factory, part)
    registry.register_model(model, factory)


def name_of_model(model: object) -> object:
    """Register a class or function that was given as the model, and return its name.

    The name is `module:Class`. What is no code is returned as it is.
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
    """Refuse to load the code that a run's own config names, unless it was loaded already."""
    if is_code(model) and not registry.is_registered(str(model)):
        raise OptionError(
            f"the policy in {path} is a network of code, {model!r:.80}",
            "a file may come from anybody, so it cannot say which code is run",
            f"--model {model:.80}, or load_policy(path, model={model!r:.80}), if you trust it",
        )
