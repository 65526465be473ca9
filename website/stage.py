"""Gathers the pages of the site in a folder: those of docs/, and those made from other files.

README.md                  index.md, up to its figures, which have pages of their own
CHANGELOG, CONTRIBUTING    changelog.md, contributing.md
docstrings                 reference/*.md
src, examples, ... that a page links to    source/*.md
results, pictures that a page links to     files/*
"""

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from website.commands import PAGE as COMMANDS
from website.commands import commands_page
from website.links import is_outside, relinked, titled
from website.nav import titles
from website.reference import PACKAGES, page_of, reference_pages

ROOT = Path(__file__).parent.parent
FROM_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files of the repository that become pages."""
FIGURES = "## How fast it is"
"""The heading of README with which its figures begin."""
AFTER_README = """## Read on

- [Concepts](docs/concepts.md): task, context, middleware, labels and engines.
- [Tutorial](docs/tutorial.md): from a plain loop to several machines, in small steps.
- [Benchmarks](docs/benchmarks.md) and [how muster compares](docs/comparison.md).
- [Architecture](docs/architecture.md) and [contributing](CONTRIBUTING.md).
"""
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml"}
COPIED = {".json", ".png", ".svg", ".jpg"}
"""Endings of files that a browser shows as they are."""


@dataclass
class Stage:
    """The pages that were written, and the files that they need besides."""

    target: Path
    wanted: dict[str, str] = field(default_factory=dict)
    """File of the repository -> its place on the site, for files that are not pages there."""

    def write(self, page: str, text: str) -> None:
        """Write a page whose links are right already."""
        path = self.target / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_from(self, origin: str, page: str, text: str) -> None:
        """Write a page whose links are those of a file of the repository."""
        folder = PurePosixPath(origin).parent
        below = PurePosixPath(page).parent

        def change(link: str) -> str:
            path, mark, anchor = link.partition("#")
            if is_outside(link) or not path:
                return link
            place = self.place_of(os.path.normpath(folder / path))
            return os.path.relpath(place, below) + mark + anchor

        known = {os.path.relpath(each, below): title for each, title in titles().items()}
        self.write(page, titled(relinked(text, change), known))

    def place_of(self, file: str) -> str:
        """Return where a file of the repository is on the site."""
        package = _package_of(file)
        if file in FROM_ROOT:
            return FROM_ROOT[file]
        if file.startswith("docs/"):
            return file.removeprefix("docs/")
        if package is not None:
            return page_of(package)
        if PurePosixPath(file).suffix in COPIED:
            place = f"files/{file}"
        elif (ROOT / file).is_dir():
            place = f"source/{file}/index.md"
        else:
            place = f"source/{PurePosixPath(file).with_suffix('.md')}"
        self.wanted[file] = place
        return place

    def fetch(self) -> None:
        """Write the files that pages link to; a folder's page links to further files."""
        done: set[str] = set()
        while left := [file for file in self.wanted if file not in done]:
            for file in left:
                done.add(file)
                self._fetch_one(file, self.wanted[file])

    def _fetch_one(self, file: str, place: str) -> None:
        path = ROOT / file
        if path.suffix in COPIED:
            (self.target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.target / place)
        elif path.is_dir():
            names = sorted(each.name for each in path.iterdir() if each.suffix == ".py")
            listed = "\n".join(f"- [{name}]({file}/{name})" for name in names)
            self.write_from("-", place, f"# {file}\n\n{listed}\n")
        else:
            language = LANGUAGES.get(path.suffix, "text")
            self.write(place, f"# {file}\n\n````{language}\n{path.read_text()}````\n")


def stage(folder: Path) -> None:
    """Fill a folder with `mkdocs.yml` and, under `docs`, every page of the site."""
    target = folder / "docs"
    if target.exists():
        shutil.rmtree(target)  # pages that there are no more
    target.mkdir(parents=True)
    shutil.copyfile(ROOT / "mkdocs.yml", folder / "mkdocs.yml")
    pages = Stage(target)
    for path in sorted((ROOT / "docs").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".md":
            pages.write_from(name, name.removeprefix("docs/"), path.read_text())
        elif path.is_file():
            place = target / name.removeprefix("docs/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    for origin, page in FROM_ROOT.items():
        text = (ROOT / origin).read_text()
        if origin == "README.md":
            text = text.partition(FIGURES)[0] + AFTER_README
        pages.write_from(origin, page, text)
    for page, text in reference_pages().items():
        pages.write(page, text)
    pages.write(COMMANDS, commands_page())
    shutil.copytree(Path(__file__).parent / "assets", target / "assets")
    pages.fetch()


def _package_of(file: str) -> str | None:
    """Return the package whose page describes a file, if there is one."""
    found = re.fullmatch(r"src/(muster(?:/\w+)*?)(?:/__init__)?(?:\.py)?", file)
    package = found[1].replace("/", ".") if found else None
    return package if package in PACKAGES else None
