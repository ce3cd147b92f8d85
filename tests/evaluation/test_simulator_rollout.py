"""Playing on a user's own sampler: against the same arms as matrices, by seed, and what cannot be is refused."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, NotApplicableError, PolicyError, TooLargeError
from evenhand.policies import ExchangeablePriority, PriorityPolicy, RoundRobin, never_act, random_feasible

from ..conftest import mentions

MACHINES = eh.problems.machine_replacement(num_arms=4, budget=2, discount=0.9)


def sampler_of(problem, seen=None):
    """The arms of a symmetric problem as a sampler."""
    tables = problem.types

    def sample(states, actions, rng):
        if seen is not None:
            seen.append((states.copy(), actions.copy()))
        following = (rng.random(len(states))[:, None] >= tables.cumulative[0, states, actions, :-1]).sum(axis=1)
        return following, tables.rewards[0, states, actions]

    def first(number, rng):
        return rng.choice(len(tables.initial[0]), number, p=tables.initial[0])

    shape = (int(tables.num_states[0]), problem.num_arms, problem.budget, problem.discount)
    return eh.Simulator(sample, first, tables.usage[0], *shape)


PUMPS = sampler_of(MACHINES)
BY_STATE = np.zeros((1, 3, 2))
BY_STATE[0, :, 1] = [-1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("make", "criterion", "horizon"),
    [
        (random_feasible, "discounted", 60),
        (never_act, "finite:12", 12),
        (RoundRobin, "average", 80),
        (lambda problem: ExchangeablePriority(problem, BY_STATE), "discounted", 60),
    ],
)
def test_values_are_those_of_the_matrices(make, criterion, horizon):
    asked = {"num_episodes": 300, "horizon": horizon, "criterion": criterion, "method": "monte-carlo"}
    sampled = eh.evaluate(PUMPS, make(PUMPS), rng=1, **asked)
    known = eh.evaluate(MACHINES, make(MACHINES), rng=2, **asked)
    error = np.hypot(sampled.welfare_stderr, known.welfare_stderr)
    assert abs(sampled.welfare - known.welfare) < 4.5 * error and error < 0.05 * abs(known.welfare)
    assert sampled.budget_used == pytest.approx(known.budget_used, abs=0.03)
    assert sampled.served == pytest.approx(known.served, abs=0.03)
    assert sampled.by_type and not sampled.exact and sampled.criterion == criterion
    assert sampled.truncation_bound == (0.0 if criterion == "finite:12" else None)


def test_the_same_seed_plays_the_same_and_another_does_not():
    policy = random_feasible(PUMPS)
    first, again, other = (eh.simulate(PUMPS, policy, 20, 10, rng=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.returns, again.returns) and not np.array_equal(first.returns, other.returns)
    assert np.array_equal(first.returns, eh.simulate(PUMPS, policy, 20, 10, rng=np.random.default_rng(1)).returns)


def test_policies_meet_the_same_numbers():
    """Arms that two policies treat alike move alike: the sampler draws as many numbers for every action."""
    left, right = (
        eh.simulate(PUMPS, PriorityPolicy(PUMPS, BY_STATE * sign), 30, 15, rng=4, keep_paths=True) for sign in (1, -1)
    )
    assert np.array_equal(left.states[:, 0], right.states[:, 0])
    same = np.logical_and.accumulate(left.actions == right.actions, axis=1)[:, :-1]
    assert np.array_equal(left.states[:, 1:][same], right.states[:, 1:][same]) and same.any() and not same.all()


def test_all_arms_of_a_batch_are_sampled_in_one_call():
    seen = []
    simulator = sampler_of(MACHINES, seen)
    eh.simulate(simulator, never_act(simulator), 10, 6, rng=0)
    assert [len(states) for states, _ in seen] == [40] * 6
    seen.clear()
    eh.simulate(simulator, never_act(simulator), 10, 6, rng=0, batch_size=12)  # three episodes per batch
    assert [len(states) for states, _ in seen] == [12] * 18 + [4] * 6


def test_paths_are_the_sampled_ones():
    seen = []
    simulator = sampler_of(MACHINES, seen)
    played = eh.simulate(simulator, random_feasible(simulator), 5, 7, rng=0, keep_paths=True)
    assert played.states.shape == played.actions.shape == played.rewards.shape == (5, 7, 4)
    for step, (states, actions) in enumerate(seen):
        assert np.array_equal(played.states[:, step].reshape(-1), states)
        assert np.array_equal(played.actions[:, step].reshape(-1), actions)
    weights = 0.9 ** np.arange(7)
    np.testing.assert_allclose(np.einsum("ets,t->es", played.rewards, weights), played.returns, rtol=1e-12)


class Wrong:
    def __init__(self, action):
        self.action = action

    def act(self, states, rng):
        return np.full_like(states, self.action)


def test_the_rules_hold_on_a_simulator_too():
    with pytest.raises(PolicyError, check=mentions("step 0", "episode 0", "arm 0", "action 2")):
        eh.simulate(PUMPS, Wrong(2), 3, 3, rng=0)
    with pytest.raises(PolicyError, check=mentions("used 4", "resource 0", 2)):
        eh.simulate(PUMPS, Wrong(1), 3, 3, rng=0)
    with pytest.raises(InvalidInputError, check=mentions("sample", 0, 2)):
        broken = eh.Simulator(lambda s, a, rng: (s + 1, s * 1.0), PUMPS.first, [[0], [1]], 3, 4, [2], 0.9)
        eh.simulate(broken, never_act(broken), 3, 5, rng=0)
    eh.check_policy(PUMPS, random_feasible(PUMPS))
    eh.check_policy(PUMPS, RoundRobin(PUMPS))
    with pytest.raises(PolicyError, check=mentions(4, "resource 0", 2)):
        eh.check_policy(PUMPS, Wrong(1))


def test_a_sampler_cannot_change_the_recorded_states():
    def greedy(states, actions, rng):
        kept = states.copy()
        states[:] = 0
        return kept, kept * 1.0

    cheat = eh.Simulator(greedy, lambda n, rng: np.arange(n) % 3, [[0], [1]], 3, 4, [2], 0.9)
    played = eh.simulate(cheat, never_act(cheat), 3, 3, rng=0, keep_paths=True)
    assert np.array_equal(played.states[:, 0], played.states[:, 2]) and played.states.any()


class TestComparison:
    found = eh.compare(PUMPS, num_episodes=60, horizon=30, rng=0)

    def test_baselines_are_compared_and_the_rest_is_reported(self):
        assert {row.policy for row in self.found.rows} == {"random", "equal-resources", "never-act"}
        assert set(self.found.left_out) >= {"whittle", "fair-index", "oldest-first", "myopic", "cp-drl", "upper bound"}
        assert self.found.upper_bound is None and self.found.problem is PUMPS

    def test_it_is_reported_as_any_comparison(self, tmp_path):
        self.found.report(tmp_path / "pumps.html")
        page = (tmp_path / "pumps.html").read_text(encoding="utf-8")
        assert "equal-resources" in page
        assert "equal-resources" in self.found._repr_html_()
        assert "budget used" in self.found.rows[0].evaluation._repr_html_()

    def test_networks_and_policies_of_a_model_compete(self):
        sizes = [(4, 6)]
        network = eh.policies.Network([np.zeros(s, np.float32) for s in sizes], [np.zeros(6, np.float32)])
        policies = {"network": eh.policies.CountNetworkPolicy(PUMPS, network), "model": eh.policies.whittle(MACHINES)}
        rows = eh.compare(PUMPS, policies, num_episodes=60, horizon=30, rng=0).rows
        assert {row.policy for row in rows} == {"network", "model"}
        assert all(row.evaluation.welfare_stderr > 0 for row in rows)

    def test_a_mixture_is_simulated_part_by_part(self):
        both = eh.MixturePolicy([RoundRobin(PUMPS), never_act(PUMPS)], [0.5, 0.5])
        found = eh.evaluate(PUMPS, both, num_episodes=200, horizon=40, rng=0)
        parts = [eh.evaluate(PUMPS, p, num_episodes=200, horizon=40, rng=1).welfare for p in both.parts]
        assert found.welfare == pytest.approx(np.mean(parts), abs=0.3)


REFUSED = {
    "solve": lambda: eh.solve(PUMPS),
    "exact evaluation": lambda: eh.evaluate(PUMPS, never_act(PUMPS), method="exact"),
    "simulation by counts": lambda: eh.simulate_counts(PUMPS, never_act(PUMPS)),
    "a model file": lambda: eh.save(PUMPS, "pumps.toml"),
    "a saved policy": lambda: eh.save_policy(PUMPS, never_act(PUMPS), "idle.zip"),
    "whittle": lambda: eh.policies.whittle(PUMPS),
    "oldest-first": lambda: eh.policies.worst_first(PUMPS),
    "myopic": lambda: eh.policies.myopic(PUMPS),
}


@pytest.mark.parametrize("what", REFUSED)
def test_methods_that_need_matrices_are_refused(what):
    with pytest.raises(NotApplicableError, check=mentions(what)):
        REFUSED[what]()


def test_what_a_simulator_does_not_have_is_refused():
    policy = never_act(PUMPS)
    with pytest.raises(NotApplicableError, check=mentions("groups")):
        eh.evaluate(PUMPS, policy, over="groups")
    with pytest.raises(InvalidInputError, check=mentions("over", "families")):
        PUMPS.with_criterion(over="families")
    with pytest.raises(NotApplicableError, check=mentions("rewards")):
        eh.simulate(PUMPS, policy, rewards=MACHINES.types.rewards)
    with pytest.raises(PolicyError, check=mentions(5, 4)):
        eh.evaluate(PUMPS, never_act(eh.problems.machine_replacement(num_arms=5)))


def test_a_criterion_may_be_its_own():
    arguments = PUMPS.sample, PUMPS.first, PUMPS.usage, 3, 4, [2]
    lasting = eh.Simulator(*arguments, discount=1.0, criterion="average")
    assert eh.simulate(lasting, never_act(lasting), 2, 20, rng=0).horizon == 20
    assert lasting.with_criterion("finite:3").criterion.name == "finite:3" and lasting.with_criterion() is lasting
    with pytest.raises(eh.errors.ModelError, check=mentions("discount", 1)):
        eh.Simulator(*arguments, discount=1.0)


class TestPaths:
    def test_states_and_actions_of_every_step(self):
        policy, told = random_feasible(MACHINES), {"num_episodes": 6, "horizon": 9, "rng": 3}
        kept, plain = (eh.simulate(MACHINES, policy, **told, keep_paths=keep) for keep in (True, False))
        assert np.array_equal(kept.returns, plain.returns) and plain.states is plain.actions is plain.rewards is None
        assert kept.states.shape == (6, 9, 4) and kept.states.dtype == kept.actions.dtype == np.int32
        assert np.array_equal(kept.rewards, MACHINES.types.rewards[0, kept.states, kept.actions])
        sums = np.einsum("eta,t->ea", kept.rewards, 0.9 ** np.arange(9))
        np.testing.assert_allclose(sums, kept.returns, rtol=1e-12)
        assert (kept.actions.sum(axis=2) <= 2).all() and kept.actions.any()

    def test_batches_record_the_same_paths(self):
        policy = PriorityPolicy(MACHINES, BY_STATE)
        whole = eh.simulate(MACHINES, policy, 7, 5, rng=1, keep_paths=True)
        parts = eh.simulate(MACHINES, policy, 7, 5, rng=1, keep_paths=True, batch_size=8)
        for name in ("states", "actions", "rewards"):
            assert np.array_equal(getattr(whole, name), getattr(parts, name))

    def test_counts_and_allocations_of_every_step(self):
        policy, told = eh.policies.worst_first(MACHINES), {"num_episodes": 6, "horizon": 9, "rng": 3}
        kept, plain = (eh.simulate_counts(MACHINES, policy, **told, keep_paths=keep) for keep in (True, False))
        assert np.array_equal(kept.returns, plain.returns) and plain.counts is plain.allocations is None
        assert kept.counts.shape == (6, 9, 1, 3) and kept.allocations.shape == (6, 9, 1, 3, 2)
        assert np.array_equal(kept.allocations.sum(axis=-1), kept.counts) and (kept.counts.sum(axis=-1) == 4).all()
        sums = np.einsum("etksa,ksa,t->ek", kept.allocations, MACHINES.types.rewards, 0.9 ** np.arange(9)) / 4
        np.testing.assert_allclose(sums, kept.returns, rtol=1e-12)

    @pytest.mark.parametrize("play", [eh.simulate, eh.simulate_counts])
    def test_paths_that_do_not_fit_are_refused_before_simulation(self, play):
        class Unasked:
            def act(self, states, rng):
                raise AssertionError

            allocate = act

        with pytest.raises(TooLargeError, check=mentions(10**7, 10**4)):
            play(MACHINES, Unasked(), 10**7, 10**4, rng=0, keep_paths=True)
