"""Labels describe a node; `filter_labels` selects the nodes on which a middleware runs."""

import difflib
import os
import warnings
from collections.abc import Iterable
from fnmatch import fnmatchcase

from muster.errors import MusterWarning, OptionError

ENVIRONMENT_VARIABLE = "MUSTER_LABELS"

Labels = frozenset[str]


def standalone_labels(async_mode: bool, own: Iterable[str]) -> Labels:
    """Return the labels of a task that runs by itself; `own` are those passed to `Task`."""
    mode = {"standalone", "async"} if async_mode else {"standalone"}
    return frozenset(mode) | frozenset(own) | environment_labels()


def environment_labels() -> Labels:
    """Return the labels that the variable MUSTER_LABELS gives to every task."""
    given = os.environ.get(ENVIRONMENT_VARIABLE, "").split(",")
    return frozenset(label.strip() for label in given if label.strip())


def parse_labels(where: str, labels: object) -> tuple[str, ...]:
    """Validate labels from a user: one string, or several. `where` names them in messages."""
    several = (labels,) if isinstance(labels, str) else labels
    if not isinstance(several, Iterable):
        raise _bad_labels(where, labels, "it is neither a string nor a list of strings")
    result = tuple(several)
    for label in result:
        if not isinstance(label, str) or not label.strip():
            raise _bad_labels(where, labels, f"{label!r} is not a label")
        if "," in label:
            raise _bad_labels(where, labels, f"{label!r} has a comma: labels are separate strings")
    return tuple(label.strip() for label in result)


def parse_filter(labels: object) -> tuple[str, ...]:
    """Validate `filter_labels`, which needs at least one label."""
    result = parse_labels("filter_labels", labels)
    if not result:
        raise _bad_labels(
            "filter_labels", labels, "an empty list matches nowhere; None matches all"
        )
    return result


def _bad_labels(where: str, labels: object, why: str) -> OptionError:
    return OptionError(
        f"{where}={labels!r} is not possible", why, f'{where}=["standalone", "role.actor"]'
    )


def matches(labels: Labels, patterns: Iterable[str]) -> bool:
    """Whether any label matches any pattern. Patterns are globs: `node.*`."""
    return any(fnmatchcase(label, pattern) for pattern in patterns for label in labels)


def warn_of_typo(name: str, patterns: Iterable[str], labels: Labels) -> None:
    """Warn if a pattern of `name`, which will not run here, nearly matches a label of this node."""
    for pattern in patterns:
        near = difflib.get_close_matches(pattern, labels, n=1, cutoff=0.8)
        if near:
            warnings.warn(
                f"{name!r} does not run here: filter_labels has {pattern!r}; "
                f"did you mean {near[0]!r}?",
                MusterWarning,
                stacklevel=2,
            )
