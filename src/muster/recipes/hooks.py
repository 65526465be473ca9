"""Middleware of the user's own in a run: `muster.train(..., use=[f])`, `--use module:f`.

    a function of ctx    called at the end of each loop: after learning and evaluation, before
                         metrics are written
    a generator of ctx   begins with the loop; what follows its `yield` comes at the end of the loop

Hooks run where the run's files are written: in the process that is alone, on the learner, in the
first of workers in step. A file of a run may name them, but never makes them run.
"""

import inspect
from collections.abc import Generator, Iterable
from typing import Any

from muster.errors import OptionError
from muster.framework import Context, Middleware
from muster.recipes.own_modules import check_spec, is_code, load_code

_EXAMPLE = "--use my_module:my_hook"
_hooks: dict[str, Middleware] = {}


def names_of_hooks(given: Any) -> Any:
    """Register functions that were given as hooks, and return the names of all that were given."""
    if callable(given) or isinstance(given, str):
        given = [given]
    if not isinstance(given, Iterable):
        return given
    return tuple(_name_of(each) for each in given)


def check_hooks(names: tuple[str, ...]) -> None:
    """Refuse what cannot name code. Imports nothing.

    Raises:
        OptionError: It is no name of a module and a function in it.
    """
    if not isinstance(names, tuple | list):
        raise _not_possible(names)
    for name in names:
        if not is_code(name):
            raise _not_possible(name)
        check_spec("hook", name.replace("<locals>", "locals").replace("<lambda>", "f"), _EXAMPLE)


def load_hooks(names: tuple[str, ...]) -> None:
    """Have the hooks of these names ready: `module:function` is imported."""
    for name in names:
        if name not in _hooks:
            _hooks[name] = _checked(name, load_code("hook", name, "--use {}"))


def refuse_hooks_of_a_file(names: tuple[str, ...], path: object) -> None:
    """Refuse to load the hooks that a run's own config names, unless they were loaded already."""
    absent = [name for name in names if name not in _hooks]
    if absent:
        raise OptionError(
            f"the run in {path} uses {absent[0]!r:.80}, which is code",
            "a file may come from anybody, so it cannot say which code is run",
            f"--use {' '.join(names):.120}, or use=[...] from Python, if you trust it",
        )


def own_hooks(names: tuple[str, ...]) -> dict[str, Middleware]:
    """Return the hooks of these names, to be sent to nodes."""
    return {name: _hooks[name] for name in names}


def install_hooks(hooks: dict[str, Middleware]) -> None:
    """Register on a node what another process has checked and sent."""
    _hooks.update(hooks)


def hooks_of(names: tuple[str, ...]) -> list[Middleware]:
    """Return the middleware of these names, as a run uses it."""
    return [_at_the_end(name, _hooks[name]) for name in names]


def _name_of(hook: Any) -> Any:
    if isinstance(hook, str) or not callable(hook):
        return hook
    home = getattr(hook, "__module__", None) or type(hook).__module__
    name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    full = f"{home}:{name}"
    _hooks[full] = _checked(full, hook)
    return full


def _checked(name: str, hook: Any) -> Middleware:
    if not callable(hook) or inspect.iscoroutinefunction(hook) or inspect.isclass(hook):
        raise OptionError(
            f"the hook {name!r:.120} is not possible",
            f"it is a function or a generator of ctx, and this is {hook!r:.120}",
            "def my_hook(ctx): ctx.log('half', ctx.env_step / 2)",
        )
    found: Middleware = hook
    return found


def _at_the_end(name: str, hook: Any) -> Middleware:
    """Return a hook as middleware whose way back is where it does its work."""
    of_object = getattr(hook, "__call__", None)  # noqa: B004  # what is it, not whether it is there
    if inspect.isgeneratorfunction(hook) or inspect.isgeneratorfunction(of_object):
        generator: Middleware = hook
        return generator

    def at_the_end(ctx: Context) -> Generator[None, None, None]:
        yield
        finished = ctx.finish
        hook(ctx)
        if ctx.finish and not finished:
            ctx.setdefault("stopped_by", "hook")

    at_the_end.__name__ = at_the_end.__qualname__ = name
    return at_the_end


def _not_possible(given: object) -> OptionError:
    return OptionError(
        f"use={given!r:.80} is not possible",
        "a hook is a function of ctx, or its module and name",
        _EXAMPLE,
    )
