"""The exact optimum of arms of several types, by dynamic programming on their counts, applied type by type.

    V(x) = max_u [ sum_t g_t(x_t, u_t) + gamma sum_x' prod_t P_t(o_t(x_t, u_t), x'_t) V(x') ],   sum_t d(u_t) <= b

A state is a point x_t of the lattice of counts for each type, a decision an allocation u_t for each, within the budget
together. No table of states and decisions is built, since both fall apart into types:

1. A type has *pairs* (x_t, u_t), each with its gain, its use of the budget and its *outcome* o_t: how many arms move by
   each distinct row, which is all that its next counts depend on.
2. Given the outcomes, the types' next counts are independent: the expectation is taken along one axis after the other.
3. Given the outcomes of the types before it, the best pair of a type depends on nothing else of their decisions but
   what is left of the budget: the maximum is taken along one axis after the other too, in the reverse order.

With n_t(c) outcomes, p_t(c) pairs and e_t(c) entries of laws that use c of the budget, and |X_t| points, one step costs

    sum over t and over uses c_1, ..., c_t that fit together of
        prod_{s<t} n_s(c_s) * (e_t(c_t) + p_t(c_t)) * prod_{s>t} |X_s|,

where a table has a row of its own for every decision in every state. The memory is that of a few boxes of values. Once
a policy is chosen, its operator needs one outcome a state only and is cheaper by far: so improvements are few, and each
is followed by many sweeps of the policy that was found.

The rooms:

    moves      a type's pairs, uses, outcomes and laws
    plan       what it takes: `plan_types`, states, bytes, operations
    choosing   the maximum over all decisions, or over those that were seen to be good
    operators  the three operators: choosing, following a policy, pushing a law through it
    solving    `solve_types`: policy iteration or backward induction; `Visits`: what policies are worth

The inner loops are in `kernels.type_sweeps`, and compiled in `kernels.compiled_types`. How policies are swept is shared
with the lattice of identical arms (`count_dynamics.sweeping`), and so is what a sweep proves (`count_dynamics.bounds`).
"""

from evenhand.solvers.typed_counts.moves import Moves
from evenhand.solvers.typed_counts.operators import Operators
from evenhand.solvers.typed_counts.plan import TypedPlan, plan_types
from evenhand.solvers.typed_counts.pricing import TypedPricing
from evenhand.solvers.typed_counts.solving import TypedOptimum, Visits, solve_types

__all__ = ["Moves", "Operators", "TypedOptimum", "TypedPlan", "TypedPricing", "Visits", "plan_types", "solve_types"]
