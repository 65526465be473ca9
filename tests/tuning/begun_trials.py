"""What pretended trials say of themselves in `begun.txt` of a study."""

from pathlib import Path


def begun(study):
    """Return the trials that were begun, in their order, by name."""
    return [line.split()[0] for line in (Path(study) / "begun.txt").read_text().splitlines()]


def pids(study):
    return [int(line.split()[1]) for line in (Path(study) / "begun.txt").read_text().splitlines()]
