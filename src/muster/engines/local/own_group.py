"""Imported first by the fork server: takes it out of reach of signals to the parent's group.

`kill -TERM` to a whole group is meant for the parent, which asks the nodes to finish. A fork
server that died of it would take them along; it ends by itself when the parent is gone.
"""

import os

OWN_GROUP = "MUSTER_FORK_SERVER"
"""Set while the fork server starts: this module does nothing in any other process."""

if os.environ.pop(OWN_GROUP, None) is not None:
    os.setpgid(0, 0)
