"""Whole training programs made of the public parts: what the command line runs.

Nothing is imported here, so that the command line can refuse a typo before torch is loaded.
"""
