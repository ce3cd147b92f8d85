"""Trained networks for arms of several types, conditioned on the weights of a welfare.

    input     counts / N by type and state,  min(1, b_k / (N max d_k)),  weights g of the types      T S + K + T numbers
    output    scores by type, state and action                                                       T S A numbers

The cells (type, state, action) are served by falling score, as by `network.CountNetworkPolicy`; idling competes, and
actions that a state does not have come last. The weights say what the network maximises: the sum of g_t v_t over the
types, with v_t the value of an arm. One network so gives a whole family of policies, one for each g, whose best
mixture is the plan for a welfare.
"""

from collections.abc import Sequence

import numpy as np

from evenhand import kernels
from evenhand.errors import NotApplicableError, PolicyError
from evenhand.model.arm_matching import matched_types
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep, explain_by_rank
from evenhand.model.policy import BasePolicy, check_arrays
from evenhand.model.stateful_policy import on_batches
from evenhand.policies.network import Network, budget_shares
from evenhand.solvers.counts.reduction import assign, count_states
from evenhand.typing import Array, Floats, Indices, Ints, Singles


def type_inputs(problem: CoupledMDP, counts: Ints, weights: Floats) -> Singles:
    """(copy, input) what a network sees.

    Args:
        problem: the problem.
        counts: (copy, type, state) arms in each state.
        weights: (copy, type) weights, which sum to 1.
    """
    usage = np.where(problem.types.valid[..., None], problem.types.usage, 0.0)
    arms = np.array([problem.num_arms])
    shares = budget_shares(arms, problem.budget[None], usage.reshape(-1, *usage.shape[2:]))
    proportions = counts.reshape(len(counts), -1) / problem.num_arms
    return np.concatenate([proportions, np.repeat(shares, len(counts), axis=0), weights], axis=1).astype(np.float32)


def type_allocation(problem: CoupledMDP, outputs: Singles, counts: Ints) -> Ints:
    """(copy, type, state, action) arms that get each action, by falling score.

    Args:
        problem: the problem.
        outputs: (copy, output) scores.
        counts: (copy, type, state) arms in each state.
    """
    types = problem.types
    number, num_types, num_states = counts.shape
    scores = np.where(types.valid, outputs.astype(np.float64).reshape(number, *types.valid.shape), -np.inf)
    # One table of states for all types: an arm never changes its type.
    usage = np.where(types.valid[..., None], types.usage, 0.0).reshape(num_types * num_states, -1, types.usage.shape[3])
    limit = np.repeat(problem.budget_limit[None], number, axis=0)
    flat = scores.reshape(number, num_types * num_states, -1), counts.reshape(number, -1)
    served = kernels.serve_greedily(*map(np.ascontiguousarray, flat), limit, np.ascontiguousarray(usage))
    return np.asarray(served).reshape(scores.shape)


class TypeNetworkPolicy(BasePolicy):
    """A network on the count proportions of each type, at given weights of the types."""

    kind = "type-network"
    decides = "by a trained network"
    deterministic = True

    def __init__(self, problem: CoupledMDP, network: Network, weights: Floats) -> None:
        """Fit the network to a problem.

        Args:
            problem: arms of one or several types.
            network: from T S + K + T numbers to T S A scores.
            weights: (type,) weights that the network maximises for; they sum to 1.
        """
        if problem.spends_all.any():
            raise NotApplicableError("networks decide how much to spend; they are for budgets that need not be spent")
        self.problem, self.network, self.weights = problem, network, np.asarray(weights, dtype=np.float64)
        num_types, num_states, num_actions = problem.types.valid.shape
        expected = num_types * num_states + problem.num_resources + num_types, num_types * num_states * num_actions
        if (network.num_inputs, network.num_outputs) != expected or self.weights.shape != (num_types,):
            raise PolicyError(
                f"the network has {network.num_inputs} inputs and {network.num_outputs} outputs; {num_types} types of "
                f"{num_states} states and {num_actions} actions need {expected[0]} and {expected[1]}"
            )

    def _in_short(self) -> str:
        return f"{super()._in_short()}, {self.network!r}"

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Allocate by counts, and draw who within a type and state gets an action."""
        return assign(self.problem.type_of_arm, states, self.allocate(count_states(self.problem, states), rng), rng)

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """(episode, type, state, action) numbers of arms."""
        return type_allocation(self.problem, self._outputs(counts), counts)

    def allocation_distribution(self, counts: Ints) -> tuple[Ints, Floats]:
        """The law of the allocation at (type, state) counts: a single one."""
        return self.allocate(counts[None], np.random.default_rng(0)), np.ones(1)

    def _outputs(self, counts: Ints) -> Singles:
        weights = np.repeat(self.weights[None], len(counts), axis=0)
        return self.network(type_inputs(self.problem, counts, weights))

    def to_arrays(self) -> dict[str, Array]:
        """Return the network and the weights."""
        return self.network.to_arrays() | {"type_weights": self.weights}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "TypeNetworkPolicy":
        """Return the policy of this network."""
        check_arrays({"type_weights": arrays["type_weights"]}, type_weights="f1")
        layers = {name: array for name, array in arrays.items() if name != "type_weights"}
        return cls(problem, Network.from_arrays(layers), arrays["type_weights"])

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> "TypeNetworkPolicy":
        """Return the same network for other numbers of arms of all its types; see `BasePolicy.resized`."""
        if list(matched_types(self.problem, problem, types)) != list(range(self.problem.num_types)):
            raise NotApplicableError("a network for several types needs arms of all of them, in their order")
        return TypeNetworkPolicy(problem, self.network, self.weights)

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the reason for each action: the order of the network's scores."""
        types = decision.problem.types
        outputs = self._outputs(count_states(decision.problem, decision.states[None]))
        scores = np.where(types.valid, outputs[0].astype(np.float64).reshape(types.valid.shape), -np.inf)
        place = np.argsort(np.argsort(-scores.reshape(-1), kind="stable")).reshape(scores.shape)
        # Once idling is passed, the rest of a state idles.
        above = types.valid & (place < np.take_along_axis(place, types.idle[..., None], axis=2))
        order = np.full(scores.shape, -1, dtype=np.int32)
        order[above] = np.argsort(np.argsort(place[above]))
        never = "the network puts idling first in this condition, with the arms as they are"
        return explain_by_rank(decision, order, never, ", by the network's scores with the arms as they are")
