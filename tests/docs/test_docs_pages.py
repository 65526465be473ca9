"""The pages that the documentation site is built from: all are there, and every link leads on."""

import ast
import re
from pathlib import PurePosixPath

import pytest
from benchmarks import tables
from website.definitions import find, module_text, public_names, signature
from website.docstrings import to_markdown
from website.links import anchors, is_outside, links, relinked, titled
from website.nav import titles
from website.reference import PACKAGES
from website.stage import ROOT, stage

import muster
from muster.cli.main import VERBS

WRITTEN = sorted((ROOT / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    stage(folder)
    return folder / "docs"


@pytest.fixture(scope="module")
def pages(staged):
    return {path.relative_to(staged).as_posix(): path.read_text() for path in staged.rglob("*.md")}


def test_every_page_is_in_the_navigation_and_every_entry_has_a_page(pages):
    named = {page for page in pages if not page.startswith("source/")}
    assert set(titles()) == named


def test_every_link_and_anchor_of_the_site_leads_to_something(pages, staged):
    dead = []
    for page, text in pages.items():
        for link in links(text):
            path, _, anchor = link.partition("#")
            if is_outside(link):
                continue
            target = (staged / page).parent / path if path else staged / page
            if not target.is_file():
                dead.append(f"{page}: {link}")
            elif anchor and anchor not in anchors(target.read_text()):
                dead.append(f"{page}: {link} has no such heading")
    assert dead == []


def test_every_anchor_in_the_repository_is_a_heading():
    dead = [
        f"{page.name}: {link}"
        for page in [*WRITTEN, ROOT / "README.md"]
        for link in links(page.read_text())
        if "#" in link and not is_outside(link)
        and link.partition("#")[2]
        not in anchors((page.parent / (link.partition("#")[0] or page.name)).read_text())
    ]  # fmt: skip
    assert dead == []


def test_no_page_loads_anything_from_outside(pages):
    outside = re.compile(r"!\[[^\]]*\]\(\w+:|<(?:img|script|link|iframe)\b[^>]*//|@import")
    code = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
    loads = {page: outside.findall(code.sub("", text)) for page, text in pages.items()}
    assert {page: found for page, found in loads.items() if found} == {}
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings and "//" not in settings


@pytest.mark.parametrize("page", [*WRITTEN, ROOT / "README.md"], ids=lambda page: page.name)
def test_a_page_reads_the_same_on_the_site_as_in_the_repository(page):
    """The site's Markdown wants four columns in a list, and an empty line before a list."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\n\n {1,3}\S.*", prose) == []
    assert re.findall(r"^[^-\s|#*\d].*\n- .*", re.sub(r"\n +", " ", prose), re.MULTILINE) == []


def test_every_public_name_is_in_the_reference(pages):
    index = pages["reference/index.md"]
    for package in PACKAGES:
        for name in public_names(package):
            assert f"[`{name}`]" in index or name == "__version__", f"{package}.{name}"
    assert sorted(public_names("muster")) == sorted(muster.__all__)


def test_every_package_with_public_names_has_a_page():
    rooms = sorted((ROOT / "src" / "muster").glob("*/__init__.py"))
    offering = [f"muster.{path.parent.name}" for path in rooms if "__all__" in path.read_text()]
    assert [room for room in offering if room not in PACKAGES] == []


def test_a_class_is_described_with_its_arguments_methods_and_bases(pages):
    page = pages["reference/muster.md"]
    assert "class Task(\n" in page and "async_mode: bool = False" in page
    assert "- `max_step`: " in page and "### Task.run { #muster.Task.run }" in page
    assert "### Task.emit " in page, "it comes from a base that has no description of its own"
    assert "muster.md#muster.Context" in page


def test_every_verb_and_its_options_are_on_the_page_of_the_command_line(pages):
    page = pages["reference/commands.md"]
    assert re.findall(r"^## muster ([\w-]+)$", page, re.MULTILINE) == list(VERBS)
    for option in ("--env-steps", "--grid", "--replicas", "--episodes", "--video"):
        assert f"| `{option}` |" in page


def test_what_a_signature_shows_is_python():
    for package in PACKAGES:
        for name in public_names(package):
            shown = signature(find(package, name)) if name != "__version__" else ""
            is_call = shown.startswith(("class ", "def ", "async def "))
            ast.parse(re.sub(r"^class \w+\(", "def x(", shown) + ": ..." * is_call)


def test_a_docstring_becomes_lists_drawings_and_links():
    doc = """Do it; see docs/hooks.md.

    a -> b   aligned

Args:
    first: What is
        done with a_b and <b>.
    *rest: More.

Raises:
    OptionError: Never.
"""
    assert to_markdown(doc).split("\n\n") == [
        "Do it; see [hooks](../hooks.md).",
        "```text\n    a -> b   aligned\n```",
        "**Arguments**",
        "- `first`: What is done with a_b and &lt;b>.\n- `*rest`: More.",
        "**Raises**",
        "- `OptionError`: Never.",
    ]


def test_links_in_code_stay_and_file_names_become_titles():
    text = "[a.md](a.md#b) `[x](y)` [`c`](c.md)\n```\n[x](y)\n```\n"
    changed = relinked(text, lambda link: f"../{link}")
    assert changed == "[a.md](../a.md#b) `[x](y)` [`c`](../c.md)\n```\n[x](y)\n```\n"
    assert titled(changed, {"../a.md": "A"}).startswith("[A](../a.md#b) `[x](y)`")


def test_excerpts_in_the_docs_are_in_the_examples():
    examples = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    shown = [
        piece
        for page in WRITTEN
        for piece in re.findall(r"```py\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    assert len(shown) >= 10
    assert [piece for piece in shown if not any(piece in text for text in examples)] == []


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_results(page):
    assert tables.filled(page.read_text()) == page.read_text(), "run: make tables"


def test_a_module_docstring_is_what_its_page_begins_with(pages):
    for package in PACKAGES:
        page = PurePosixPath("reference", package.removeprefix("muster.").replace(".", "_"))
        first = (ast.get_docstring(module_text(package)) or "").splitlines()[0]
        assert first.split(":")[0][:20] in pages[f"{page}.md"]
