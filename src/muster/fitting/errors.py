"""Errors about training data."""

from muster.errors import MusterError


class DataError(MusterError, ValueError):
    """A data set does not exist, is damaged, or has an unexpected format."""
