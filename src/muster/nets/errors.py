"""What goes wrong with networks: one that cannot be built or loaded, and numbers that are none."""

from muster.errors import MusterError


class ModelError(MusterError, ValueError):
    """A network cannot be built, or does not fit the weights or the spaces that it is given."""


class NonFiniteError(MusterError, ArithmeticError):
    """A loss or a gradient is NaN or infinite. The weights are those of before the update."""
