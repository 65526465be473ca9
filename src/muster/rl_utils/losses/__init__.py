"""Losses, each with its derivatives by the outputs of networks. They know no network."""
