"""A user's own functions by name: hooks and wrappers, given as objects or as `module:name`.

    given from Python -> registered here under module:name ─┐
    module:name of the command line -> imported ────────────┴> known by name -> sent to nodes

A file of a run may name such functions, but never causes them to run.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from muster.errors import OptionError
from muster.recipes.own_modules import check_spec, is_code, load_code

F = TypeVar("F")


class OwnFunctions(Generic[F]):
    """The functions of one option.

    Args:
        kind: What one of them is called in messages.
        option: The option that names them.
        meaning: Completes the message "a hook is ...".
        checked: Returns the function for a name; raises OptionError if it is not of this kind.
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
        """Register the functions that were given as objects; return the names of all."""
        if callable(given) or isinstance(given, str):
            given = [given]
        if not isinstance(given, Iterable):
            return given
        return tuple(self._name(each) for each in given)

    def check(self, names: tuple[str, ...]) -> None:
        """Check that each name can refer to code. Imports nothing.

        Raises:
            OptionError: A name is not a module and a function in it.
        """
        if not isinstance(names, tuple | list):
            raise self._not_possible(names)
        for name in names:
            if not is_code(name):
                raise self._not_possible(name)
            plain = name.replace("<locals>", "locals").replace("<lambda>", "f")
            check_spec(self._kind, plain, self._example)

    def load(self, names: tuple[str, ...]) -> None:
        """Load the functions of these names: `module:function` is imported."""
        for name in names:
            if name not in self._known:
                code = load_code(self._kind, name, f"--{self._option} {{}}")
                self._known[name] = self._checked(name, code)

    def refuse_of_a_file(self, names: tuple[str, ...], path: object) -> None:
        """Raise OptionError if a run's config names code that this process has not loaded yet."""
        absent = [name for name in names if name not in self._known]
        if absent:
            raise OptionError(
                f"the run in {path} uses {absent[0]!r:.80}, which is code",
                "a file can come from anyone, so it must not choose the code that runs",
                f"--{self._option} {' '.join(names):.120}, or {self._option}=[...] from Python, "
                "if you trust it",
            )

    def known(self, names: tuple[str, ...]) -> dict[str, F]:
        """Return the functions of these names, in their order."""
        return {name: self._known[name] for name in names}

    def install(self, functions: dict[str, F]) -> None:
        """Register on a node the functions that another process has checked and sent."""
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
