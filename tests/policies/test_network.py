"""Trained networks act: against torch's own layers, the formulas by hand, and evaluations on roads of their own."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError
from evenhand.evaluation import check_policy, evaluate, exact_values, simulate, simulate_counts
from evenhand.model import Arm, CoupledMDP, Simulator
from evenhand.policies import (
    LEAST_PRIORITY,
    CountNetworkPolicy,
    JointNetworkPolicy,
    Network,
    num_draws,
    num_outputs,
    observe,
    read_priorities,
    spend_amounts,
)
from evenhand.problems import machine_replacement

from ..conftest import mentions, random_arm, two_types

BY_STATE = [[[0, 0], [1, 0.5], [0, 2]], [[0, 0], [2, 0], [1, 1]], [[1, 1], [0, 0], [0.5, 2.5]]]


def random_network(seed, sizes, squash=False, scale=1.0):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(0, scale, pair).astype(np.float32) for pair in pairwise(sizes)]
    return Network(weights, [rng.normal(0, scale, size).astype(np.float32) for size in sizes[1:]], squash)


def two_resources(num_arms=4, budget=(3.0, 2.5), discount=0.8):
    return CoupledMDP([random_arm(5, 3, BY_STATE)], budget=list(budget), discount=discount, counts=[num_arms])


PROBLEMS = {
    "machines": lambda: machine_replacement(num_arms=4, budget=2),
    "two resources": two_resources,
    "tenths": lambda: CoupledMDP([random_arm(6, 2, [[0.0], [0.1]])], budget=[0.3], discount=0.6, counts=[4]),
    "no budget": lambda: machine_replacement(num_arms=3, budget=0),
    "two free actions": lambda: CoupledMDP(
        [random_arm(7, 2, [[0.0], [1.0], [0.0]])], budget=[1.0], discount=0.9, counts=[3]
    ),
    "one arm": lambda: CoupledMDP([random_arm(8, 3, [[0], [1]])], budget=[1], discount=0.9),
}


def policy_for(problem, allocation="greedy", seed=0):
    usage = problem.types.usage[0]
    sizes = [len(usage) + usage.shape[2], 8, num_outputs(allocation, usage)]
    return CountNetworkPolicy(problem, random_network(seed, sizes, allocation != "greedy"), allocation)


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]()


@pytest.fixture(params=["greedy", "priority-sampling"])
def allocation(request):
    return request.param


def compositions(total, parts):
    """All ways to put `total` arms into `parts` states."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total + 1) for rest in compositions(total - first, parts - 1)]


class TestForward:
    @pytest.mark.parametrize("squash", [False, True])
    @pytest.mark.parametrize("hidden", [(64, 64), (7,), (), (16, 5, 9)], ids=str)
    def test_it_is_what_torch_computes(self, hidden, squash):
        torch = pytest.importorskip("torch")
        sizes = [5, *hidden, 11]
        network = random_network(3, sizes, squash, scale=0.15)
        layers = []
        for weight, bias in zip(network.weights, network.biases, strict=True):
            layer = torch.nn.Linear(*weight.shape)
            layer.weight.data, layer.bias.data = torch.tensor(weight.T.copy()), torch.tensor(bias)
            layers += [layer, torch.nn.Tanh()]
        model = torch.nn.Sequential(*(layers if squash else layers[:-1]))
        inputs = np.random.default_rng(1).random((200, 5)).astype(np.float32)
        with torch.no_grad():
            expected = model(torch.tensor(inputs)).numpy()
        found = network(inputs)
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() <= 1e-6 * max(1.0, np.abs(expected).max())

    def test_inputs_are_left_alone(self):
        """A network of one squashed layer must not write into what it was given."""
        network = Network([np.eye(3, dtype=np.float32)], [np.zeros(3, np.float32)], squash=True)
        inputs = np.ones((2, 3), np.float32)
        network(inputs)
        assert (inputs == 1).all()

    @pytest.mark.parametrize(
        "shapes",
        [
            ([], []),
            ([(3, 4)], []),
            ([(3, 4), (5, 2)], [(4,), (2,)]),
            ([(3, 4)], [(3,)]),
            ([(3,)], [(3,)]),
            ([(3, 4)], [(4, 1)]),
        ],
        ids=str,
    )
    def test_layers_that_do_not_fit_are_refused(self, shapes):
        weights, biases = ([np.zeros(shape, np.float32) for shape in group] for group in shapes)
        with pytest.raises(InvalidInputError, check=mentions("network", "layers")):
            Network(weights, biases)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    @pytest.mark.parametrize("where", ["weights", "biases"])
    def test_numbers_that_are_not_finite_are_refused(self, value, where):
        network = random_network(0, [2, 3, 2])
        getattr(network, where)[1][..., 1] = value
        with pytest.raises(InvalidInputError, check=mentions("layer 1")):
            Network(network.weights, network.biases)


