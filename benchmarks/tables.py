"""Write the tables of the pages about benchmarks from the committed results.

    python -m benchmarks.tables            rewrites the tables in docs/
    python -m benchmarks.tables --check    changes nothing; exit code 1 if a page is out of date

A page has its prose from its authors, and between two marks a table from the files in `results/`:

    <!-- table: learning -->
    ...
    <!-- end of table -->

So a figure on these pages cannot differ from the file that it was measured into. The tables about
learning are in `learning_tables.py`, those beside other libraries in `peer_tables.py`.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks import learning_tables, peer_tables

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "benchmarks.md", DOCS / "comparison.md")
TABLES: dict[str, Callable[[], str]] = {
    "learning": learning_tables.every_result,
    "coverage": learning_tables.algorithms_by_envs,
    "loop": learning_tables.cost_of_the_loop,
    "exchange": peer_tables.exchange,
    "ppo": peer_tables.ppo_speed,
    "solve": peer_tables.seconds_to_solve,
    "shapes": peer_tables.shapes,
    "impala": peer_tables.impala_speed,
    "updates": peer_tables.updates,
    "ratios": peer_tables.every_ratio,
}
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with every table made anew from the results."""
    return MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def main() -> None:
    """Rewrite the pages, or say which of them are out of date."""
    parser = argparse.ArgumentParser(description="Write the tables of docs/ from the results.")
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    options = parser.parse_args()
    new = {page: filled(page.read_text()) for page in PAGES}
    stale = {page: text for page, text in new.items() if text != page.read_text()}
    for page, text in stale.items():
        print(f"{page.name} {'is out of date' if options.check else 'written'}")
        if not options.check:
            page.write_text(text)
    if options.check and stale:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
