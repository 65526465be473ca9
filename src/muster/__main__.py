"""The command `muster`, which is also `python -m muster`."""

from muster.cli.leaving import leave_at_once_on_signals


def main() -> int:
    """Run the command line of this process and return its exit code."""
    # Before the rest is loaded: a signal in an import would be answered by a traceback.
    leave_at_once_on_signals()
    from muster.cli.main import main as obey

    return obey()


if __name__ == "__main__":
    raise SystemExit(main())
