"""Trained networks that act, in NumPy: neither torch nor Numba is needed, though Numba makes it faster.

Count-proportion policy (the paper's Section 4, for identical arms). The input is the same for any number of arms:

    (x / N,  min(1, b_k / (N max d_k)))        proportions of arms in each state, and budget shares: S + K numbers

two or more tanh layers follow, and the output is one of

    greedy              S A scores; cells are served by falling score, as many arms as fit, idling competing (`copies`)
    priority-sampling   S A priorities U and K shares p, for the paper's Algorithm 1 (`priorities`)

For the latter an output y in [-1, 1] stands for U = max((y + 1) / 2, 1e-3) and p = (y + 1) / 2. A share becomes an
amount by equal intervals: with m = floor(b / unit) units, the unit being the smallest usage of that resource,

    b~ = b if p (m + 1) >= m,  else unit floor(p (m + 1)),

so that spending nothing, one unit, ..., everything are equally wide, and the only unit of b = 1 can be spent.

Joint policy (the paper's Vanilla-DRL). The input is the raw state of every arm, s / (S - 1); the output has one logit
per arm for each of the b draws, and the arm with the largest logit of a draw is served. With N logits per draw, as the
paper has it, the budget is always spent; with N + 1 the last one stands for no arm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from evenhand import kernels
from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError
from evenhand.kernels.priorities import priority_distribution
from evenhand.kernels.randomness import draw_keys
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep, explain_by_rank
from evenhand.model.policy import BasePolicy, check_arrays
from evenhand.model.rules import ALLOCATION_RULES, AllocationRule
from evenhand.model.simulator import Simulator, needs_tables
from evenhand.model.stateful_policy import on_batches
from evenhand.solvers.counts.reduction import assign, count_states
from evenhand.solvers.joint import Joint, JointTable
from evenhand.typing import Array, Floats, Indices, Ints, Singles

LEAST_PRIORITY = 1e-3
"""Priorities are in [LEAST_PRIORITY, 1]: never 0, so that every cell can be drawn."""

LARGEST_SUM = 1e38
"""Sums beyond it do not fit single precision, in which networks are played."""


# -- the network -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Network:
    """Fully connected layers with tanh between them."""

    weights: Sequence[Singles]
    """One (input, output) matrix per layer."""

    biases: Sequence[Singles]
    """One (output,) vector per layer."""

    squash: bool = False
    """True if the output goes through tanh too."""

    def __post_init__(self) -> None:
        # Shapes before numbers: sums of what does not fit would not say why.
        sizes = [weight.shape for weight in self.weights if weight.ndim == 2]
        fits = (
            len(sizes) == len(self.weights) == len(self.biases) > 0
            and all(bias.shape == (size[1],) for size, bias in zip(sizes, self.biases, strict=True))
            and all(left[1] == right[0] for left, right in pairwise(sizes))
        )
        if not fits:
            raise InvalidInputError(
                f"network: layers of shapes {[np.shape(w) for w in self.weights]} do not fit together"
            )
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                raise InvalidInputError(f"network: layer {layer} holds numbers that are not finite")
            # What goes in is at most 1 in size: observations are shares, and layers are joined by tanh.
            if np.abs(weight, dtype=np.float64).sum(axis=0).max(initial=0) + np.abs(bias).max(initial=0) > LARGEST_SUM:
                raise InvalidInputError(
                    f"network: the numbers of layer {layer} are so large that sums of them overflow"
                )

    def __repr__(self) -> str:
        sizes = [self.num_inputs, *(weight.shape[1] for weight in self.weights)]
        return f"Network({' → '.join(map(str, sizes))})"

    @property
    def num_inputs(self) -> int:
        """Numbers that go in."""
        return int(self.weights[0].shape[0])

    @property
    def num_outputs(self) -> int:
        """Numbers that come out."""
        return int(self.weights[-1].shape[1])

    def __call__(self, inputs: Singles) -> Singles:
        """(batch, output) from (batch, input)."""
        values = inputs
        # In place, layer by layer: batches are large, and each array is used once.
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            values = values @ weight
            values += bias
            np.tanh(values, out=values)
        outputs = values @ self.weights[-1]
        outputs += self.biases[-1]
        return np.tanh(outputs, out=outputs) if self.squash else outputs

    def to_arrays(self) -> dict[str, Array]:
        """Return weights and biases by layer, and whether the output is squashed."""
        arrays: dict[str, Array] = {"squash": np.array(self.squash)}
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays |= {f"weight_{layer}": weight, f"bias_{layer}": bias}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> "Network":
        """Return the network of these layers."""
        layers = range((len(arrays) - 1) // 2)
        weights, biases = ([f"{part}_{layer}" for layer in layers] for part in ("weight", "bias"))
        check_arrays(arrays, squash="b0", **dict.fromkeys(weights, "f2"), **dict.fromkeys(biases, "f1"))
        if any(arrays[name].dtype != np.float32 for name in (*weights, *biases)):
            raise PolicyError("its weights and biases must be numbers of single precision")
        return cls([arrays[name] for name in weights], [arrays[name] for name in biases], bool(arrays["squash"]))


class Answering(Protocol):
    """A function from observations to outputs: a network, or another model."""

    @property
    def num_inputs(self) -> int:
        """Numbers that go in."""
        ...

    @property
    def num_outputs(self) -> int:
        """Numbers that come out."""
        ...

    def __call__(self, inputs: Singles) -> Singles:
        """(batch, output) from (batch, input)."""
        ...


def _network_arrays(network: Answering) -> dict[str, Array]:
    if not isinstance(network, Network):
        raise NotApplicableError(f"a policy that calls {network!r} cannot be saved: save that model itself")
    return network.to_arrays()


def usage_of(problem: CoupledMDP | Simulator) -> Floats:
    """(state, action, resource) what an arm uses; arms must be identical."""
    if isinstance(problem, Simulator):
        return problem.usage
    if not problem.is_symmetric:
        raise NotApplicableError(
            f"count proportions are for identical arms; this problem has {problem.num_types} types. "
            "Use solve, whose fluid policies treat any number of types."
        )
    return np.asarray(problem.types.usage[0])


# -- what goes in, and what the outputs mean -------------------------------------------------------------------------


def observe(counts: Ints, num_arms: Ints, budget: Floats, usage: Floats) -> Singles:
    """(copy, state + resource) count proportions and budget shares.

    Args:
        counts: (copy, state) arms in each state.
        num_arms: (copy,) arms in all.
        budget: (copy, resource) what is available.
        usage: (state, action, resource) what an arm uses.
    """
    shares = budget_shares(num_arms, budget, usage)
    return np.concatenate([counts / num_arms[:, None], shares], axis=1).astype(np.float32)


def budget_shares(num_arms: Ints, budget: Floats, usage: Floats) -> Floats:
    """(copy, resource) min(1, b / (N max d)), and 1 for a resource that no action uses: it is not scarce."""
    # The most that any action uses of a resource: the head's max d_k.
    most = usage.max(axis=(0, 1))
    shares = np.minimum(1.0, budget / (num_arms[:, None] * np.where(most > 0, most, 1.0)))
    return np.where(most > 0, shares, 1.0)


def num_outputs(rule: AllocationRule, usage: Floats) -> int:
    """Return the number of outputs that a network needs."""
    num_states, num_actions, num_resources = usage.shape
    return int(num_states * num_actions + (num_resources if rule == "priority-sampling" else 0))


def read_scores(outputs: Singles, usage: Floats) -> Floats:
    """(copy, state, action) scores of the greedy allocation."""
    return outputs.astype(np.float64).reshape(len(outputs), *usage.shape[:2])


def read_priorities(outputs: Singles, budget: Floats, usage: Floats) -> tuple[Floats, Floats]:
    """The (copy, state, action) priorities and the (copy, resource) amounts that may be spent."""
    num_states, num_actions, _ = usage.shape
    if not np.isfinite(outputs).all():
        raise PolicyError("the network's outputs are not finite numbers")
    # From [-1, 1] to [0, 1]; a network without tanh at its end may lie beyond.
    unit = np.clip((outputs.astype(np.float64) + 1) / 2, 0.0, 1.0)
    cells = num_states * num_actions
    # Priorities first, then one share per resource.
    priorities = np.maximum(unit[:, :cells], LEAST_PRIORITY).reshape(-1, num_states, num_actions)
    return np.ascontiguousarray(priorities), spend_amounts(unit[:, cells:], budget, usage)


def allocated(
    rule: AllocationRule, outputs: Singles, counts: Ints, limit: Floats, usage: Floats, key: np.uint64
) -> Ints:
    """(copy, state, action) numbers of arms that get each action.

    Args:
        rule: how outputs become an allocation.
        outputs: (copy, output) outputs of the network.
        counts: (copy, state) arms in each state.
        limit: (copy, resource) what is available.
        usage: (state, action, resource) what an arm uses.
        key: of the draws of priority-sampling.
    """
    if rule == "greedy":
        return np.asarray(kernels.serve_greedily(read_scores(outputs, usage), counts, limit, usage))
    priorities, spend = read_priorities(outputs, limit, usage)
    return kernels.sample_by_priority(priorities, counts, spend, usage, key)


def spend_amounts(shares: Floats, budget: Floats, usage: Floats) -> Floats:
    """(copy, resource) amounts, by equal intervals of the (copy, resource) shares."""
    # The unit: the smallest amount that any action uses.
    smallest = np.where(usage > 0, usage, np.inf).min(axis=(0, 1))
    smallest = np.where(np.isfinite(smallest), smallest, 1.0)
    units = np.floor(budget / smallest)
    # Equal intervals of the share, one for each number of units that can be spent.
    steps = np.floor(shares * (units + 1))
    # A little above the units, so that rounding does not lose one.
    return np.where(steps >= units, budget, np.minimum(smallest * steps * (1 + 1e-9), budget))


# -- acting by counts ------------------------------------------------------------------------------------------------


class CountNetworkPolicy(BasePolicy):
    """A network on count proportions, for identical arms; one network serves any number of arms and any budget."""

    kind = "count-network"
    decides = "by a trained network"
    any_number = True
    transfers = True

    def __init__(self, problem: CoupledMDP | Simulator, network: Answering, rule: AllocationRule = "greedy") -> None:
        """Fit the network to a problem.

        Args:
            problem: identical arms.
            network: from S + K numbers to S A scores (and K shares for priority-sampling); or what answers like one.
            rule: how outputs become an allocation.
        """
        if rule not in ALLOCATION_RULES:
            raise InvalidInputError(f"rule: expected one of {', '.join(ALLOCATION_RULES)}, got {rule!r}")
        if problem.spends_all.any():
            raise NotApplicableError("networks decide how much to spend; they are for budgets that need not be spent")
        self.usage = np.ascontiguousarray(usage_of(problem))
        num_states, num_actions, num_resources = self.usage.shape
        expected = num_states + num_resources, num_outputs(rule, self.usage)
        if (network.num_inputs, network.num_outputs) != expected:
            raise PolicyError(
                f"the network has {network.num_inputs} inputs and {network.num_outputs} outputs; a problem with "
                f"{num_states} states, {num_actions} actions and {num_resources} resources needs {expected[0]} and "
                f"{expected[1]}"
            )
        self.problem, self.network, self.rule = problem, network, rule
        self.deterministic = rule == "greedy"
        # The problem's own shares do not change from step to step.
        self._shares = budget_shares(np.array([problem.num_arms]), problem.budget[None], self.usage)[0]

    def _in_short(self) -> str:
        return f"{super()._in_short()}, {self.rule}, {self.network!r}"

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Allocate by counts, and draw who within a state gets an action."""
        counts = count_states(self.problem, states)
        return assign(self.problem.type_of_arm, states, self.allocate(counts, rng), rng)

    def allocate(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """(episode, 1, state, action) numbers of arms."""
        crowd = np.ascontiguousarray(counts[:, 0])
        limit = np.repeat(self.problem.budget_limit[None], len(crowd), axis=0)
        key = np.uint64(0) if self.rule == "greedy" else draw_keys(rng, 1)[0]
        return allocated(self.rule, self.outputs(crowd), crowd, limit, self.usage, key)[:, None]

    def allocation_distribution(self, counts: Ints) -> tuple[Ints, Floats]:
        """The law of the allocation at (1, state) counts."""
        outputs, limit = self.outputs(counts), self.problem.budget_limit[None]
        if self.rule == "greedy":
            return allocated(self.rule, outputs, counts, limit, self.usage, np.uint64(0))[:, None], np.ones(1)
        priorities, spend = read_priorities(outputs, limit, self.usage)
        allocations, chances = priority_distribution(priorities[0], counts[0], spend[0], self.usage)
        return allocations[:, None], chances

    def outputs(self, counts: Ints) -> Singles:
        """(episode, output) outputs of the network for (episode, state) counts."""
        inputs = np.empty((len(counts), self.network.num_inputs), dtype=np.float32)
        num_states = counts.shape[1]
        # Straight into single precision, which the network is played in.
        np.divide(counts, self.problem.num_arms, out=inputs[:, :num_states], casting="unsafe")
        inputs[:, num_states:] = self._shares
        return self.network(inputs)

    def to_arrays(self) -> dict[str, Array]:
        """Return the network, and the number of the allocation rule."""
        return _network_arrays(self.network) | {"allocation": np.array(ALLOCATION_RULES.index(self.rule))}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP | Simulator, arrays: dict[str, Array]) -> "CountNetworkPolicy":
        """Return the policy of this network."""
        layers = {name: array for name, array in arrays.items() if name != "allocation"}
        check_arrays({name: arrays[name] for name in arrays.keys() - layers.keys()}, allocation="iu0")
        network, rule = Network.from_arrays(layers), int(arrays["allocation"])
        if not 0 <= rule < len(ALLOCATION_RULES):
            raise PolicyError(f"its allocation rule {rule} is not known to this version")
        return cls(problem, network, ALLOCATION_RULES[rule])

    def resized(self, problem: CoupledMDP | Simulator, types: Sequence[int] | None = None) -> "CountNetworkPolicy":
        """Return the same network for other numbers of arms; see `BasePolicy.resized`."""
        return CountNetworkPolicy(problem, self.network, self.rule)

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the reason for each action: the network's priorities, or the order of its scores."""
        outputs = self.outputs(count_states(decision.problem, decision.states[None])[:, 0])
        if self.rule != "greedy":
            priorities, _ = read_priorities(outputs, decision.problem.budget_limit[None], self.usage)
            own = priorities[0][decision.states, decision.actions]
            return [f"chosen by the network's priorities ({value:.2f} for this)" for value in own.tolist()]
        scores = read_scores(outputs, self.usage)[0]
        # The place of every (state, action) in the order of falling scores; of equals the first.
        place = np.empty(scores.size, dtype=np.int64)
        place[np.argsort(-scores.reshape(-1), kind="stable")] = np.arange(scores.size)
        place = place.reshape(scores.shape)
        idle = decision.problem.types.idle[0]
        above = place < place[np.arange(len(idle)), idle][:, None]  # once idling is passed, the rest of a state idles
        order = np.full(scores.shape, -1, dtype=np.int32)
        order[above] = np.argsort(np.argsort(place[above]))
        never = "the network puts idling first in this condition, with the arms as they are"
        return explain_by_rank(decision, order[None], never, ", by the network's scores with the arms as they are")


