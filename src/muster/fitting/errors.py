"""What is wrong with data that a network is to be trained on."""

from muster.errors import MusterError


class DataError(MusterError, ValueError):
    """A data set is not there, is damaged, or is not what it is taken for."""
