"""`Context`: the data of one loop, and the keys that the next loop receives.

A task makes one context per loop. Middleware read and write it; at the end of the loop
`next_context` copies the kept keys to a new one. State that outlives a loop (which keys are kept,
when a key was last seen) is in one `_Memory`, shared by all contexts of a task.
"""

import difflib
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from muster.errors import MiddlewareError, MusterError, MusterWarning, OptionError

ALWAYS_KEPT = frozenset({"total_step", "finish"})

_REMEMBERED_KEYS = 1024
"""How many dropped keys are remembered for messages; bounds the memory of programs that generate
key names."""

_OPAQUE = object()
"""Replaces a value that should not be kept alive only to be compared in a hint."""


class AbsentKeyError(MusterError, AttributeError, KeyError):
    """Raised on reading, as `ctx.name` or `ctx["name"]`, a key that this loop has not set."""

    def __init__(self, key: object, set_in_loop: int | None, present: tuple[object, ...]) -> None:
        Exception.__init__(self, key, set_in_loop, present)

    def __str__(self) -> str:
        # Built only when read: every hasattr(ctx, ...) of an absent key raises and discards one.
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
    """State shared by all contexts of one task."""

    __slots__ = ("dropped_from", "hinted", "kept", "previous", "shared")

    def __init__(self) -> None:
        self.kept: set[str] = set(ALWAYS_KEPT)
        self.shared: set[str] | None = None
        # For keys that were not kept: the last loop with the key, and the previous loop's values.
        self.dropped_from: dict[object, int] = {}
        self.previous: dict[object, Any] = {}
        self.hinted: set[object] = set()


class Context(dict[str, Any]):
    """A dict whose keys are also attributes; every loop gets a new one.

    `total_step` counts the loops completed before this one. Setting `finish` to True makes this
    loop the last. Both always exist. Any other key lives for one loop, unless it is kept.
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
        """Name the keys to send to other nodes at the end of this loop and every later one.

        If `share` is never called, every value that can be sent is sent. No effect in one process.
        """
        _check_names("share", names)
        self._memory.shared = (self._memory.shared or set()) | set(names)

    def log(self, name: str, value: float) -> None:
        """Record a number for the metrics writer; `ctx.logged` holds the newest value of each name.

        The number is kept from loop to loop until it is written.
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
        """Return the value of `key`; if it is absent, set it to `default` first."""
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
        # Python calls this only after the normal look-up failed, so methods and slots come first;
        # dict's own __getitem__ calls __missing__. So no look-up costs a Python frame.
        __getattr__ = dict.__getitem__

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN_NAMES:
            raise MiddlewareError(
                f"ctx.{name} cannot be assigned",
                f"{name!r} is an attribute of Context itself, and reading ctx.{name} would return "
                "that",
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
        # A copy is independent: it takes the values but not the memory of its task.
        return Context, (), None, None, iter(self.items())


_OWN_NAMES = frozenset(dir(Context)) - ALWAYS_KEPT


def next_context(ctx: Context) -> Context:
    """Make the context of the loop after `ctx`: the kept keys, with `total_step` plus one."""
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
    """Return the keys named by `ctx.share`, or None if it was never called."""
    shared = ctx._memory.shared
    return None if shared is None else frozenset(shared)


def _bare(kind: type[Context]) -> Context:
    return kind.__new__(kind)


def _link(ctx: Context, memory: _Memory) -> None:
    # Bypasses Context.__setattr__, which would store a key.
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
    """The value if it is small and plain: a hint must not keep an array alive."""
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
        f"ctx.{name} = ..., if you want to change its value",
    )
