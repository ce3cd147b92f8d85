"""Runs of sorted values: all ranks in their order, and no tie is cut."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenhand.kernels import runs


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 9))
def test_runs_cover_all_ranks_and_cut_no_tie(numbers, length):
    values = np.array(numbers, dtype=float)
    order, usual = np.argsort(values), runs.RUN
    try:
        runs.RUN = length
        found = list(runs.tied_runs(values, order))
        within = [list(runs.pieces(run.ranks)) for run in found]
    finally:
        runs.RUN = usual
    assert [rank for run in found for rank in range(run.ranks.start, run.ranks.stop)] == list(range(len(values)))
    seen = set()
    for run, parts in zip(found, within, strict=True):
        own = set(values[order[run.ranks]].tolist())
        assert run.tied == (len(own) == 1)
        assert run.tied or run.ranks.stop - run.ranks.start <= length
        assert not own & seen
        seen |= own
        assert [parts[0].start, parts[-1].stop] == [run.ranks.start, run.ranks.stop]
        assert all(part.stop - part.start <= length for part in parts)
