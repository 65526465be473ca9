"""Losses, each with its derivatives w.r.t. the outputs of networks. They do not know networks."""
