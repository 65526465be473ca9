"""The options with which a command takes part in a run as one of several ranks."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from muster.algos.options import check_choice, check_number, check_text, check_whole
from muster.engines.join.terms import MOST_WORLD, Terms, terms_of
from muster.errors import OptionError
from muster.recipes.algorithms import ALGORITHMS, configuration_of

if TYPE_CHECKING:
    from muster.recipes.settings import Settings

Collective = Literal["sockets", "gloo", "nccl"]


@dataclass(frozen=True)
class JoinOptions:
    """Options of one command, never of a run: each rank has its own."""

    join: str | None = None
    """Train as one of several ranks: HOST:PORT of rank 0, or env (torchrun): docs/joining.md."""
    rank: int | None = None
    """With --join: the number of this command, from 0. Rank 0 listens, and writes the run."""
    world: int | None = None
    """With --join: the number of ranks. Any number gives the same bits."""
    join_timeout: float = 60.0
    """With --join: maximum seconds until all ranks have met."""
    collective: Collective = "sockets"
    """With --join, what carries gradients: sockets, with a token; gloo or nccl, of torch."""

    def __post_init__(self) -> None:
        check_text("join", self.join)
        for name, low in (("rank", 0), ("world", 1)):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), low=low, high=MOST_WORLD)
        check_number("join_timeout", self.join_timeout, high=86_400, high_too=True, example=60)
        check_choice("collective", self.collective, Collective)
        if self.join is None:
            for field in fields(self):
                if getattr(self, field.name) != field.default:
                    raise OptionError(
                        f"{field.name}={getattr(self, field.name)!r:.40} is of no use without join",
                        "it is for a run of several ranks",
                        "join=127.0.0.1:29500 rank=0 world=2",
                    )


JOIN_NAMES = tuple(field.name for field in fields(JoinOptions))


@dataclass(frozen=True)
class Membership:
    """How this command takes part in a run of several ranks."""

    terms: Terms
    collective: Collective

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which writes the run."""
        return self.terms.rank == 0


def split_join(options: Mapping[str, Any]) -> tuple[Membership | None, dict[str, Any]]:
    """Return how the command joins a run, or None, and all its other options.

    Raises:
        OptionError: An option is invalid, or the token is missing.
    """
    given = {name: options[name] for name in JOIN_NAMES if name in options}
    rest = {name: value for name, value in options.items() if name not in JOIN_NAMES}
    chosen = JoinOptions(**given)
    if chosen.join is None:
        return None, rest
    terms = terms_of(chosen.join, chosen.rank, chosen.world, chosen.join_timeout, os.environ)
    return Membership(terms, chosen.collective), rest


def check_alone(options: Mapping[str, Any]) -> None:
    """Raise OptionError for other processes besides the ranks, such as `workers=4`.

    Args:
        options: The options that were given.
    """
    for name in ("workers", "learners", "replicas"):
        count = options.get(name)
        if count not in (None, 0, 1):
            raise OptionError(
                f"{name}={count} is not possible with join",
                "each rank is one process: start one for each core",
                f"leave {name} out, and start more ranks",
            )


def check_slots(joined: Membership, slots: int) -> None:
    """Raise OptionError if there are more ranks than slots."""
    if joined.terms.world > slots:
        raise OptionError(
            f"world={joined.terms.world} is not possible with slots={slots}",
            "every rank computes one slot at least",
            f"world={slots}, or slots={joined.terms.world} for another run",
        )


def as_rank(algo: str, settings: "Settings", joined: Membership) -> "Settings":
    """Return the settings of one rank: a single process.

    Raises:
        OptionError: The algorithm or another option cannot be used with ranks.
    """
    options = settings.options
    if settings.config.PROGRAM != "in_step":
        programs = {name: getattr(configuration_of(name), "PROGRAM", None) for name in ALGORITHMS}
        able = [name for name, program in programs.items() if program == "in_step"]
        raise OptionError(
            f"{algo} cannot train as ranks that join",
            f"its processes have roles; ranks are equal, as those of {', '.join(sorted(able))}",
            "engine=ray, which runs every algorithm on several machines",
        )
    if options.engine != "local":
        raise OptionError(
            f"engine={options.engine} and join contradict each other",
            "either the engine starts all processes, or you start each rank",
            "engine=local",
        )
    check_slots(joined, settings.config.slots)  # type: ignore[attr-defined]
    return replace(settings, options=replace(options, workers=0, learners=None))
