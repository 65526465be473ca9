"""`Context`: what one loop knows, and what the next loop is given of it.

A task makes one per loop. Middleware read and write it; at the end of the loop `next_context`
carries the kept keys over. What a context has to remember beyond its own loop (which keys are kept,
when a key was last seen) lives in one `_Memory` that all contexts of a task share.
"""

import difflib
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from muster.errors import MiddlewareError, MusterError, MusterWarning, OptionError

ALWAYS_KEPT = frozenset({"total_step", "finish"})

_REMEMBERED_KEYS = 1024
"""How many dropped keys are remembered for messages; programs that invent key names stay
bounded."""

_OPAQUE = object()
"""Stands for a value that is not worth keeping alive only to compare it in a hint."""


class AbsentKeyError(MusterError, AttributeError, KeyError):
    """A key was read that this loop has not set: as `ctx.name` or as `ctx["name"]`."""

    def __init__(self, key: object, set_in_loop: int | None, present: tuple[object, ...]) -> None:
        Exception.__init__(self, key, set_in_loop, present)

    def __str__(self) -> str:
        # Built only when somebody reads it: hasattr(ctx, ...) raises and drops one all the time.
        key, set_in_loop, present = self.args
        if set_in_loop is not None:
            return (
                f"ctx has no {key!r}: it was set in loop {set_in_loop} but not kept: "
                f"call ctx.keep({key!r})"
            )
        names = [name for name in present if isinstance(name, str)]
        near = difflib.get_close_matches(str(key), names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"set it first: ctx.{key} = ..."
        return f"ctx has no {key!r}: it was never set; {hint}"


class _Memory:
    """What the contexts of one task have in common."""

    __slots__ = ("dropped_from", "hinted", "kept", "previous", "shared")

    def __init__(self) -> None:
        self.kept: set[str] = set(ALWAYS_KEPT)
        self.shared: set[str] | None = None
        # Of keys that were not kept: the last loop that had one, and what the previous loop set.
        self.dropped_from: dict[object, int] = {}
        self.previous: dict[object, Any] = {}
        self.hinted: set[object] = set()


class Context(dict[str, Any]):
    """A dict whose keys are also attributes, made anew for every loop.

    `total_step` counts the loops done before this one, and `finish` makes this loop the last when
    it is set to True. Both are always there. Any other key lives for one loop, unless it is kept.
    """

    __slots__ = ("_defaults", "_memory")

    total_step: int
    finish: bool
    _defaults: dict[str, Any]
    _memory: _Memory

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(total_step=0, finish=False)
        super().update(*args, **kwargs)
        _link(self, _Memory())

    def keep(self, *names: str) -> None:
        """Carry these keys over to every later loop, until they are dropped."""
        _check_names("keep", names)
        self._memory.kept.update(names)

    def drop(self, *names: str) -> None:
        """Stop carrying these keys over. This loop still has them."""
        _check_names("drop", names)
        for name in names:
            if name in ALWAYS_KEPT:
                raise _always_there(f"ctx.drop({name!r})", name)
        self._memory.kept.difference_update(names)

    def share(self, *names: str) -> None:
        """Name what other nodes are sent at the end of the loop, here and in every later loop.

        Where this is never called, all that can be sent is sent. A single process has nobody to
        send to.
        """
        _check_names("share", names)
        self._memory.shared = (self._memory.shared or set()) | set(names)

    def log(self, name: str, value: float) -> None:
        """Note a number under a name, for whoever writes metrics: `ctx.logged` holds the newest.

        It is kept from loop to loop until it is written.
        """
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise OptionError(
                f"ctx.log({name!r:.80}, {value!r:.80}) is not possible",
                "a metric is one number",
                f"ctx.log({name!r:.80}, 0.5)",
            ) from None
        _check_names("log", (name,))
        self.keep("logged")
        if "logged" not in self:
            self["logged"] = {}
        self["logged"][name] = number

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`; when it is absent, set it to `default` first."""
        if key in self:
            return self[key]
        memory = self._memory
        if key in memory.previous and key not in memory.hinted:
            value = memory.previous[key]
            if value is _OPAQUE or value != _comparable(default):
                memory.hinted.add(key)
                warnings.warn(
                    f"ctx.setdefault({key!r}, ...) brings back the default: another value was set "
                    f"in loop {self.total_step - 1} but not kept: call ctx.keep({key!r})",
                    MusterWarning,
                    stacklevel=2,
                )
        self._defaults[key] = default
        return super().setdefault(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value, as dict.pop does."""
        _check_removable(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the key set last, as dict.popitem does."""
        for key in reversed(self):
            if key not in ALWAYS_KEPT:
                return key, super().pop(key)
        raise KeyError("popitem(): nothing is left but total_step and finish")

    def clear(self) -> None:
        """Remove every key but total_step and finish."""
        for key in [key for key in self if key not in ALWAYS_KEPT]:
            del self[key]

    def __missing__(self, key: object) -> Any:
        raise AbsentKeyError(key, self._memory.dropped_from.get(key), tuple(self))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    else:
        # Python asks for this only after the usual look-up failed, so methods and slots come first;
        # dict's own __getitem__ calls __missing__. Nothing here costs a Python frame.
        __getattr__ = dict.__getitem__

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN_NAMES:
            raise MiddlewareError(
                f"ctx.{name} cannot be assigned",
                f"{name!r} is a name of Context's own, and reading ctx.{name} would give that",
                f"ctx[{name!r}] = ..., or another name such as ctx.{name}_",
            )
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __delitem__(self, key: str) -> None:
        _check_removable(key)
        if key not in self:
            self.__missing__(key)
        super().__delitem__(key)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *(key for key in self if isinstance(key, str))]

    def __repr__(self) -> str:
        return f"Context({dict.__repr__(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy stands by itself: it takes the values along and not the memory of its task.
        return Context, (), None, None, iter(self.items())


_OWN_NAMES = frozenset(dir(Context)) - ALWAYS_KEPT


def next_context(ctx: Context) -> Context:
    """Make the context of the loop after `ctx`: the kept keys, one more `total_step`."""
    memory = ctx._memory
    kept = memory.kept
    following = _bare(type(ctx))
    previous: dict[object, Any] = {}
    for key, value in ctx.items():
        if key in kept:
            dict.__setitem__(following, key, value)
        else:
            _remember_dropped(ctx, key, value, previous)
    memory.previous = previous
    dict.__setitem__(following, "total_step", ctx["total_step"] + 1)
    _link(following, memory)
    return following


def recast(ctx: Context, kind: type[Context]) -> Context:
    """Make a context of another class with the same keys and the same memory."""
    other = _bare(kind)
    dict.update(other, ctx)
    _link(other, ctx._memory)
    return other


def shared_keys(ctx: Context) -> frozenset[str] | None:
    """Return the keys named by `ctx.share`, or None where it was never called."""
    shared = ctx._memory.shared
    return None if shared is None else frozenset(shared)


def _bare(kind: type[Context]) -> Context:
    return kind.__new__(kind)


def _link(ctx: Context, memory: _Memory) -> None:
    # Around Context.__setattr__, which would store a key.
    object.__setattr__(ctx, "_memory", memory)
    object.__setattr__(ctx, "_defaults", {})


def _remember_dropped(ctx: Context, key: str, value: Any, previous: dict[object, Any]) -> None:
    memory = ctx._memory
    memory.dropped_from[key] = ctx["total_step"]
    if len(memory.dropped_from) > _REMEMBERED_KEYS:
        del memory.dropped_from[next(iter(memory.dropped_from))]
    if not (key in ctx._defaults and ctx._defaults[key] is value):
        previous[key] = _comparable(value)


def _comparable(value: Any) -> Any:
    """The value if it is small and plain; an array must not live on only for a hint."""
    if _is_plain(value):
        return value
    if isinstance(value, list | tuple | set) and len(value) <= 16 and all(map(_is_plain, value)):
        return type(value)(value)
    return _OPAQUE


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _check_names(method: str, names: tuple[object, ...]) -> None:
    if not names:
        raise OptionError(
            f"ctx.{method}() got no name",
            f"{method} works on the keys that it is given",
            f'ctx.{method}("train_iter")',
        )
    for name in names:
        if not isinstance(name, str):
            raise OptionError(
                f"ctx.{method}() got {name!r}",
                f"{method} takes the names of keys, each as a string",
                f'ctx.{method}("train_iter", "envstep")',
            )


def _check_removable(key: object) -> None:
    if key in ALWAYS_KEPT:
        raise _always_there(f"removing {key!r}", str(key))


def _always_there(what: str, name: str) -> OptionError:
    return OptionError(
        f"{what} is not possible",
        "total_step and finish are in every context, so that every middleware can rely on them",
        f"ctx.{name} = ..., if it is its value that should change",
    )
