"""Docstrings of the house (Google style) as Markdown."""

import re

_SECTION = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Example|Examples|Note):")
_ITEM = re.compile(r" {4}(\*{0,2}\w[\w., *]*?)(?: \([^)]*\))?: (.*)")
_DRAWN = re.compile(r"\S {2,}\S|[\u2500-\u257f]")
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_PAGE = re.compile(r"\bdocs/(\w+)\.md")
TITLES = {"Args": "Arguments"}


def to_markdown(doc: str) -> str:
    """Return a docstring as Markdown: sections as lists, drawings as code, `<` as a character."""
    blocks: list[str] = []
    lines = doc.strip("\n").splitlines()
    while lines:
        heading = _SECTION.fullmatch(lines[0])
        taken = _section(lines) if heading else _paragraph(lines)
        if heading:
            blocks += [f"**{TITLES.get(heading[1], heading[1])}**", _listed(taken[1:])]
        elif any(line.strip() for line in taken):
            blocks.append(_shown(taken))
        lines = lines[len(taken) :]
    return "\n\n".join(blocks)


def first_sentence(doc: str) -> str:
    """Return what a docstring says first, in one line."""
    text = " ".join(doc.split("\n\n")[0].split())
    return escaped(re.split(r"(?<=[.:!?])\s", text)[0])


def escaped(text: str) -> str:
    """Return prose in which `<`, `_` and `*` are characters, and a page of docs/ is a link."""
    return "".join(
        part if number % 2 else _PAGE.sub(r"[\1](../\1.md)", _plain(part))
        for number, part in enumerate(_CODE.split(text))
    )


def _plain(text: str) -> str:
    """Return text that Markdown leaves as it is."""
    return re.sub(r"(?<=[^\s/\w])[*_](?=\w)|(?<=\w)\*|\*(?=\w)", r"\\\g<0>", text).replace(
        "<", "&lt;"
    )


def _section(lines: list[str]) -> list[str]:
    """Return a heading and the indented lines below it."""
    taken = [lines[0]]
    for line in lines[1:]:
        if line and not line.startswith(" "):
            break
        taken.append(line)
    return taken


def _paragraph(lines: list[str]) -> list[str]:
    """Return the lines up to an empty one, with it."""
    taken = []
    for line in lines:
        taken.append(line)
        if not line.strip():
            break
    return taken


def _shown(lines: list[str]) -> str:
    """Return a paragraph; one that is indented, or has columns, is a drawing."""
    text = "\n".join(lines).rstrip()
    is_list = text.lstrip().startswith(("- ", "1. "))
    if not is_list and (lines[0].startswith("    ") or any(map(_DRAWN.search, lines))):
        return f"```text\n{text}\n```"
    return escaped(text)


def _listed(lines: list[str]) -> str:
    """Return the entries of a section as a list; without names, as a paragraph."""
    items: list[list[str]] = []
    for line in lines:
        found = _ITEM.fullmatch(line)
        if found:
            items.append([f"- `{found[1]}`: {escaped(found[2])}"])
        elif items and line.strip():
            items[-1].append(escaped(line.strip()))
        elif line.strip():
            items.append([escaped(line.strip())])
    return "\n".join(" ".join(item) for item in items)
