"""Names of the residual encoders, with what `muster train --backbone` adds to them.

    resnet20              as muster train builds it: group norm, pixels divided by 255
    resnet20_batch        as muster fit built it: images standardised by the numbers of its training
                          set, and this norm, here one with fixed averages (also _group, _none)
    resnet20_batch_frozen the same, and its weights do not learn
    impala_cnn_none       likewise, for a network without norms; impala_cnn_none_frozen

The name of a run's network is in its files, so a run that began from a backbone is resumed, played
and sent to nodes like any other.
"""

import re
from dataclasses import dataclass

_RESNET = r"(?P<resnet>resnet\d{1,9})(?:_(?P<norm>batch|group|none))?"
_IMPALA = r"(?P<impala>impala_cnn)(?:_(?P<none>none))?"
_NAME = re.compile(rf"(?:{_RESNET}|{_IMPALA})(?P<frozen>_frozen)?", re.ASCII)


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
        base, norm = found["resnet"] or found["impala"], found["norm"] or found["none"]
        return cls(base, norm, found["frozen"] is not None)

    def __str__(self) -> str:
        return "_".join([self.base, *filter(None, [self.norm]), *["frozen"] * self.frozen])
