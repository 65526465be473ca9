"""What the system knows of a process by its id."""

from pathlib import Path


def start_of(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if there is none.

    A process id may belong to another process by now; id and start together do not.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[19])
