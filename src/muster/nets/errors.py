"""Errors of networks: one that cannot be built or loaded, and NaN or infinite numbers."""

from muster.errors import MusterError


class ModelError(MusterError, ValueError):
    """A network cannot be built, or does not fit the given weights or spaces."""


class NonFiniteError(MusterError, ArithmeticError):
    """A loss or a gradient is NaN or infinite; the network that it belongs to is not changed.

    An agent with several networks may have updated another one before: SAC's critics learn before
    its policy, and the message says whether they have. The running means of batch norm, which a
    forward pass updates, are not restored.
    """
