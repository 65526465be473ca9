"""F1 to F4 of the fault catalogue, for the real command as a process of its own.

The same code as benchmarks/faults/signals.py, with fewer trials.
"""

import pytest
from benchmarks.faults import signals


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", signals.KINDS)
def test_a_signal_at_any_moment_ends_in_time_with_its_code_and_a_run_that_is_whole(kind, tmp_path):
    found = signals.attempt(kind, tmp_path, 3)
    assert found["examples_of_violations"] == []
    assert found["landed"] >= 2, found["outcomes"]
