"""The version of muster. A separate module, so that every package can import it."""

__version__ = "0.1.0"
