"""How often arms are served, and how late.

served      an action that uses something was done
wait        steps between one service and the next; also from the first step of the span, or from joining, to the
first service, and from the last service to the end
in need     in a condition, seen or most likely, in which the fair relaxation of the roster would serve the arm
delay       steps from coming into need to being served; 0 if at once. A need that goes away by itself is no delay;
one that lasts at the end is counted so far
"""

from dataclasses import dataclass

import numpy as np

from evenhand.typing import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Waits:
    """How arms waited, (arm,) each."""

    served: Ints
    """How often it was served."""

    longest: Ints
    """The longest wait."""

    waiting: Ints
    """Steps since it was last served, at the end of its time in the span."""

    needs: Ints
    """How often it came into need and was served, or is still in need."""

    delay: Floats
    """Mean delay of these; nan where there was none."""

    longest_delay: Ints
    """The longest delay."""

    in_need: Ints
    """Steps for which it has been in need and not served, at the end; 0 where it is not."""


def count_waits(present: Bools, served: Bools, need: Bools) -> Waits:
    """Count waits and delays.

    Args:
        present: (arm, step) who takes part.
        served: (arm, step) who is served.
        need: (arm, step) who is in need.
    """
    n = len(present)
    waiting, longest, spell, total, ended, longest_delay = np.zeros((6, n), dtype=np.int64)
    for there, got, needy in zip(present.T, (served & present).T, (need & present).T, strict=True):
        longest = np.where(there, np.maximum(longest, waiting), longest)
        # `spell` counts steps in need, this one included: who is served at once has a spell of 1 and no delay.
        spell = np.where(there, np.where(needy, spell + 1, 0), spell)
        met = got & (spell > 0)
        total, ended = total + np.where(met, spell - 1, 0), ended + met
        longest_delay = np.where(met, np.maximum(longest_delay, spell - 1), longest_delay)
        waiting, spell = np.where(there, np.where(got, 0, waiting + 1), waiting), np.where(got, 0, spell)
    open_, so_far = spell > 0, spell
    needs, whole = ended + open_, total + so_far
    return Waits(
        served=(served & present).sum(axis=1),
        longest=np.maximum(longest, waiting),
        waiting=waiting,
        needs=needs,
        delay=np.where(needs > 0, whole / np.maximum(needs, 1), np.nan),
        longest_delay=np.maximum(longest_delay, so_far),
        in_need=spell,
    )
