"""Links and headings of Markdown pages."""

import re
from collections.abc import Callable, Iterator, Mapping

from markdown.extensions.toc import slugify, unique

_CODE = re.compile(r"(^ *(`{3,})[^`\n]*\n.*?^ *\2`*[ \t]*$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_FILE_NAME = re.compile(r"\[(?:\w+/)*\w+\.md\]\(([^()\s#]+)(#[^()\s]*)?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: *\{ *#([\w.-]+) *\})?[ #]*$", re.MULTILINE)


def relinked(text: str, change: Callable[[str], str]) -> str:
    """Return a page with every link changed; links in code stay as they are."""
    return "".join(
        part if is_code else _LINK.sub(lambda found: f"]({change(found[1])})", part)
        for part, is_code in _parts(text)
    )


def titled(text: str, titles: Mapping[str, str]) -> str:
    """Return a page whose links have the title of their page in place of its file name.

    Args:
        text: The page.
        titles: Titles by the links of the page.
    """

    def shown(found: re.Match[str]) -> str:
        title = titles.get(found[1])
        return f"[{title}]({found[1]}{found[2] or ''})" if title else found[0]

    return "".join(
        part if is_code else _FILE_NAME.sub(shown, part) for part, is_code in _parts(text)
    )


def links(text: str) -> list[str]:
    """Return where a page leads to, without what is code."""
    return [found for part, is_code in _parts(text) if not is_code for found in _LINK.findall(part)]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as the site names them."""
    prose = "".join(part for part, _ in _parts(text) if not part.lstrip().startswith("```"))
    found: set[str] = set()
    for heading, own in _HEADING.findall(prose):
        plain = re.sub(r"\]\([^)]*\)|[`\[\]]", "", heading)
        found.add(own or unique(slugify(plain, "-"), set(found)))
    return found


def is_outside(link: str) -> bool:
    """Whether a link leads to another site."""
    return bool(re.match(r"[a-z][a-z0-9+.-]*:", link))


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a page, and whether each is code."""
    end = 0
    for found in _CODE.finditer(text):
        yield text[end : found.start()], False
        yield found[0], True
        end = found.end()
    yield text[end:], False
