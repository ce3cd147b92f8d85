"""The exact optimum on counts: dynamic programming on a box with one lattice axis per type.

    V(x) = max_u [ sum_t g_t(x_t, u_t) + gamma E[V(x') | u] ],   sum_a u_t(s, a) = x_t(s),  sum_t d_k u_t <= b_k

under any criterion (gamma = 1 for average and for an undiscounted horizon). No table of pairs and no `TabularMDP` is
built, but for small problems (`count_operators.Tables`).

Identical arms (`plan_counts`, `solve_counts`). In each state one idle action is the *base*; only the number of arms per
slot after a decision matters for the next counts.

    post_decision     the arm's tables in terms of slots; which cells can matter; is the long run unique? Choice of the
                      algorithm: factorised sweeps or distributions, climbing or a list
    count_operators   the expected value after a decision: sweeps or tables of distributions; the maximum over
                      allocations: climbing, listing, or explicit tables of small problems
    optimum           `plan_counts` with the cost estimate; `solve_counts` and its result

Several types (`plan_types`, `solve_types`, `TypedPricing`). Given the outcomes, types move independently:
the expectation is taken along one axis after the other, and so is the maximum, in the reverse order. With n_t(c)
outcomes, p_t(c) pairs and e_t(c) entries of distributions that use c of the budget, and |X_t| points, a step costs

    sum over t and over uses c_1, ..., c_t that fit together of
        prod_{s<t} n_s(c_s) * (e_t(c_t) + p_t(c_t)) * prod_{s>t} |X_s|

    type_plan         a type's pairs, uses, outcomes and distributions; cost estimate
    type_operators    improvement, expectation and push-forward type by type
    type_iteration    `solve_types`; `Visits`: values of policies; `TypedPricing`: the oracle of column generation

Both share `policy_iteration` (modified policy iteration, backward induction, and what a sweep proves, rounding
included). The inner loops are in `kernels.lattice_sweeps` and `kernels.type_sweeps`.
"""

from evenhand.solvers.counts.optimum import SMALL, CountOptimum, CountPlan, plan_counts, solve_counts
from evenhand.solvers.counts.type_iteration import TypedPricing, Visits
from evenhand.solvers.counts.type_operators import Operators
from evenhand.solvers.counts.type_plan import Moves, TypedPlan, plan_types
