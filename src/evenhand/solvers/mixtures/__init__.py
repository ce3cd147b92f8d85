"""The best mixture of policies for a concave welfare, by column generation.

Occupancy measures form a polytope, so the value vectors of all policies are a convex set, the hull of the vectors of
deterministic policies, and

    max_pi W(V^pi) = max { W(sum_i theta_i v^i) : theta in the simplex },       v^i the vectors of policies.

The *master* solves this over the vectors found so far. Its optimum comes with a *support* of the welfare: weights g and
a constant c with W(v) <= g.v + c for every v. The *oracle* maximises g.V^pi over all policies, exactly or as well as it
can. Its bound on that maximum bounds the welfare of every policy, and its policies are new vectors. With an exact
oracle the two meet at the optimum.

The rooms, each with its mathematics at the top:

    oracle     what is asked of whoever finds policies: `Oracle`, `Priced`
    search     vectors found so far, supports, the bound and the gap: `Mixture`, `Support`
    masters    the best mixture of known vectors, one master a structure of welfare: `master_of`
    proximal   that of a rank-weighted welfare of many members, with Newton steps in `simplex_newton`
    leximin    raising the least value over fixed or growing vectors; floors; leximin stage by stage
    engine     the loop: `best_mixture`
    shares     the best mixture of vectors that do not grow: `best_shares`
"""

from evenhand.solvers.mixtures.engine import best_mixture
from evenhand.solvers.mixtures.oracle import Oracle, Priced
from evenhand.solvers.mixtures.search import Mixture, Support
from evenhand.solvers.mixtures.shares import best_shares

__all__ = ["Mixture", "Oracle", "Priced", "Support", "best_mixture", "best_shares"]
