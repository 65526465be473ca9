"""Functions of the user's own by name: hooks and wrappers, given as such or as `module:name`.

    given from Python -> registered here under module:name ─┐
    module:name of the command line -> imported ────────────┴> known by name -> sent to nodes

A file of a run may name them, but never makes them run.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from muster.errors import OptionError
from muster.recipes.own_modules import check_spec, is_code, load_code

F = TypeVar("F")


class OwnFunctions(Generic[F]):
    """The functions of one option.

    Args:
        kind: What one of them is, for messages.
        option: By which they are given.
        meaning: What one may be, as the end of "a hook is ...".
        checked: Returns the function of a name, or raises OptionError if it is none of this kind.
    """

    def __init__(
        self, kind: str, option: str, meaning: str, checked: Callable[[str, Any], F]
    ) -> None:
        self._kind = kind
        self._option = option
        self._meaning = meaning
        self._checked = checked
        self._known: dict[str, F] = {}

    def names(self, given: Any) -> Any:
        """Register functions that were given, and return the names of all that were given."""
        if callable(given) or isinstance(given, str):
            given = [given]
        if not isinstance(given, Iterable):
            return given
        return tuple(self._name(each) for each in given)

    def check(self, names: tuple[str, ...]) -> None:
        """Refuse what cannot name code. Imports nothing.

        Raises:
            OptionError: It is no name of a module and a function in it.
        """
        if not isinstance(names, tuple | list):
            raise self._not_possible(names)
        for name in names:
            if not is_code(name):
                raise self._not_possible(name)
            plain = name.replace("<locals>", "locals").replace("<lambda>", "f")
            check_spec(self._kind, plain, self._example)

    def load(self, names: tuple[str, ...]) -> None:
        """Have the functions of these names ready: `module:function` is imported."""
        for name in names:
            if name not in self._known:
                code = load_code(self._kind, name, f"--{self._option} {{}}")
                self._known[name] = self._checked(name, code)

    def refuse_of_a_file(self, names: tuple[str, ...], path: object) -> None:
        """Refuse to load what a run's own config names, unless it was loaded already."""
        absent = [name for name in names if name not in self._known]
        if absent:
            raise OptionError(
                f"the run in {path} uses {absent[0]!r:.80}, which is code",
                "a file may come from anybody, so it cannot say which code is run",
                f"--{self._option} {' '.join(names):.120}, or {self._option}=[...] from Python, "
                "if you trust it",
            )

    def known(self, names: tuple[str, ...]) -> dict[str, F]:
        """Return the functions of these names, in their order."""
        return {name: self._known[name] for name in names}

    def install(self, functions: dict[str, F]) -> None:
        """Register on a node what another process has checked and sent."""
        self._known.update(functions)

    @property
    def _example(self) -> str:
        return f"--{self._option} my_module:my_{self._kind}"

    def _name(self, function: Any) -> Any:
        if isinstance(function, str) or not callable(function):
            return function
        home = getattr(function, "__module__", None) or type(function).__module__
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        full = f"{home}:{name}"
        self._known[full] = self._checked(full, function)
        return full

    def _not_possible(self, given: object) -> OptionError:
        return OptionError(
            f"{self._option}={given!r:.80} is not possible",
            f"a {self._kind} is {self._meaning}",
            self._example,
        )
