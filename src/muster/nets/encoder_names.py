"""Names of the residual encoders, with what `muster train --backbone` adds to them.

    resnet20              as muster train builds it: group norm, pixels divided by 255
    resnet20_batch        as muster fit built it: images standardised by the numbers of its training
                          set, and this norm, here one with fixed averages (also _group, _none)
    resnet20_batch_frozen the same, and its weights do not learn
    impala_cnn_frozen     likewise

The name of a run's network is in its files, so a run that began from a backbone is resumed, played
and sent to nodes like any other.
"""

import re
from dataclasses import dataclass

_NAME = re.compile(r"(?:(resnet\d{1,9})(?:_(batch|group|none))?|(impala_cnn))(_frozen)?", re.ASCII)


@dataclass(frozen=True)
class EncoderName:
    """The parts of a residual encoder's name."""

    base: str
    """`resnet20`, `impala_cnn`, ..."""
    norm: str | None = None
    """The norm of `muster fit`, which also standardises images; None: as `muster train`."""
    frozen: bool = False
    """Whether its weights do not learn."""

    @classmethod
    def of(cls, name: str) -> "EncoderName | None":
        """Return the parts of a name; None if it is not that of a residual encoder."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(found[1] or found[3], found[2], found[4] is not None)

    def __str__(self) -> str:
        return "_".join([self.base, *filter(None, [self.norm]), *["frozen"] * self.frozen])
