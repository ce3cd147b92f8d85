"""Sums without rounding: as fsum, and the same for every order and grouping."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.kernels.exact_sums import added, exact_sum, exact_sums, rounded

numbers = st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300), min_size=1)


@given(numbers)
def test_sums_are_rounded_once(found):
    assert rounded((exact_sum(np.array(found)),))[0] == math.fsum(found)


@given(numbers, st.randoms(use_true_random=False), st.integers(0, 100))
def test_neither_order_nor_grouping_matters(found, random, cut):
    whole = exact_sum(np.array(found))
    mixed = found.copy()
    random.shuffle(mixed)
    parts = [np.array(part) for part in (mixed[:cut], mixed[cut:]) if part]
    assert sum(map(exact_sum, parts)) == whole


def test_the_smallest_and_the_largest_doubles_are_added():
    extremes = [5e-324, 1.7e308, -1.7e308, 2.2e-308, -0.0]
    assert rounded((exact_sum(np.array(extremes)),))[0] == math.fsum(extremes) == 2.2e-308 + 5e-324


def test_columns_are_added_one_by_one():
    table = np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(3)
    parts = [exact_sums(table[:20]), exact_sums(table[20:])]
    assert rounded(added(parts)) == pytest.approx([math.fsum(column) for column in table.T], rel=0, abs=0)
