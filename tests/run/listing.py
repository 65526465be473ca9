"""What is in a directory of checkpoints, for the tests of the store."""

import os


def names(paths):
    return [path.name for path in paths]


def hidden(path):
    return sorted(name for name in os.listdir(path) if name.startswith(".") and name != ".lock")
