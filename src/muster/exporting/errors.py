"""Errors of an export."""

from muster.errors import MusterError


class ExportError(MusterError, RuntimeError):
    """A policy cannot be exported, or the file behaves differently from the policy."""
