"""Oracle of column generation: given weights, policies that do well by the weighted sum, and a bound on every policy.

exact dynamic programming    `solvers.pricing.TabularPricing`: one best policy, and a bound as tight as required
weighted index policies      in `planning`: several policies that need no joint table, and the bound of the
                             relaxation at these weights, which no policy need attain
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from evenhand.typing import Floats


class Priced(NamedTuple):
    """Policies found for some weights."""

    vectors: Floats
    """(objective, policy) values of one policy or of several, which the oracle stores in this order."""

    bound: float
    """Upper bound on the weighted sum of every policy."""

    rounding: float = 0.0
    """Rounding error of the bound: no gap is closed beyond a few times this."""


class Oracle(Protocol):
    """Maximises a weighted sum over all policies and stores the policies it returned."""

    def __call__(self, weights: Floats, tolerance: float) -> Priced:
        """Return policies that do well by the weighted sum, and a bound on that of every policy.

        Args:
            weights: (objective,) of the members of welfare, then of the objectives with floors.
            tolerance: distance of an exact oracle from the best weighted sum, relative to the bound.
        """
        ...

    @property
    def units(self) -> Floats:
        """(objective,) largest possible magnitude of each objective."""
        ...


@dataclass
class Mixture:
    """A mixture of the priced policies, in the order of pricing."""

    shares: Floats
    """(policy,) share of each priced policy."""

    values: Floats
    """(objective,) values of the mixture; those with floors come last."""

    welfare: float
    """Welfare of its members."""

    upper_bound: float
    """Upper bound on the welfare of every policy."""

    rounds: int = 0
    """Calls of the oracle."""
