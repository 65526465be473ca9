"""Results for users: lists of runs, comparisons over seeds, a report page, the same page live.

run directories -> runs.py (one RunSummary each) -> listing.py, comparing.py   tables, JSON
                                                 -> groups.py -> page.py       one HTML file
                                                                 live.py       the same, served

This package writes nothing into a run, imports no torch, and executes nothing from a run's files.
"""
