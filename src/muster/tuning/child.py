"""The process of one trial: `muster train ...`, which the kernel ends with the study's process."""

import runpy
import sys

from muster.processes import end_with


def main() -> None:
    """Train as the command line says, after the id of the parent."""
    parent, *words = sys.argv[1:]
    end_with(int(parent))
    sys.argv = ["muster", *words]
    runpy.run_module("muster", run_name="__main__")


if __name__ == "__main__":
    main()
