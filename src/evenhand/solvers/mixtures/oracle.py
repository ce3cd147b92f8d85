"""Whoever finds policies: given weights, policies that do well by the weighted sum, and how much any could have.

exact dynamic programming    `solvers.pricing.TabularPricing`: one best policy, and a bound as tight as asked
weighted index policies      in `planning`: several policies that need no joint table, and the bound of the
                             relaxation at these weights, which no policy need attain
learned policies             to come: policies trained for the weighted sum, with the bound of the relaxation
"""

from typing import NamedTuple, Protocol

from evenhand.typing import Floats


class Priced(NamedTuple):
    """What was found for some weights."""

    vectors: Floats
    """(objective, policy) the values of one policy or of several, to be remembered by the oracle in this order."""

    bound: float
    """No policy has a larger weighted sum."""

    rounding: float = 0.0
    """What rounding may have done to the bound: no gap is closed beyond a few times this."""


class Oracle(Protocol):
    """Maximises a weighted sum over all policies and remembers the policies it gave."""

    def __call__(self, weights: Floats, tolerance: float) -> Priced:
        """Policies that do well by the weighted sum, and a bound on that of every policy.

        Args:
            weights: (objective,) of the members of welfare, then of the objectives with floors.
            tolerance: how near, relative to the bound, an exact oracle must come to the best weighted sum.
        """
        ...

    @property
    def units(self) -> Floats:
        """(objective,) how large each objective can be at most, in magnitude."""
        ...
