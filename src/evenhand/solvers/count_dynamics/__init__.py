"""The exact optimum of many identical arms, by dynamic programming on the lattice of counts.

    V(x) = max_u [ (1/N) sum_{s,a} u(s, a) r(s, a) + gamma E[V(x') | u] ],   sum_a u(s, a) = x(s),  sum d_k u <= b_k

under any criterion (gamma = 1 for average and for an undiscounted horizon). No table of pairs and
no `TabularMDP` is built. Three ideas make a step cheap:

1. In each state one idle action is the *base*. Only how many arms stay at their base in each state, and how many land
   in the few rows beyond, matters for what comes next.
2. The expectation is applied factor by factor: extra arms first, then the base rows, as sweeps over lines of the
   lattice where the matrix of base rows is a product of splits, else as a table of laws.
3. The maximum climbs the budget cell by cell where it can; else it goes through a list of allocations that does not
   depend on the counts.

The rooms, in the order in which a problem goes through them, each with its mathematics at the top:

    slots      the arm's tables read into slots; which cells can matter; is the long run one?
    roads      which roads the problem can take, before anything large exists
    moving     arms at their base: sweeps or laws
    outcomes   what a decision leads to, and the expected value after it
    choosing   the maximum over allocations: climbing or listing
    plan       what it takes: `plan_counts`, count states, bytes, operations
    optimum    what comes out: `CountOptimum`
    bounds     what one sweep proves, rounding included
    sweeping   applying one policy again and again, and leaping
    iterating  `solve_counts`: policy iteration or backward induction; `evaluate_counts`: one policy, any rewards

A start comes from the same problem with a quarter of the arms and of the budget, since the value depends mostly on
proportions. The inner loops are in `kernels.lattice_sweeps`, and compiled in `kernels.compiled_sweeps`.
"""

from evenhand.solvers.count_dynamics.iterating import evaluate_counts, solve_counts
from evenhand.solvers.count_dynamics.optimum import CountOptimum
from evenhand.solvers.count_dynamics.plan import CountPlan, plan_counts

__all__ = ["CountOptimum", "CountPlan", "evaluate_counts", "plan_counts", "solve_counts"]