# -- acting on joint states ------------------------------------------------------------------------------------------


def num_draws(problem: CoupledMDP) -> int:
    """Return the number of arms that the joint policy serves per step, by one active action that uses one unit."""
    usage = usage_of(problem)
    if usage.shape[1:] != (2, 1) or not (np.sort(usage[:, :, 0], axis=1) == (0, 1)).all():
        raise NotApplicableError(
            "the joint network is for two actions, one idle and one that uses one unit of one resource"
        )
    draws = int(np.floor(problem.budget_limit[0]))
    if not 1 <= draws <= problem.num_arms:
        raise NotApplicableError(f"the joint network serves 1 to {problem.num_arms} arms in a step, not {draws}")
    return draws


class JointNetworkPolicy(BasePolicy):
    """The paper's Vanilla-DRL: a network on the raw joint state, with a score per arm."""

    kind = "joint-network"
    decides = "by a trained network"
    transfers = True

    def __init__(self, problem: CoupledMDP, network: Network) -> None:
        if problem.spends_all.any():
            raise NotApplicableError("networks decide how much to spend; they are for budgets that need not be spent")
        self.draws = num_draws(problem)
        arms = problem.num_arms
        # As the paper has it, or with one more logit for no arm.
        outputs = arms * self.draws, (arms + 1) * self.draws
        if network.num_inputs != arms or network.num_outputs not in outputs:
            raise PolicyError(
                f"the network has {network.num_inputs} inputs and {network.num_outputs} outputs; {arms} arms served "
                f"{self.draws} at a time need {arms} and {outputs[0]} (or {outputs[1]}, if no arm may be served)"
            )
        self.problem, self.network = problem, network
        self.idle = problem.types.idle[0]

    @on_batches
    def act(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Serve the arms whose logits are largest."""
        logits = self.network(observe_arms(states, len(self.idle)))
        chosen = logits.reshape(len(states), self.draws, -1).argmax(axis=2)
        return serve_chosen(states, chosen, self.idle)

    def to_arrays(self) -> dict[str, Array]:
        """Return the network."""
        return _network_arrays(self.network)

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "JointNetworkPolicy":
        """Return the policy of this network."""
        return cls(needs_tables(problem, "a joint network"), Network.from_arrays(arrays))

    def on(self, space: Joint) -> JointTable:
        """Return the policy as a table over the product space, for exact evaluation."""
        # (pair,) the state of each pair; the table puts all probability on the pair that is wanted.
        state = np.repeat(np.arange(space.num_states), np.diff(space.mdp.offsets))
        wanted = self.act(space.states.astype(np.int32), np.random.default_rng(0))
        return JointTable(space, (space.actions == wanted[state]).all(axis=1).astype(np.float64))


def observe_arms(states: Indices, num_states: int) -> Singles:
    """(episode, arm) raw states, from 0 to 1."""
    return (states / max(num_states - 1, 1)).astype(np.float32)


def serve_chosen(states: Indices, chosen: Ints, idle: Indices) -> Indices:
    """(episode, arm) actions: the (episode, draw) chosen arms are served, the others idle; N stands for no arm."""
    actions = idle[states]
    # A draw of N serves no arm.
    rows, draws = np.nonzero(chosen < states.shape[1])
    arms = chosen[rows, draws]
    # With two actions, the one that is not idle.
    actions[rows, arms] = 1 - idle[states[rows, arms]]
    return actions.astype(np.int32)
