"""Facts about a process, by its id."""

from pathlib import Path


def start_of(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it does not exist.

    The system reuses process ids; id and start time together identify a process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[19])
