"""The answer of all shards to some prices: a few numbers, and the rule by which shards find their values again."""

from dataclasses import dataclass

from evenhand.solvers.fluid.dual_search import Cut
from evenhand.solvers.sharded.shard import Weighing
from evenhand.solvers.sharded.stops import Rule
from evenhand.typing import Floats


@dataclass(frozen=True, eq=False)
class ShardCut(Cut):
    """The answer to some prices."""

    rule: Rule
    """How shards find their values."""


@dataclass(frozen=True, eq=False)
class ShardProof:
    """Weights and prices, and the bound that they prove."""

    weights: Floats | Weighing
    """(row,) what a unit of value of one arm is worth; or how shards find that."""

    rule: Rule
    """The answer that it is about."""

    prices: Floats
    """(resource,) what a unit of use is worth."""

    bound: float
    """No solution has more welfare."""
