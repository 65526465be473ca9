"""The documentation site: `make docs`, or `python -m website`.

    docs/*.md, README, CHANGELOG ──┐
    docstrings of public names ────┼─ stage.py ─> build/docs/docs ─ Zensical ─> build/docs/site
    files that pages link to ──────┘              (links rewritten)

The pages in docs/ are written for people who read them in the repository. `stage.py` copies them,
adds the generated ones, and makes every link lead to a page of the site, which asks nothing of
the network: it works from a disk.
"""
