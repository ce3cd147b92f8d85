"""A log: what was recorded of many arms, sorted and coded.

A row says: at this time this arm was in this state and then got this action; the next row of the arm says where it
came. The last row of an arm is where its records end: it is no event, and its action led nowhere that is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.fitting.tables import names_of_rows
from evenhand.typing import Bools, Floats, Indices, Ints

NOTHING = -1
"""The code of an action that was not recorded."""


@dataclass(frozen=True, eq=False)
class Log:
    """Records that are sound: in the order of the arms, and of time within an arm."""

    arms: tuple[str, ...]
    """(arm,) their names."""

    types: tuple[str, ...]
    """(type,) their names; one type, called `all`, where the records tell of none."""

    states: tuple[str, ...]
    """(state,) their names, in an order that means something where the records give one."""

    actions: tuple[str, ...]
    """(action,) their names, the idle action first."""

    type_of: Indices
    """(arm,) the type of each."""

    arm: Indices
    """(row,) whose row it is; never falls."""

    time: Floats
    """(row,) since the earliest row, in steps where `regular`, else in the unit of `unit`; rises within an arm."""

    state: Indices
    """(row,) where the arm was."""

    action: Indices
    """(row,) what it then got; NOTHING where that was not recorded."""

    row: Ints
    """(row,) the number of the row in the source, from 0: what faults and reports name."""

    regular: bool = True
    """Whether all times of an arm are whole steps apart."""

    step: float = 1.0
    """How long a step of the model is, in the unit of `unit`."""

    unit: str = "step"
    """What a step is counted in: `step`, or of dates and moments `month`, `week`, `day`, `hour`, `minute`, `second`."""

    reward: Floats | None = None
    """(row,) what the step was worth, if recorded; NaN where it was not."""

    used: Floats | None = None
    """(row, resource) what the action used, if recorded."""

    resources: tuple[str, ...] = ()
    """(resource,) the names of what is used."""

    groups: tuple[str, ...] = ()
    """(group,) their names; none where the records tell of none."""

    group_of: Indices | None = None
    """(arm,) the group of each, by its last row; None where the records tell of none."""

    left: Bools | None = None
    """(arm,) whether it no longer takes part; None where all of them do."""

    is_ordered: bool = True
    """Whether the order of the states means something: numbers, bins, or an order that was given."""

    notes: tuple[str, ...] = ()
    """What was decided or looked unusual while reading, in words."""

    text: Path | bytes | None = None
    """The CSV text that rows are lines of; None where they have no lines."""

    def called(self, rows: Sequence[int]) -> list[str]:
        """What a person calls rows: `line 4` of a text file, `row 3` of anything else.

        Args:
            rows: their numbers in the source, from 0, in any order.
        """
        return names_of_rows(self.text, rows)

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return len(self.arms)

    @property
    def is_last(self) -> Bools:
        """(row,) whether the records of its arm end there."""
        last: Bools = np.append(self.arm[1:] != self.arm[:-1], True)
        return last

    @property
    def ends(self) -> Floats:
        """(arm,) how many steps before the end of the records each was last seen."""
        steps = self.time if self.regular else self.time / self.step
        return np.asarray(steps.max(initial=0.0) - steps[self.is_last])

    @property
    def step_in_words(self) -> str:
        """How long a step is: `1 month`, `7 days`."""
        return f"1 {self.unit}" if self.step == 1 else f"{self.step:g} {self.unit}s"
