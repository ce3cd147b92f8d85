"""The problem as frozen data: no algorithm, no randomness.

Arm, ArmTables (many arms as padded arrays), CoupledMDP, TabularMDP, the welfare functions, the Policy protocols,
and model files in and out.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.model.arm import Arm, ArmTables
    from evenhand.model.composite import MixturePolicy, TimeVaryingPolicy
    from evenhand.model.coupled import MOST_ARMS, CoupledMDP, usable_amount
    from evenhand.model.criterion import Average, Criterion, Discounted, Finite, Opening, as_criterion, parse_criterion
    from evenhand.model.explanations import explain_by_rank, order_by_rank, policy_family
    from evenhand.model.io.model_file import load, save, write_atomically
    from evenhand.model.io.text_table import SHOWN_FAULTS, as_table, read_table
    from evenhand.model.labels import (
        Labels,
        Names,
        amount_of,
        arm_names,
        base_names,
        listed,
        one_more,
        own_names,
        path_of,
        quoted,
        type_names,
        with_words,
    )
    from evenhand.model.objective import Objective, read_welfare
    from evenhand.model.parquet.stored import KEY, open_arms
    from evenhand.model.parquet.writer import ArmWriter
    from evenhand.model.policy import (
        BasePolicy,
        Capabilities,
        Exchangeable,
        HasAllocationDistribution,
        Policy,
        StatefulPolicy,
        begin,
        capabilities,
        is_exchangeable,
        plays_by_counts,
    )
    from evenhand.model.simulator import Simulator
    from evenhand.model.state_table import find_arms, in_order
    from evenhand.model.tabular import TabularMDP
    from evenhand.model.welfare.base import Welfare
    from evenhand.model.welfare.power_mean import AlphaFair
    from evenhand.model.welfare.rank_weighted import Gini, Leximin, Maximin, RankWeighted, Utilitarian, weight_of_worst
    from evenhand.model.welfare.text_form import as_welfare, parse_welfare, register_welfare

__getattr__, __dir__ = attach(__name__, __file__)
