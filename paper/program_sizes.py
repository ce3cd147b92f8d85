"""Sizes of the two linear programs as printed in the paper."""

from math import comb
from typing import NamedTuple


class ProgramSize(NamedTuple):
    """Size of a program according to the paper."""

    num_rows: int
    num_columns: int


def paper_gini_lp_size(num_arms: int, num_states: int) -> ProgramSize:
    """Size of the GGF-LP in the paper: N^2 + S^N constraints and 2N + (N + 1) S^N variables.

    This is for one unit of one resource, which one of N arms can get, or none; `gini_lp` builds exactly as many.

    Args:
        num_arms: N.
        num_states: S, of an arm.
    """
    joint = num_states**num_arms
    return ProgramSize(num_arms**2 + joint, 2 * num_arms + (num_arms + 1) * joint)


def paper_count_lp_size(num_arms: int, num_states: int) -> ProgramSize:
    """Size of the count dual LP in the paper: C(N+S-1, S-1) constraints and S + 1 variables for each.

    The text has A variables a count state, with A = 2; the table prints 24, 40, 60, 84, 112, 144 for N = 2, ..., 7 and
    S = 3, which is four, not two: an action on counts gives the one unit to an arm in one of the S states or to
    none, so A = S + 1. States without an arm are among them; `count_lp` leaves those out and has fewer columns.

    Args:
        num_arms: N.
        num_states: S, of an arm.
    """
    counts = comb(num_arms + num_states - 1, num_states - 1)
    return ProgramSize(counts, counts * (num_states + 1))
