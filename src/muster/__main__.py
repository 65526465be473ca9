"""The command `muster`, which is also `python -m muster`."""


def main() -> int:
    """Run the command line of this process and return its exit code."""
    # Before other imports: a signal during an import would cause a traceback. The kernel ends the
    # process until `leaving` is loaded; importing `signal` itself would load enum and re first.
    import _signal  # type: ignore[import-not-found, unused-ignore]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from muster.cli.leaving import leave_at_once_on_signals

    leave_at_once_on_signals()
    from muster.cli.main import main as obey

    return obey()


if __name__ == "__main__":
    raise SystemExit(main())
