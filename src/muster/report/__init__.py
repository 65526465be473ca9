"""What people decide from: lists of runs, comparisons over seeds, a page, the same page live.

run directories -> runs.py (one RunSummary each) -> listing.py, comparing.py   tables, JSON
                                                 -> groups.py -> page.py       one HTML file
                                                                 live.py       the same, served

Nothing here writes into a run, loads torch, or runs what a file of a run says.
"""