class TestObservation:
    def test_by_hand(self):
        """b / (N max d): 3 / (4 * 2) and, where it is ample, 1; a resource nobody uses is not scarce."""
        usage = np.zeros((2, 3, 3))
        usage[0, 1], usage[1, 2] = [2, 0.5, 0], [1, 0.25, 0]
        seen = observe(np.array([[3, 1], [2, 2]]), np.array([4, 4]), np.array([[3, 8, 0], [0, 1.0, 7]]), usage)
        assert seen.dtype == np.float32
        assert seen.tolist() == [[0.75, 0.25, 0.375, 1.0, 1.0], [0.5, 0.5, 0.0, 0.5, 1.0]]

    @given(seed=st.integers(0, 2**32))
    def test_it_is_in_the_box_and_the_same_for_a_larger_crowd(self, seed):
        rng = np.random.default_rng(seed)
        usage = rng.integers(0, 3, (3, 2, 2)) / 2
        counts = rng.integers(0, 9, (5, 3)) + np.array([1, 0, 0])
        budget, factor = rng.random((5, 2)) * 20, int(rng.integers(2, 1000))
        seen = observe(counts, counts.sum(axis=1), budget, usage)
        again = observe(counts * factor, counts.sum(axis=1) * factor, budget * factor, usage)
        assert (seen >= 0).all() and (seen <= 1).all() and np.allclose(seen[:, :3].sum(axis=1), 1)
        assert np.allclose(seen, again, atol=1e-6)


class TestSpending:
    ONE = np.array([[[0.0], [1.0]]])

    def amounts(self, shares, budget, usage=ONE):
        shares = np.array(shares, dtype=float).reshape(-1, 1)
        return spend_amounts(shares, np.full((len(shares), 1), float(budget)), usage)[:, 0]

    def test_the_only_unit_needs_half_the_share(self):
        assert self.amounts([0, 0.3, 0.499, 0.5, 0.8, 1], 1).tolist() == [0, 0, 0, 1, 1, 1]

    @pytest.mark.parametrize("budget", [1, 2, 3, 7, 20])
    def test_every_amount_has_an_equal_interval(self, budget):
        middles = (np.arange(1000 * (budget + 1)) + 0.5) / (1000 * (budget + 1))
        amounts, sizes = np.unique(self.amounts(middles, budget).round(6), return_counts=True)
        assert amounts.tolist() == list(range(budget + 1))
        assert (sizes == 1000).all()

    def test_a_fraction_of_a_unit_comes_with_the_last(self):
        assert self.amounts([0, 0.34, 0.67, 1], 2.5).round(6).tolist() == [0, 1, 2.5, 2.5]
        assert self.amounts([0, 1], 0.5).tolist() == [0.5, 0.5]

    def test_the_unit_is_the_smallest_usage(self):
        usage = np.array([[[0.0], [0.5]], [[2.0], [0.0]]])
        assert self.amounts([0, 0.25, 0.5, 0.75, 1], 1.5, usage).round(6).tolist() == [0, 0.5, 1, 1.5, 1.5]

    def test_a_unit_fits_what_is_spent_in_spite_of_rounding(self):
        """Three tenths, in doubles more than 0.3, can be spent of a budget of 1 with the share 0.3."""
        assert self.amounts([0.3], 1.0000000001, np.array([[[0.0], [0.1]]]))[0] >= 0.1 + 0.1 + 0.1

    def test_nothing_is_spent_of_nothing(self):
        assert self.amounts([0, 0.5, 1], 0).tolist() == [0, 0, 0]

    @given(seed=st.integers(0, 2**32))
    def test_it_never_exceeds_the_budget_and_rises_with_the_share(self, seed):
        rng = np.random.default_rng(seed)
        usage = rng.random((3, 2, 2)) * (rng.random((3, 2, 2)) < 0.6)
        shares, budget = np.sort(rng.random((50, 2)), axis=0), np.repeat(rng.random((1, 2)) * 9, 50, axis=0)
        spent = spend_amounts(shares, budget, usage)
        assert (spent <= budget).all() and (spent >= 0).all() and (np.diff(spent, axis=0) >= 0).all()

    def test_outputs_become_priorities(self):
        outputs = np.array([[-1, 1, 0, -0.5, 1]], dtype=np.float32)
        usage = np.array([[[0.0], [1.0]], [[0.0], [1.0]]])
        priorities, spend = read_priorities(outputs, np.array([[2.0]]), usage)
        assert np.allclose(priorities, [[[LEAST_PRIORITY, 1.0], [0.5, 0.25]]]) and spend.tolist() == [[2.0]]
        priorities, spend = read_priorities(3 * outputs, np.array([[2.0]]), usage)
        assert (priorities <= 1).all() and (priorities >= LEAST_PRIORITY).all()


