"""HTML that cannot be broken by what it shows: whatever is not made here is escaped."""

import html
from collections.abc import Iterable


class Html(str):
    """Text that is HTML already. Only `tag` and `joined` make it, and files of this package."""

    __slots__ = ()


Child = str | int | float | None


def tag(name: str, *children: Child, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: Of the element; one of ours, never of a file.
        *children: Its content; texts that are no `Html` are escaped, None is left out.
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
    """Return several pieces after each other."""
    return Html("".join(_escaped(each) for each in children if each is not None))


def _escaped(child: Child) -> str:
    return child if isinstance(child, Html) else html.escape(str(child))


def _attribute(key: str) -> str:
    # `viewBox` keeps its capital: the names of SVG have some.
    return key.rstrip("_").replace("_", "-")
