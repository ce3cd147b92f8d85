"""Make it smaller, and come back: each reduction turns a problem into a tabular MDP and its policies into policies.

Reduction (the protocol), Joint (the product space), Counts (how many arms are in each state).
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.reductions.counts import CountChoices, Counts, CountTable, TypedChoices, count_policy, typed_policy
from evenhand.reductions.joint import Joint, JointTable
from evenhand.reductions.reduction import Reduction

if TYPE_CHECKING:
    from evenhand.reductions.counts import count_states, num_count_states
    from evenhand.reductions.sampling import PairSampler

__getattr__, __dir__ = attach(__name__, __file__)

__all__ = [
    "CountChoices",
    "CountTable",
    "Counts",
    "Joint",
    "JointTable",
    "Reduction",
    "TypedChoices",
    "count_policy",
    "typed_policy",
]
