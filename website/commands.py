"""The page about the command line, made of the verbs and their options."""

import ast
from collections.abc import Iterable

from website.definitions import Definition, find, module_text, options
from website.docstrings import escaped, to_markdown

PAGE = "reference/commands.md"
OPTIONS = {
    "train": ("muster.recipes.options", "TrainOptions"),
    "tune": ("muster.cli.tune", "StudyOptions"),
    "fit": ("muster.fitting.options", "FitOptions"),
}
"""Where the options of a verb are, if not in a class of its own module."""
NOTES = {
    "train": "`muster train ALGO ENV [options]`. Every algorithm has further options, on its page.",
    "tune": "`muster tune ALGO ENV [options]`. All options of `muster train` apply to every trial.",
    "fit": "`muster fit MODEL --data PATH [options]`.",
    "resume": "`muster resume RUN [options]`. It takes the options of `muster train` that are to"
    " change.",
    "bench": "`muster bench ALGO ENV [options]`. It takes the options of `muster train` too.",
    "plan": "`muster plan ALGO ENV [options]`. It takes the options of the algorithm too.",
}
"""What the options alone do not say."""


def commands_page() -> str:
    """Return the page."""
    blocks = [
        "# Command line",
        "`muster VERB --help` shows the same, with the values that apply to your command. An"
        " unknown verb or option is refused with the nearest name. Exit codes: 0 done, 1 a run"
        " failed, 2 bad input, 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.",
    ]
    for verb, about in _verbs().items():
        blocks += [f"## muster {verb}", f"{about[0].upper()}{about[1:]}."]
        if verb in NOTES:
            blocks.append(NOTES[verb])
        chosen = _options_of(verb)
        if chosen is not None:
            blocks += [to_markdown(chosen.doc), _table(chosen)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _verbs() -> dict[str, str]:
    node = find("muster.cli.main", "VERBS").node
    assert isinstance(node, ast.Assign)
    verbs: dict[str, str] = ast.literal_eval(node.value)
    return verbs


def _options_of(verb: str) -> Definition | None:
    if verb in OPTIONS:
        return find(*OPTIONS[verb])
    module = f"muster.cli.{verb.replace('-', '_')}"
    for node in module_text(module).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Options"):
            return find(module, node.name)
    return None


def _table(chosen: Definition) -> str:
    rows = list(_rows(options(chosen)))
    return (
        "\n".join(["| option | default | what it does |", "|---|---|---|", *rows]) if rows else ""
    )


def _rows(found: Iterable[tuple[str, str, str, str]]) -> Iterable[str]:
    for name, kind, default, doc in found:
        positional = "Positional" in kind
        shown = name.upper() if positional else f"--{name.replace('_', '-')}"
        value = f"`{default}`".replace("|", "\\|") if default else ""
        yield f"| `{shown}` | {value} | {escaped(doc).replace('|', '&#124;')} |"
