"""The version of muster. By itself, so that every room can ask for it."""

__version__ = "0.1.0"
