"""`muster completion bash|zsh|fish`: prints a script for the shell."""

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from muster.cli.arguments import parse
from muster.errors import OptionError
from muster.spelling import nearest

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script: the Tab key then completes verbs, algorithms and options.

    Also environments, networks, engines and other values of options.

    bash, in ~/.bashrc:  source <(muster completion bash)

    zsh, in ~/.zshrc:    source <(muster completion zsh)

    fish:  muster completion fish > ~/.config/fish/completions/muster.fish

    To save a second when a shell starts, write the script into a file.

    It holds the names that are known now: write it again after an update.
    """

    shell: tyro.conf.Positional[str]
    """Your shell: bash, zsh or fish."""


def main(argv: Sequence[str]) -> int:
    """Print the script."""
    options = parse(CompletionOptions, argv, "muster completion")
    if options.shell not in SHELLS:
        raise OptionError(
            f"there is no completion for {options.shell!r:.80}",
            f"there are scripts for {', '.join(SHELLS)}",
            f"muster completion {nearest(options.shell, SHELLS) or 'bash'}",
        )
    from muster.cli.completion_scripts import SCRIPTS
    from muster.cli.completion_words import verbs

    print(SCRIPTS[options.shell](verbs()), end="")
    return 0
