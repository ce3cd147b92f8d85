"""From a model or a tabular MDP to a solution.

On a tabular MDP: occupancy (exact evaluation), dynamic_programming (the weighted-sum optimum with bounds),
linear_programs (the paper's two), column_generation and pricing (any concave welfare). On the lattice of counts,
without a table: counts. On single arms: whittle (indices), single_arm (action values), fluid (the fair relaxation).
`highs` is the only interface to HiGHS.
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach

if TYPE_CHECKING:
    from evenhand.solvers.closed_classes import Elimination, means_and_biases, never_splits, one_long_run
    from evenhand.solvers.column_generation.generate import best_mixture
    from evenhand.solvers.column_generation.improve import improve
    from evenhand.solvers.column_generation.master import Priced
    from evenhand.solvers.column_generation.shares import best_shares
    from evenhand.solvers.counts.optimum import SMALL, CountOptimum, plan_counts, solve_counts
    from evenhand.solvers.counts.reduction import (
        CountChoices,
        Counts,
        CountTable,
        TypedChoices,
        count_policy,
        count_states,
        num_count_states,
        typed_policy,
    )
    from evenhand.solvers.counts.type_iteration import Visits, solve_types
    from evenhand.solvers.counts.type_operators import Operators
    from evenhand.solvers.counts.type_plan import TypedPlan, plan_types
    from evenhand.solvers.dynamic_programming import solve_weighted
    from evenhand.solvers.fluid.fair_relaxation import (
        FluidSolution,
        model_of,
        solve_blocks,
        solve_fluid,
        solve_model,
        solve_opening,
    )
    from evenhand.solvers.fluid.frontiers import FluidModel
    from evenhand.solvers.fluid.occupancy_program import ProgramSizes
    from evenhand.solvers.fluid.price_response import SettledLevels
    from evenhand.solvers.fluid.programs import solve_by_program
    from evenhand.solvers.highs import ALGORITHMS, Algorithm, LinearProgram, solve_program
    from evenhand.solvers.joint import Joint, JointTable
    from evenhand.solvers.linear_programs import (
        LinearProgramSolution,
        count_lp,
        doubly_stochastic,
        gini_lp,
    )
    from evenhand.solvers.occupancy import occupancy_measure, policy_of, settle, total_visits, values
    from evenhand.solvers.pair_table import PairSampler
    from evenhand.solvers.pricing import TabularPricing, weighed
    from evenhand.solvers.service import best_values, reached, worth_of_service
    from evenhand.solvers.single_arm import action_values
    from evenhand.solvers.welfare_cuts import project_types
    from evenhand.solvers.whittle import whittle_indices

__getattr__, __dir__ = attach(__name__, __file__)
