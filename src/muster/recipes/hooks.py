"""A user's own middleware in a run: `muster.train(..., use=[f])`, `--use module:f`.

    a function of ctx    called at the end of each loop: after learning and evaluation, before
                         metrics are written
    a generator of ctx   starts with the loop; its code after `yield` runs at the end of the loop

Hooks run in the process that writes the run's files: the only process, the learner, or the first of
the workers in step. A file of a run may name hooks, but never causes them to run.
"""

import inspect
from collections.abc import Generator
from typing import Any

from muster.errors import OptionError
from muster.framework import Context, Middleware
from muster.recipes.own_functions import OwnFunctions


def hooks_of(names: tuple[str, ...]) -> list[Middleware]:
    """Return the middleware for these names, ready for a run."""
    known = HOOKS.known(names)
    return [_at_the_end(name, known[name]) for name in names]


def _checked(name: str, hook: Any) -> Middleware:
    if not callable(hook) or inspect.iscoroutinefunction(hook) or inspect.isclass(hook):
        raise OptionError(
            f"the hook {name!r:.120} is not possible",
            f"a hook is a function or a generator of ctx, and this is {hook!r:.120}",
            "def my_hook(ctx): ctx.log('half', ctx.env_step / 2)",
        )
    found: Middleware = hook
    return found


def _at_the_end(name: str, hook: Any) -> Middleware:
    """Return a hook as middleware that does its work on the way back."""
    of_object = getattr(hook, "__call__", None)  # noqa: B004  # its kind matters, not its presence
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


HOOKS = OwnFunctions("hook", "use", "a function of ctx, or its module and name", _checked)
"""The hooks known to this process."""
