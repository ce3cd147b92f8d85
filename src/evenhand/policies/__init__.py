"""Ways to act, all feasible by construction.

PriorityPolicy and ExchangeablePriority (greedy by score), the baselines of the paper built on them
(random_feasible, worst_first, myopic, never_act), RoundRobin, trained networks (CountNetworkPolicy,
JointNetworkPolicy), and any function (from_function).

Example:
    >>> import evenhand as eh
    >>> problem = eh.problems.machine_replacement(num_arms=3)
    >>> eh.policies.worst_first(problem).act([0, 2, 1], rng=0)
    array([0, 1, 0], dtype=int32)
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.model.composite import MixturePolicy, TimeVaryingPolicy
from evenhand.policies.baselines import myopic, never_act, random_feasible, worst_first
from evenhand.policies.deadlines import DeadlinePolicy
from evenhand.policies.fluid import OccupancyPriority, Resolving, fair_index, occupancy_priority
from evenhand.policies.functions import FunctionPolicy, from_function
from evenhand.policies.ideal_actions import IdPolicy, SetExpansion, TwoSet, VirtualAdvice
from evenhand.policies.index import lp_index, whittle
from evenhand.policies.look_ahead import LookAhead, look_ahead
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy, Network
from evenhand.policies.priority import ExchangeablePriority, PriorityPolicy
from evenhand.policies.round_robin import RoundRobin
from evenhand.policies.type_network import TypeNetworkPolicy
from evenhand.solvers.counts.reduction import CountChoices, CountTable, TypedChoices
from evenhand.solvers.joint import JointTable

if TYPE_CHECKING:
    from evenhand.policies.baselines import means_when_idle, values_when_idle
    from evenhand.policies.index import indices_of
    from evenhand.policies.network import (
        LEAST_PRIORITY,
        num_draws,
        num_outputs,
        observe,
        read_priorities,
        spend_amounts,
    )
    from evenhand.policies.priority import rank_scores, settle

__getattr__, __dir__ = attach(__name__, __file__)

SAVABLE = (
    TimeVaryingPolicy,
    MixturePolicy,
    CountChoices,
    CountNetworkPolicy,
    CountTable,
    DeadlinePolicy,
    ExchangeablePriority,
    IdPolicy,
    JointNetworkPolicy,
    JointTable,
    LookAhead,
    OccupancyPriority,
    PriorityPolicy,
    Resolving,
    RoundRobin,
    SetExpansion,
    TwoSet,
    TypeNetworkPolicy,
    TypedChoices,
    VirtualAdvice,
)
"""Classes of policies that plan files may hold, each known by its `kind`."""

__all__ = [
    "SAVABLE",
    "CountNetworkPolicy",
    "ExchangeablePriority",
    "FunctionPolicy",
    "IdPolicy",
    "JointNetworkPolicy",
    "LookAhead",
    "Network",
    "OccupancyPriority",
    "PriorityPolicy",
    "Resolving",
    "RoundRobin",
    "SetExpansion",
    "TwoSet",
    "TypeNetworkPolicy",
    "VirtualAdvice",
    "fair_index",
    "from_function",
    "look_ahead",
    "lp_index",
    "myopic",
    "never_act",
    "occupancy_priority",
    "random_feasible",
    "whittle",
    "worst_first",
]
