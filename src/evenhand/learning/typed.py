"""Training for arms of several types and a welfare: copies on counts, and the best mixture of a network's policies.

The reward of a step is the sum of g_t times the mean reward of the arms of type t. The weights g are drawn for every
episode, around those of the fair relaxation: the network sees them (`policies.type_network`) and learns the best
response to any of them. It is evaluated at a few: those of the relaxation, equal ones for all arms, and those that
lean to one type. The plan is the best mixture of these policies for the welfare, by the values that each type has, and
of a few more, the responses to the weights that the mixture so far has (column generation by the network).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand import kernels
from evenhand.evaluation.count_simulation import first_counts
from evenhand.evaluation.exact import exact_values
from evenhand.learning.worlds import Keys, Seed, Step
from evenhand.model.composite import MixturePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.objective import Objective
from evenhand.model.welfare import Welfare
from evenhand.planning.relaxation import relax
from evenhand.policies.network import Network
from evenhand.policies.type_network import TypeNetworkPolicy, type_allocation, type_inputs
from evenhand.solvers.column_generation.shares import best_shares
from evenhand.solvers.counts.reduction import num_count_states
from evenhand.typing import Bools, Floats, Singles


class TypeWorld:
    """Copies of a problem stored as counts of each type, at weights drawn per episode."""

    def __init__(self, problem: CoupledMDP, num_copies: int, centre: Floats, rng: Seed, fixed: bool = False) -> None:
        """Prepare the copies.

        Args:
            problem: the problem.
            num_copies: copies to step together.
            centre: (type,) weights around which those of the episodes are drawn.
            rng: seed or generator.
            fixed: whether all episodes have the weights of the centre.
        """
        self.problem, self.discount, self.num_copies = problem, problem.discount, num_copies
        self.centre, self.fixed = centre, fixed
        self.weights = np.repeat(centre[None], num_copies, axis=0)
        self.counts = np.zeros((num_copies, *problem.types.valid.shape[:2]), dtype=np.int64)
        self.rewards = np.where(problem.types.valid, problem.types.rewards, 0.0)
        self.earned: Floats = np.zeros((num_copies, problem.num_types))
        self.seed(rng)

    def seed(self, rng: Seed) -> None:
        """Set the seed of all randomness."""
        self.keys = Keys(rng)

    def restart(self, which: Bools) -> None:
        """Draw weights and first counts."""
        number, rng = int(which.sum()), self.keys.generator()
        if not self.fixed:
            away = rng.random((number, 1)) ** 2
            drawn = rng.dirichlet(np.ones(len(self.centre)), number)
            self.weights[which] = (1 - away) * self.centre + away * drawn
        arms = np.repeat(self.problem.type_counts[None], number, axis=0)
        self.counts[which] = first_counts(self.problem.types.initial, arms, self.keys.next())

    def observe(self) -> Singles:
        """(copy, input) proportions, budget shares and weights."""
        return type_inputs(self.problem, self.counts, self.weights)

    def step(self, outputs: Singles) -> Step:
        """Allocate, pay and move, all copies at once."""
        allocation = type_allocation(self.problem, outputs, self.counts)
        sums = (allocation * self.rewards).sum(axis=(2, 3))
        self.counts = kernels.step_crowds(self.problem.types.transitions, allocation, self.keys.next(), 0)
        # (copy, type) mean reward of the arms of a type.
        self.earned = sums / self.problem.type_counts
        shares = allocation.sum(axis=0) / allocation.sum()
        moments = float((shares * self.rewards).sum()), float((shares * self.rewards**2).sum())
        return Step((self.weights * self.earned).sum(axis=1), {"allocation": allocation}, moments)


@dataclass(frozen=True, eq=False)
class TypeJudge:
    """Welfare of the best mixture of a network's policies."""

    problem: CoupledMDP
    """The problem."""

    welfare: Welfare
    """The welfare."""

    most_exact: int = 1500
    """Count states up to which policies are evaluated exactly."""

    copies: int = 256
    """Copies that are simulated otherwise."""

    rounds: int = 6
    """Rounds of column generation: the network's responses to the weights of the mixture so far."""

    most_leaning: int = 12
    """Types up to which weights that lean to each of them are tried."""

    @cached_property
    def exact(self) -> bool:
        """True if values are exact."""
        return num_count_states(self.problem) <= self.most_exact

    @cached_property
    def objective(self) -> Objective:
        """The welfare over the types."""
        return Objective.of_types(self.problem, self.welfare)

    @cached_property
    def centre(self) -> Floats:
        """(type,) weights of the fair relaxation, as shares."""
        # Of the relaxation they are per arm.
        weights = np.maximum(relax(self.problem, self.welfare).weights, 0.0) * self.problem.type_counts
        return np.asarray(weights / weights.sum()) if weights.sum() > 0 else self._equal

    @property
    def _equal(self) -> Floats:
        return self.problem.type_counts / self.problem.num_arms

    @cached_property
    def tried(self) -> Floats:
        """(policy, type) weights at which a network is evaluated."""
        number = self.problem.num_types
        leaning = [
            (1 - lean) * self.centre + lean * np.eye(number)[kind]
            for kind in range(number if 1 < number <= self.most_leaning else 0)
            for lean in (0.1, 0.4)
        ]
        return np.unique([self.centre, self._equal, *leaning], axis=0)

    def mixture(self, network: Network, stream: Sequence[int]) -> tuple[float, TypeNetworkPolicy | MixturePolicy]:
        """The welfare of the best mixture, and the policy."""
        parts, columns, new = list[TypeNetworkPolicy](), list[Floats](), list(self.tried)
        for _ in range(self.rounds):
            parts += (added := [TypeNetworkPolicy(self.problem, network, weights) for weights in new])
            columns += [self.objective.members(self._values(part, stream)) for part in added]
            members = np.array(columns).T
            shares, support = best_shares(members, self.welfare, self.objective.sizes)
            # The response to the weights of the mixture so far is the next policy.
            weights = np.maximum(self.objective.spread(support.weights), 0.0)
            if not weights.sum() > 0 or any(np.allclose(weights / weights.sum(), part.weights) for part in parts):
                break
            new = [weights / weights.sum()]
        shares = np.where(shares > 1e-3, shares, 0.0)
        shares /= shares.sum()
        value = float(self.welfare(members @ shares, self.objective.sizes))
        held = np.flatnonzero(shares)
        mixed = MixturePolicy([parts[place] for place in held], shares[held]) if len(held) > 1 else parts[held[0]]
        return value, mixed

    def __call__(self, network: Network, stream: Sequence[int]) -> float:
        """The welfare of the best mixture."""
        return self.mixture(network, stream)[0]

    def _values(self, policy: TypeNetworkPolicy, stream: Sequence[int]) -> Floats:
        """(type,) value of an arm: exact, or on the episodes of a stream that training never draws from."""
        if self.exact:
            return exact_values(self.problem, policy).values
        criterion = self.problem.criterion
        world = TypeWorld(self.problem, self.copies, policy.weights, np.random.default_rng(stream), fixed=True)
        world.restart(np.ones(self.copies, dtype=np.bool_))
        total = np.zeros(self.problem.num_types)
        for weight in criterion.time_weights(criterion.judging_steps(1e-3)).tolist():
            world.step(policy.network(world.observe()))
            total += weight * world.earned.mean(axis=0)
        return total
