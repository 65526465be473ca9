"""What can go wrong with an export."""

from muster.errors import MusterError


class ExportError(MusterError, RuntimeError):
    """A policy cannot be exported, or the file does not do what the policy does."""
