"""Build the documentation site: `make docs`, or `python -m website`.

Prints the file to open in a browser; it needs no server and no network.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from website.stage import ROOT, stage


def build(folder: Path) -> Path:
    """Write the site below a folder and return its first page; warnings of Zensical are errors."""
    folder.mkdir(parents=True, exist_ok=True)
    stage(folder)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run([*command, "-f", str(folder / "mkdocs.yml")], cwd=folder)
    if done.returncode:
        raise SystemExit(done.returncode)
    return folder / "site" / "index.html"


def main() -> None:
    """Build, and say where the site is."""
    parser = argparse.ArgumentParser(prog="python -m website", description=__doc__)
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build" / "docs", help="folder (build/docs)"
    )
    first = build(parser.parse_args().into.resolve())
    print(f"open {first}")


if __name__ == "__main__":
    main()