class TestCountPolicy:
    def test_the_rules_hold(self, problem, allocation):
        policy = policy_for(problem, allocation)
        check_policy(problem, policy)
        states = len(problem.types.usage[0])
        counts = np.array(compositions(problem.num_arms, states))[:, None]
        many = np.repeat(counts, 20, axis=0)
        found = policy.allocate(many, np.random.default_rng(0))
        assert found.dtype == np.int64 and (found >= 0).all()
        assert np.array_equal(found.sum(axis=3), many)
        used = np.einsum("etsa,sak->ek", found, problem.types.usage[0])
        assert (used <= problem.budget * (1 + 1e-8)).all()

    def test_few_and_many_are_served_alike(self, problem):
        policy = policy_for(problem)
        counts = np.array(compositions(problem.num_arms, len(problem.types.usage[0])))[:, None]
        whole = policy.allocate(counts, np.random.default_rng(0))
        parts = [policy.allocate(counts[i : i + 1], np.random.default_rng(0)) for i in range(len(counts))]
        assert np.array_equal(whole, np.concatenate(parts))

    def test_the_law_is_that_of_the_allocations(self, problem, allocation, chi_square):
        policy = policy_for(problem, allocation, seed=2)
        for counts in compositions(problem.num_arms, len(problem.types.usage[0]))[:6]:
            allocations, chances = policy.allocation_distribution(np.array([counts]))
            assert np.isclose(chances.sum(), 1)
            many = np.repeat(np.array(counts)[None, None], 4000, axis=0)
            place = {each.tobytes(): i for i, each in enumerate(np.asarray(allocations, dtype=np.int64))}
            seen = policy.allocate(many, np.random.default_rng(3))
            numbers = np.bincount([place[each.tobytes()] for each in seen], minlength=len(chances))
            assert chi_square(numbers, chances) > 1e-5

    def test_act_gives_as_many_of_each_action_as_allocate(self, problem):
        policy = policy_for(problem)
        rng = np.random.default_rng(1)
        usage = problem.types.usage[0]
        states = rng.integers(0, len(usage), (100, problem.num_arms)).astype(np.int32)
        actions = policy.act(states, rng)
        cells = np.zeros((100, *usage.shape[:2]), dtype=int)
        np.add.at(cells, (np.arange(100)[:, None], states, actions), 1)
        assert np.array_equal(cells[:, None], policy.allocate(cells.sum(axis=2)[:, None], rng))

    def test_who_is_served_is_drawn_uniformly(self, chi_square):
        policy = policy_for(machine_replacement(num_arms=4, budget=2), seed=1)
        policy.network.biases[-1][:] = np.where(np.arange(6) % 2, 50, -50)  # replace as many as fit
        actions = policy.act(np.full((6000, 4), 1, dtype=np.int32), np.random.default_rng(5))
        assert (actions.sum(axis=1) == 2).all()
        assert chi_square(np.unique(actions, axis=0, return_counts=True)[1], np.full(6, 1 / 6)) > 1e-5

    def test_exact_values_are_those_of_the_product_of_all_arms(self, problem, allocation, brute_force):
        """By plain enumeration of joint states: who is served within a state is drawn uniformly."""
        policy = policy_for(problem, allocation, seed=4)
        product = brute_force(problem)

        def law(state):
            counts = np.bincount(state, minlength=len(problem.types.usage[0]))
            allocations, chances = policy.allocation_distribution(counts[None])
            found = {}
            feasible = product.feasible(state)
            for each, chance in zip(allocations[:, 0], chances, strict=True):
                fitting = [actions for actions in feasible if self.matches(state, actions, each)]
                for actions in fitting:
                    found[actions] = found.get(actions, 0.0) + chance / len(fitting)
            return found

        values, used = product.evaluate(law)
        exact = exact_values(problem, policy)
        assert exact.by_type
        assert np.allclose(values, exact.values[0], rtol=1e-8)
        assert np.allclose(exact.used, used, rtol=1e-8, atol=1e-12)

    @staticmethod
    def matches(state, actions, allocation):
        cells = np.zeros_like(allocation)
        np.add.at(cells, (list(state), list(actions)), 1)
        return np.array_equal(cells, allocation)

    @pytest.mark.slow
    def test_exact_values_are_met_by_simulation(self, allocation):
        problem = machine_replacement(num_arms=12, budget=2, discount=0.8)
        policy = policy_for(problem, allocation, seed=8)
        exact = evaluate(problem, policy, "gini:2", method="exact") if allocation == "greedy" else None
        by_counts, by_arms = (
            play(problem, policy, 4000, 60, 1).returns.mean(axis=1) for play in (simulate_counts, simulate)
        )
        tail = 0.8**60 / 0.2
        error = np.hypot(by_counts.std(), by_arms.std()) / np.sqrt(4000)
        assert abs(by_counts.mean() - by_arms.mean()) < 4.5 * error
        if exact is not None:
            assert abs(by_counts.mean() - exact.mean) < 4.5 * error + tail

    def test_one_network_plays_any_number_of_arms(self):
        policy = policy_for(machine_replacement(num_arms=4, budget=2))
        large = CountNetworkPolicy(machine_replacement(num_arms=4 * 10**6, budget=2 * 10**6), policy.network)
        counts = np.array([[[1, 1, 2]]])
        for factor in (1, 10**6):
            found = (policy if factor == 1 else large).allocate(counts * factor, np.random.default_rng(0))
            assert np.array_equal(found, policy.allocate(counts, np.random.default_rng(0)) * factor)

    def test_a_simulator_is_played_too(self):
        problem = two_resources()
        policy = policy_for(problem)
        simulator = Simulator(
            lambda states, actions, rng: (states, states * 1.0),
            lambda number, rng: np.zeros(number, int),
            BY_STATE,
            3,
            4,
            [3.0, 2.5],
            0.8,
        )
        counts = np.array([[[2, 1, 1]]])
        same = CountNetworkPolicy(simulator, policy.network)
        assert np.array_equal(same.allocate(counts, None), policy.allocate(counts, None))

    def test_networks_and_problems_that_do_not_fit_are_refused(self):
        machines = machine_replacement(num_arms=3)
        with pytest.raises(PolicyError, check=mentions("5 inputs", "6 outputs", "needs 4", 6)):
            CountNetworkPolicy(machines, random_network(0, [5, 6]))
        with pytest.raises(PolicyError, check=mentions("needs 4", 7)):
            CountNetworkPolicy(machines, random_network(0, [4, 6]), "priority-sampling")
        with pytest.raises(InvalidInputError, check=mentions("rule")):
            CountNetworkPolicy(machines, random_network(0, [4, 6]), "greddy")
        with pytest.raises(NotApplicableError, check=mentions("2 types")):
            CountNetworkPolicy(two_types(), random_network(0, [4, 6]))


