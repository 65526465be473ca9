"""Losses, each with its derivatives by what networks put out. They know no network."""
