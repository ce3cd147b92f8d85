"""What a reduction answers: do I accept this problem, what is the smaller one, how do I come back."""

from typing import Protocol

from evenhand.model.coupled import CoupledMDP
from evenhand.model.policy import Policy
from evenhand.model.tabular import TabularMDP
from evenhand.typing import Floats

MOST_PAIRS = 20_000_000
"""Feasible pairs beyond which a table is refused."""


class Reduction(Protocol):
    """A problem seen as a tabular MDP. Made for one problem; the tables are built when first asked for."""

    problem: CoupledMDP

    @classmethod
    def accepts(cls, problem: CoupledMDP) -> str | None:
        """None if the problem can be treated, else the reason why not, with the size in words."""
        ...

    @property
    def mdp(self) -> TabularMDP:
        """The tabular problem; its objectives are the arms or the types."""
        ...

    def lift(self, probabilities: Floats) -> Policy:
        """A policy of the original problem from (pair,) probabilities, which sum to 1 over the pairs of a state."""
        ...
