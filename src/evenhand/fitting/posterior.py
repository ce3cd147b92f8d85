"""What is known of transition rows after the records: a distribution over them.

Two forms. `Dirichlet` rows, where every step was seen:

    p[t, s, a, :] ~ Dirichlet(concentration[t, s, a, :])        independent over (t, s, a)

with a concentration of 0 for a transition that cannot be. And `Drawn`: a sample from the posterior, where steps were
missed or times are irregular and the rows are not independent. Both give means, equal-tailed intervals, and draws.
"""

from dataclasses import dataclass
from typing import Protocol

from evenhand.typing import Floats, Rng


class Posterior(Protocol):
    """A distribution over (type, state, action, next_state) transitions."""

    @property
    def mean(self) -> Floats:
        """(type, state, action, next_state) the transitions a model is made of."""
        ...

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Two arrays as `mean`: where each entry lies with this probability, equal tails left out.

        Args:
            level: between 0 and 1.
        """
        ...

    def draw(self, num_draws: int, rng: Rng = 0) -> Floats:
        """(draw, type, state, action, next_state) transitions; the first draws are the same however many are asked for.

        Args:
            num_draws: how many.
            rng: a seed, or a generator.
        """
        ...


@dataclass(frozen=True, eq=False)
class Dirichlet:
    """Independent rows."""

    concentration: Floats
    """(type, state, action, next_state) counts and prior together; 0 where a transition cannot be."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """A sample from the posterior."""

    mean: Floats
    """(type, state, action, next_state) the estimate a model is made of."""

    draws: Floats
    """(draw, type, state, action, next_state)."""
