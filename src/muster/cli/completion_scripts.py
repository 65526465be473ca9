"""Completion scripts: the words of `completion_words` in the language of each shell.

The scripts are static. Pressing Tab starts no Python, which would take a second each time.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from muster.cli.completion_words import VerbWords, Words

_BASH = """\
# muster for bash. Made by `muster completion bash`; write it again after an update.
_muster() {{
    local word before verb words
    word="${{COMP_WORDS[COMP_CWORD]}}"
    before="${{COMP_WORDS[COMP_CWORD-1]}}"
    verb="${{COMP_WORDS[1]}}"
    words=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=( $(compgen -W "{verbs}" -- "$word") )
        return
    fi
    case "$verb $before" in
{values}
    esac
    if [ -z "$words" ] && [ "${{word#-}}" = "$word" ]; then
        case "$verb $COMP_CWORD" in
{places}
        esac
    fi
    if [ -z "$words" ]; then
        case "$verb" in
{common}
        esac
        case "$verb ${{COMP_WORDS[2]}}" in
{own}
        esac
    fi
    if [ "$words" = "FILES" ]; then
        local IFS=$'\\n'
        COMPREPLY=( $(compgen -f -- "$word") )
    else
        COMPREPLY=( $(compgen -W "$words" -- "$word") )
    fi
}}
complete -o filenames -o bashdefault -F _muster muster
"""

_ZSH = """\
# muster for zsh. Made by `muster completion zsh`; write it again after an update.
autoload -Uz compinit bashcompinit
(( $+functions[compdef] )) || compinit
bashcompinit
"""


def bash(verbs: Sequence[VerbWords]) -> str:
    """Return the script for bash."""
    values: dict[Words, list[str]] = {}
    places: dict[Words, list[str]] = {}
    for each in verbs:
        for name, words in each.values.items():
            values.setdefault(words, []).append(f"{each.verb} {name}")
        for number, words in enumerate(each.places, 2):
            places.setdefault(words, []).append(f"{each.verb} {number}")
    common: dict[Words, list[str]] = {}
    own: dict[Words, list[str]] = {}
    for each in verbs:
        for algo, names in each.options.items():
            if algo and names:
                own.setdefault(names, []).append(f"{each.verb} {algo}")
            elif names:
                common.setdefault(names, []).append(each.verb)
    return _BASH.format(
        verbs=" ".join(each.verb for each in verbs),
        values="\n".join(_cases(values, 8)),
        places="\n".join(_cases(places, 12)),
        common="\n".join(_cases(common, 12)),
        own="\n".join(_cases(own, 12, "$words ")),
    )


def zsh(verbs: Sequence[VerbWords]) -> str:
    """Return the script for zsh, which runs that for bash."""
    return _ZSH + bash(verbs).replace("# muster for bash.", "# The same for bash.", 1)


def fish(verbs: Sequence[VerbWords]) -> str:
    """Return the script for fish."""
    return "\n".join(["# muster for fish. Made by `muster completion fish`.", *_fish(verbs)]) + "\n"


SCRIPTS: dict[str, Callable[[Sequence[VerbWords]], str]] = {
    "bash": bash,
    "fish": fish,
    "zsh": zsh,
}
"""For each shell the function that makes its script."""


def _cases(by_words: Mapping[Words, list[str]], indent: int, before: str = "") -> Iterator[str]:
    """Yield the branches of a `case` that set `words`."""
    for words, patterns in by_words.items():
        names = "FILES" if words is None else " ".join(words)
        told = "|".join(f'"{pattern}"' for pattern in patterns)
        yield f'{" " * indent}{told}) words="{before}{names}" ;;'


def _fish(verbs: Sequence[VerbWords]) -> Iterator[str]:
    for each in verbs:
        told = shlex.quote(each.what)
        yield f"complete -c muster -n __fish_use_subcommand -f -a {each.verb} -d {told}"
    for each in verbs:
        seen = f"__fish_seen_subcommand_from {each.verb}"
        for number, words in enumerate(each.places, 2):
            here = f"{seen}; and test (count (commandline -opc)) -eq {number}"
            what = "-F" if words is None else f"-f -a {shlex.quote(' '.join(words))}"
            yield f"complete -c muster -n {shlex.quote(here)} {what}"
        for algo, names in each.options.items():
            here = f"{seen}; and __fish_seen_subcommand_from {algo}" if algo else seen
            begin = f"complete -c muster -n {shlex.quote(here)} -l"
            yield from (f"{begin} {name[2:]}{_fish_value(each, name)}" for name in names)


def _fish_value(each: VerbWords, name: str) -> str:
    if name not in each.values:
        return ""
    words = each.values[name]
    return " -r -F" if words is None else f" -x -a {shlex.quote(' '.join(words))}"
