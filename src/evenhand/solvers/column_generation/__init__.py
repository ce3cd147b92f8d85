"""The best mixture of policies for a concave welfare, by column generation.

Occupancy measures form a polytope, so the value vectors of all policies are a convex set, the hull of the vectors of
deterministic policies, and

    max_pi W(V^pi) = max { W(sum_i theta_i v^i) : theta in the simplex },       v^i the vectors of policies.

The *master* solves this over the vectors found so far. Its optimum comes with a *support* of the welfare: weights g and
a constant c with W(v) <= g.v + c for every v. The *oracle* maximises g.V^pi over all policies, exactly or as well as it
can. Its bound on that maximum bounds the welfare of every policy, and its policies are new vectors. With an exact
oracle the two meet at the optimum.

    master     the best mixture of known vectors, by cuts of the welfare; protocol of the oracle; the result `Mixture`
    shares     vectors that do not grow: raising the least value, leximin stage by stage, `best_shares`
    generate   the loop with an exact oracle: `best_mixture`
    improve    the loop with an oracle that is not exact: `improve`
"""

from evenhand.solvers.column_generation.generate import best_mixture
from evenhand.solvers.column_generation.improve import Round, improve
from evenhand.solvers.column_generation.master import Mixture, Priced
from evenhand.solvers.column_generation.shares import best_shares