class TestJointPolicy:
    @pytest.mark.parametrize("budget", [1, 2])
    def test_exact_values_are_those_of_plain_enumeration(self, budget, brute_force):
        problem = machine_replacement(num_arms=3, budget=budget)
        policy = JointNetworkPolicy(problem, random_network(2, [3, 8, 3 * budget]))

        def law(state):
            (actions,) = policy.act(np.array([state], dtype=np.int32), np.random.default_rng(0))
            return {tuple(actions.tolist()): 1.0}

        values, used = brute_force(problem).evaluate(law)
        exact = exact_values(problem, policy)
        assert not exact.by_type
        assert np.allclose(exact.values, values, rtol=1e-9) and np.allclose(exact.used, used, rtol=1e-9)
        assert len(set(values.round(6).tolist())) > 1  # it does not treat arms alike

    def test_exact_values_are_met_by_simulation(self):
        problem = machine_replacement(num_arms=4, budget=2, discount=0.8)
        policy = JointNetworkPolicy(problem, random_network(2, [4, 8, 8]))
        returns = simulate(problem, policy, 1000, 60, 3).returns
        error = 4.5 * returns.std(axis=0) / np.sqrt(1000) + 0.8**60 / 0.2
        assert (np.abs(returns.mean(axis=0) - exact_values(problem, policy).values) < error).all()

    def test_who_has_the_largest_logit_is_served_whatever_idling_is_called(self):
        usage = [[[0.0], [1.0]], [[1.0], [0.0]]]
        problem = CoupledMDP([random_arm(0, 2, usage)], budget=[2], discount=0.9, counts=[3])
        weights = np.hstack([np.eye(3), np.roll(np.eye(3), 1, axis=1)]).astype(np.float32)
        policy = JointNetworkPolicy(problem, Network([weights], [np.zeros(6, np.float32)]))
        states = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=np.int32)
        # draw 1 wants the first arm in state 1, draw 2 the arm after it; idling is action 0 in state 0, 1 in state 1
        assert policy.act(states, None).tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]

    def test_the_last_of_more_logits_than_arms_serves_no_arm(self, brute_force):
        problem = machine_replacement(num_arms=3, budget=2)
        policy = JointNetworkPolicy(problem, random_network(2, [3, 8, 2 * 4]))
        states = np.array(list(np.ndindex(3, 3, 3)), dtype=np.int32)
        logits = policy.network((states / 2).astype(np.float32)).reshape(27, 2, 4)
        wanted = [{int(row.argmax()) for row in pair} - {3} for pair in logits]
        actions = policy.act(states, None)
        assert [set(np.flatnonzero(row).tolist()) for row in actions] == wanted
        assert any((row.argmax(axis=1) == 3).any() for row in logits)
        table = {tuple(x): tuple(a) for x, a in zip(states.tolist(), actions.tolist(), strict=True)}
        values, _ = brute_force(problem).evaluate(lambda state: {table[state]: 1.0})
        assert np.allclose(exact_values(problem, policy).values, values, rtol=1e-9)

    def test_what_it_is_not_for_is_refused(self):
        with pytest.raises(PolicyError, check=mentions("3 arms")):
            JointNetworkPolicy(machine_replacement(num_arms=3), random_network(0, [3, 6]))
        assert JointNetworkPolicy(machine_replacement(num_arms=3), random_network(0, [3, 4]))
        with pytest.raises(NotApplicableError):
            num_draws(two_resources())
        with pytest.raises(NotApplicableError, check=mentions(0)):
            num_draws(machine_replacement(num_arms=3, budget=0))
        with pytest.raises(NotApplicableError, check=mentions(4)):
            num_draws(machine_replacement(num_arms=3, budget=4))
        double = Arm(np.ones((1, 2, 1)), np.ones((1, 2)), [[0], [2]])
        with pytest.raises(NotApplicableError):
            num_draws(CoupledMDP([double], budget=[2], discount=0.5, counts=[2]))
