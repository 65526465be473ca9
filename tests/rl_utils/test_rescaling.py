"""The rescaling of values against its formula, and its inverse."""

import math

import numpy as np
import pytest

from muster.rl_utils.rescaling import rescale, undo_rescale


@pytest.mark.parametrize("x", [-1e6, -37.5, -1.0, -1e-4, 0.0, 1e-4, 0.5, 3.0, 99.0, 1e6])
@pytest.mark.parametrize("eps", [1e-3, 0.1, 1.0])
def test_it_is_the_formula_of_the_paper_and_comes_back(x, eps):
    expected = math.copysign(math.sqrt(abs(x) + 1) - 1, x) + eps * x
    scaled = rescale(np.array([x]), eps)
    assert scaled[0] == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert undo_rescale(scaled, eps)[0] == pytest.approx(x, rel=1e-9, abs=1e-12)


def test_float32_values_of_a_network_come_back_to_seven_digits():
    x = np.linspace(-500, 500, 2_001).astype(np.float32)
    np.testing.assert_allclose(undo_rescale(rescale(x)), x, rtol=1e-7, atol=1e-9)
    assert (np.diff(rescale(x)) > 0).all()
