"""Measurements as states."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInputError
from evenhand.fitting.table_reader import cut

from ..conftest import mentions


def test_widths_cuts_and_quantiles() -> None:
    values = np.array([0.0, 4999.9, 5000.0, 12000.0, np.nan])
    wide = cut(values, "5000")
    assert wide.names == ("0–5000", "5000–10000", "10000–15000") and wide.codes.tolist() == [0, 0, 1, 2, -1]
    cuts = cut(np.array([-1.0, 0.0, 9999.0, 10000.0]), "0,5000,10000")
    assert cuts.names == ("below 0", "0–5000", "5000–10000", "10000 and more")
    tenths = cut(np.arange(1000.0), "quantile:10")
    assert np.bincount(tenths.codes).tolist() == [100] * 10
    assert cut(np.array([1.0, 1.0, 2.0]), "quantile:10").codes.tolist()[:2] == [0, 0]


def test_an_empty_bin_is_not_a_state() -> None:
    assert cut(np.array([1.0, 101.0]), 10).names == ("0–10", "100–110")


def test_a_measurement_at_a_cut_is_in_the_bin_that_begins_there() -> None:
    """Also where the multiples of a width are no binary fractions: 3 * 0.1 is above 0.3."""
    for width in (0.1, 0.7, 0.05, 1.1):
        values = np.array([float(f"{k * width:.6g}") for k in range(200)])
        names = cut(values, width).names
        assert [float(name.split("–")[0]) for name in names] == values.tolist()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0.5, 1e5) | st.integers(2, 8))
def test_bins_hold_the_values_between_their_ends(values: list[float], how: float) -> None:
    array = np.array(values)
    spec = f"quantile:{how}" if isinstance(how, int) else how
    if not isinstance(how, int) and np.ptp(array) / how > 9000:
        return
    coded = cut(array, spec)
    order = np.argsort(array, kind="stable")
    assert (np.diff(coded.codes[order]) >= 0).all()
    assert len(set(coded.names)) == len(coded.names) == len(set(coded.codes.tolist()))
    if not isinstance(how, int):
        assert all(np.ptp(array[coded.codes == code]) <= how * (1 + 1e-9) for code in set(coded.codes.tolist()))


@pytest.mark.parametrize("bins", ["", "x", "0", "-5", "5,3", "5,nan", "quantile:1", "quantile:x", "1e-9", []])
def test_bins_that_make_no_sense(bins: str) -> None:
    with pytest.raises(InvalidInputError, check=mentions("bins")):
        cut(np.array([1.0, 2.0]), bins)


@pytest.mark.parametrize(("values", "width"), [([1.0, 2.0], 1e-309), ([1e17, 2.0], 1e-300), ([1e17, 1e17 + 64], 1.0)])
def test_widths_beyond_what_numbers_tell_are_refused(values: list[float], width: float) -> None:
    with pytest.raises(InvalidInputError, check=mentions("bins")):
        cut(np.array(values), width)
