"""`write_report`: one HTML file with all results of runs, which loads nothing from elsewhere.

    runs -> groups -> sections -> `body` -> `page`: style and script inline, a policy that lets the
                                            browser load nothing and run nothing else

Text that is not known to be HTML is escaped (`html.py`). The live page shows the same body.
"""

import base64
import functools
import hashlib
import os
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from muster.errors import OptionError
from muster.report import sections
from muster.report.groups import grouped
from muster.report.html import Html, joined, tag
from muster.report.runs import RunSummary, find_runs
from muster.run.files import write_atomic
from muster.shown import shown
from muster.version import __version__

MOST_RUNS = 200
"""Maximum number of runs on one page."""


def write_report(*places: str | Path, out: str | Path = "report.html") -> Path:
    """Write a page about some runs.

    Args:
        *places: Runs, or folders of runs.
        out: The file; an existing file is replaced only if it is a report.

    Returns:
        The path of the page.

    Raises:
        OptionError: There are no runs, too many, or the file cannot be written.
    """
    if not places:
        raise OptionError(
            "a report needs at least one run",
            "a report is about runs, or folders of runs",
            "runs/first",
        )
    runs = find_runs(*places)
    if len(runs) > MOST_RUNS:
        raise OptionError(
            f"{len(runs)} runs are too many for one page",
            f"it shows up to {MOST_RUNS}",
            "a folder with fewer runs",
        )
    path = Path(os.path.abspath(out))
    _check_out(path)
    written = page(body(runs), title(runs))
    try:
        write_atomic(path, written.encode("utf-8", "replace"))
    except OSError as error:
        raise OptionError(
            f"{shown(path)} could not be written: {error.strerror}",
            "its folder does not exist, or is not writable",
            "--out report.html",
        ) from error
    return path


def _check_out(path: Path) -> None:
    """Refuse to replace a file that is not a report."""
    if not os.path.lexists(path):
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            ours = file.read(len(_FIRST_LINE)) == _FIRST_LINE.encode()
    except OSError:
        ours = False
    if not ours:
        raise OptionError(
            f"{shown(path)} exists, and is not a report",
            "a report replaces only an older report",
            "--out with another name",
        )


_STYLE = "page.css"
_FIRST_LINE = "<!doctype html><!-- muster report -->"


def title(runs: Sequence[RunSummary]) -> str:
    """Return the title of a page about some runs."""
    algos = ", ".join(sorted({run.algo or "?" for run in runs})[:5])
    envs = ", ".join(sorted({run.env or "?" for run in runs})[:5])
    return f"{algos} on {envs}"


def body(runs: Sequence[RunSummary]) -> Html:
    """Return the content of a page about some runs."""
    groups = grouped(runs)
    counted = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    several = len(groups) < len(runs) or len(groups) > 1
    return joined(
        [
            tag("h1", title(runs)),
            tag("p", f"{counted}, read at {when} by muster {__version__}", class_="soft"),
            sections.overview(runs),
            tag("h2", "Returns over seeds") if several else None,
            sections.returns(groups) if several else None,
            sections.curves(groups),
            sections.timing(runs),
            sections.replaced(runs),
            sections.settings(runs),
            sections.films(runs),
            sections.machines(runs),
            sections.commands(runs),
        ]
    )


def policy(scripts: Sequence[str], also: Sequence[str] = ()) -> str:
    """Return the content security policy of a page: only its own style and scripts.

    Args:
        scripts: Files of this package that the page runs.
        also: Additional permissions.
    """
    allowed = " ".join(_hash(_file(each)) for each in scripts)
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hash(_file(_STYLE))}",
            f"script-src {allowed}",
            "img-src data:",
            "media-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            *also,
        ]
    )


def page(
    content: Html, name: str, scripts: Sequence[str] = ("page.js",), also: Sequence[str] = ()
) -> str:
    """Return a whole page from its content, its title, and the arguments of `policy`."""
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy(scripts, also)}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="referrer" content="no-referrer">'),
        Html('<link rel="icon" href="data:,">'),
        tag("title", f"{name} - muster"),
        tag("style", _file(_STYLE)),
    )
    code = (tag("script", _file(each)) for each in scripts)
    whole = tag("html", head, tag("body", tag("main", content), *code), lang="en")
    return f"{_FIRST_LINE}\n{whole}\n"


@functools.cache
def _file(name: str) -> Html:
    return Html(resources.files("muster.report").joinpath(name).read_text("utf-8"))


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
