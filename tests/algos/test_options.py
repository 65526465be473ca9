"""What an option that is refused says to try: what was meant, if that can be known."""

import pytest

from muster.algos.options import check_number, check_whole
from muster.errors import OptionError


@pytest.mark.parametrize(
    ("value", "fix"),
    [(1e4, 10_000), ("2048", 2_048), ("1e5", 100_000), ("many", 1), (-3, 1), ("nan", 1), (None, 1)],
)
def test_the_whole_number_that_was_meant_is_what_to_try(value, fix):
    with pytest.raises(OptionError, match=f"try: env_steps={fix}$"):
        check_whole("env_steps", value)


@pytest.mark.parametrize(
    ("value", "fix"), [("0.01", "0.01"), ("-1", "0.5"), ("fast", "0.5"), ("nan", "0.5")]
)
def test_the_number_that_a_text_holds_is_what_to_try(value, fix):
    with pytest.raises(OptionError, match=f"try: lr={fix}$"):
        check_number("lr", value)
