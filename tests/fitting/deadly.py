"""A small network with batch norm that kills the replica it is computed by, as MUSTER_DEADLY says.

"1 7 3 /tmp/marks": replica 1 dies at its 7th forward pass since it was started, three times in all.
"""

import os
import signal
from pathlib import Path

from torch import nn

from muster.flow.node import this_node

VARIABLE = "MUSTER_DEADLY"


class Deadly(nn.Module):
    def __init__(self, space, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes)
        )
        self._passes = 0

    def forward(self, x):
        self._passes += 1
        if this_node() is not None and VARIABLE in os.environ:
            who, when, times, marks = os.environ[VARIABLE].split(maxsplit=3)
            done = len(list(Path(marks).iterdir()))
            due = this_node().place.node_id == int(who) and self._passes == int(when)
            if due and done < int(times):
                (Path(marks) / str(done)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(x)
