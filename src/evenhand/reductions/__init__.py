"""Make it smaller, and come back: each reduction turns a problem into a tabular MDP and its policies into policies.

Reduction (the protocol), Joint (the product space), Counts (how many arms are in each state).
"""

from evenhand.reductions.counts import CountChoices, Counts, CountTable, TypedChoices, count_policy, typed_policy
from evenhand.reductions.joint import Joint, JointTable
from evenhand.reductions.reduction import Reduction

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
