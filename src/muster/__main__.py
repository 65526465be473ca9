"""`python -m muster` is the command `muster`."""

from muster.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
