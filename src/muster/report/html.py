"""HTML that its content cannot break: all text that was not made here is escaped."""

import html
from collections.abc import Iterable


class Html(str):
    """Text that is already HTML. Only `tag`, `joined` and files of this package produce it."""

    __slots__ = ()


Child = str | int | float | None


def tag(name: str, *children: Child, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: The name of the element; never taken from a file of a run.
        *children: Its content; text that is not `Html` is escaped, None is left out.
        **attributes: `class_` is `class`, `data_x` is `data-x`; True is a bare attribute, None and
            False are left out.
    """
    written = "".join(
        f" {_attribute(key)}"
        if value is True
        else f' {_attribute(key)}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Iterable[Child]) -> Html:
    """Return the concatenation of several pieces."""
    return Html("".join(_escaped(each) for each in children if each is not None))


def _escaped(child: Child) -> str:
    return child if isinstance(child, Html) else html.escape(str(child))


def _attribute(key: str) -> str:
    # `viewBox` keeps its capital, as some names in SVG do.
    return key.rstrip("_").replace("_", "-")
