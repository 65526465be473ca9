"""The pages about public names, made of their docstrings.

A name that several packages offer is described on the first page, and the others link to it.
"""

import ast
import re
from collections.abc import Mapping

from website.definitions import (
    Definition,
    Member,
    find,
    members,
    module_text,
    public_names,
    signature,
)
from website.docstrings import first_sentence, to_markdown

PACKAGES = (
    "muster",
    "muster.framework",
    "muster.flow",
    "muster.middleware",
    "muster.workers",
    "muster.envs",
    "muster.data",
    "muster.algos",
    "muster.nets",
    "muster.rl_utils",
    "muster.run",
    "muster.actors",
    "muster.fitting",
    "muster.exporting",
    "muster.report.statistics",
    "muster.seeding",
)
"""What has a page, in the order of the site's navigation."""
_NO_PAGE = {"__version__"}
_CODE = re.compile(r"(```.*?```|^#.*?$)|(?<!\[)`(\w+)`", re.DOTALL | re.MULTILINE)


def page_of(package: str) -> str:
    """Return the file of a package's page: `muster.data` has `reference/data.md`."""
    return f"reference/{package.removeprefix('muster.').replace('.', '_')}.md"


def reference_pages() -> dict[str, str]:
    """Return all pages by their file."""
    found = {
        package: [find(package, name) for name in public_names(package) if name not in _NO_PAGE]
        for package in PACKAGES
    }
    homes: dict[str, str] = {}  # definition -> page and anchor
    for package, definitions in found.items():
        for each in definitions:
            homes.setdefault(each.home, f"{page_of(package)}#{package}.{each.name}")
    pages = {
        page_of(package): _page(package, definitions, homes)
        for package, definitions in found.items()
    }
    return {"reference/index.md": _index(found, homes), **pages}


def _index(found: Mapping[str, list[Definition]], homes: Mapping[str, str]) -> str:
    lines = [
        "# API reference",
        "",
        "Every public name, from its docstring. Importing `muster` loads neither torch nor Ray:"
        " each name imports what it needs when it is used first. Modules that are not listed here,"
        " and names that begin with an underscore, may change at any time.",
        "",
    ]
    for package, definitions in found.items():
        about = first_sentence(ast.get_docstring(module_text(package)) or "")
        lines += [f"## [{package}]({_from_reference(page_of(package))})", "", about, ""]
        names = [f"[`{each.name}`]({_from_reference(homes[each.home])})" for each in definitions]
        lines += [", ".join(names), ""]
    return "\n".join(lines)


def _page(package: str, definitions: list[Definition], homes: Mapping[str, str]) -> str:
    blocks = [f"# {package}", to_markdown(ast.get_docstring(module_text(package)) or "")]
    here = {each.name: each for each in definitions if _is_at(package, each, homes)}
    elsewhere = [each for each in definitions if each.name not in here]
    if elsewhere:
        links = [f"[`{each.name}`]({_from_reference(homes[each.home])})" for each in elsewhere]
        blocks.append(f"Described elsewhere: {', '.join(links)}.")
    documented = frozenset(homes)
    for each in here.values():
        blocks.append(_described(package, each, documented))
    return _linked("\n\n".join(blocks), homes, package) + "\n"


def _is_at(package: str, each: Definition, homes: Mapping[str, str]) -> bool:
    return homes[each.home].startswith(f"{page_of(package)}#")


def _described(package: str, each: Definition, documented: frozenset[str]) -> str:
    blocks = [
        f"## {each.name} {{ #{package}.{each.name} }}",
        f"```python\n{signature(each)}\n```",
        to_markdown(each.doc),
    ]
    if isinstance(each.node, ast.ClassDef):
        own = [member for member in members(each, documented) if member.doc]
        attributes = [member for member in own if not member.is_method]
        if attributes:
            blocks += ["**Attributes**", "\n".join(map(_attribute, attributes))]
        blocks += [_method(package, each, member) for member in own if member.is_method]
    blocks.append(f"Defined in `{each.module}`.")
    return "\n\n".join(block for block in blocks if block)


def _attribute(member: Member) -> str:
    text = " ".join(to_markdown(member.doc).split())
    return f"- `{member.shown}`: {text}"


def _method(package: str, owner: Definition, member: Member) -> str:
    anchor = f"{package}.{owner.name}.{member.name}"
    head = f"### {owner.name}.{member.name} {{ #{anchor} }}"
    return f"{head}\n\n```python\n{member.shown}\n```\n\n{to_markdown(member.doc)}"


def _linked(text: str, homes: Mapping[str, str], package: str) -> str:
    """Link names in code to their descriptions, where one name means one thing only."""
    by_name: dict[str, list[str]] = {}
    for home, place in homes.items():
        by_name.setdefault(home.rpartition(".")[2], []).append(place)

    def linked(found: re.Match[str]) -> str:
        places = by_name.get(found[2] or "", [])
        near = [place for place in places if place.startswith(f"{page_of(package)}#")]
        chosen = near or places
        if found[1] or len(chosen) != 1 or not found[2][0].isupper():
            return found[0]
        return f"[{found[0]}]({_from_reference(chosen[0])})"

    return _CODE.sub(linked, text)


def _from_reference(place: str) -> str:
    return place.removeprefix("reference/")
