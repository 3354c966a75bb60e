"""The statistics of turns: known values of the test, what it sees, and that it sees nothing where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from deploy.matrix.significance import compare, mann_whitney


def test_groups_apart_have_the_smallest_p() -> None:
    assert mann_whitney([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert mann_whitney([1, 1, 1], [1, 1, 1]) == 1.0


@pytest.mark.parametrize("rounds", [5, 7, 10])
def test_of_layers_without_a_difference_few_are_reported(rounds: int) -> None:
    """Also on a machine that becomes slower, is disturbed now and then, and whose processes differ by some percent."""
    rng = np.random.default_rng(7)
    seen = 0
    for _ in range(400):
        drift = np.linspace(1, rng.uniform(1, 1.5), rounds)
        first, second = (
            (drift * rng.lognormal(0, 0.03, rounds) * np.where(rng.random(rounds) < 0.1, 1.6, 1.0)).tolist()
            for _ in range(2)
        )
        seen += compare(first, second).verdict != "no difference seen"
    assert seen <= 400 * 0.02
