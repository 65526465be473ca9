"""Ranks that users start by themselves, on one machine or several. See docs/joining.md."""
