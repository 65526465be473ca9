"""Finds the node of a shared object: `home="role.learner"` in a program that runs anywhere."""

from muster.errors import OptionError
from muster.flow.node import ProgramNode
from muster.framework.labels import matches


def find_home(node: ProgramNode, home: str | int, what: str) -> int:
    """Return the id of the one node that `home` names.

    Args:
        node: This node.
        home: A node id, `node.<id>` or `role.<name>`; for a role with several nodes, the first.
        what: The shared object, for the message.
    """
    roles = node.place.roles
    for other, role in enumerate(roles):
        names = {f"node.{other}"} | ({f"role.{role}"} if role else set())
        if home == other or (isinstance(home, str) and matches(frozenset(names), [home])):
            return other
    known = sorted({f"role.{role}" for role in roles if role})
    raise OptionError(
        f"home={home!r} of {what} is not a node of this run",
        f"there are node.0 to node.{len(roles) - 1}"
        + (f" and {', '.join(known)}" if known else ""),
        f"home={(known or ['node.0'])[0]!r}",
    )
