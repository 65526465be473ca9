"""Errors of networks: one that cannot be built or loaded, and NaN or infinite numbers."""

from muster.errors import MusterError


class ModelError(MusterError, ValueError):
    """A network cannot be built, or does not fit the given weights or spaces."""


class NonFiniteError(MusterError, ArithmeticError):
    """A loss or a gradient is NaN or infinite. The weights are those from before the update."""
