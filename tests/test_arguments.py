"""What comes in the wrong place, or is of the wrong kind, is told in the words of the call."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, PolicyError, UnknownNameError
from evenhand.evaluation import Rollout
from evenhand.policies import worst_first

from .conftest import mentions

MACHINES = eh.problems.machine_replacement(num_arms=2)
OLDEST = worst_first(MACHINES)

TAKES_A_PROBLEM = {
    "solve": eh.solve,
    "fairness": eh.price_of_fairness,
    "solve with budgets": lambda problem: eh.solve(problem, budgets=[[1]]),
    "compare with budgets": lambda problem: eh.compare(problem, budgets=[[1]]),
    "compare": eh.compare,
    "evaluate": lambda problem: eh.evaluate(problem, "random"),
    "simulate": lambda problem: eh.simulate(problem, OLDEST),
    "simulate_counts": lambda problem: eh.simulate_counts(problem, OLDEST),
    "check_policy": lambda problem: eh.check_policy(problem, OLDEST),
    "make_policy": lambda problem: eh.make_policy(problem, "random"),
    "train": lambda problem: eh.train(problem, 1),
    "indices": eh.indices,
    "save_policy": lambda problem: eh.save_policy(problem, OLDEST, "never.zip"),
}


@pytest.mark.parametrize("call", TAKES_A_PROBLEM.values(), ids=TAKES_A_PROBLEM)
def test_a_file_name_is_refused_with_a_hint_at_load(call):
    with pytest.raises(InvalidInputError, check=mentions("problem", "model.toml")):
        call("model.toml")


@pytest.mark.parametrize("call", TAKES_A_PROBLEM.values(), ids=TAKES_A_PROBLEM)
def test_none_is_refused_as_a_problem(call):
    with pytest.raises(InvalidInputError, check=mentions("problem")):
        call(None)


@pytest.mark.parametrize(
    ("call", "order"),
    [
        (lambda: eh.simulate(OLDEST, MACHINES), "simulate(problem, policy)"),
        (lambda: eh.simulate_counts(OLDEST, MACHINES), "simulate_counts(problem, policy)"),
        (lambda: eh.evaluate(OLDEST, MACHINES), "evaluate(problem, policy)"),
        (lambda: eh.check_policy(OLDEST, MACHINES), "check_policy(problem, policy)"),
        (lambda: eh.compare([OLDEST], MACHINES), "list"),
        (lambda: eh.compare(OLDEST, MACHINES), "compare(problem, policies)"),
    ],
)
def test_swapped_arguments_are_reported_with_the_order(call, order):
    with pytest.raises(InvalidInputError, check=mentions(order)):
        call()


@pytest.mark.parametrize("play", [eh.simulate, eh.simulate_counts])
def test_a_policy_name_is_refused_with_a_hint_at_make_policy(play):
    with pytest.raises(PolicyError, check=mentions("make_policy(problem, 'random')")):
        play(MACHINES, "random")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (type(OLDEST), "class"),
        (lambda states, rng: states, "from_function"),
        (3, "check_policy"),
        (eh.solve(MACHINES), "`policy`"),
    ],
)
def test_other_objects_are_refused_as_policies(given, words):
    with pytest.raises(PolicyError, check=mentions(words)):
        eh.simulate(MACHINES, given)


CALLS_WITH_RNG = {
    "solve": lambda rng: eh.solve(MACHINES, rng=rng),
    "fairness": lambda rng: eh.price_of_fairness(MACHINES, rng=rng),
    "solve with budgets": lambda rng: eh.solve(MACHINES, budgets=[[1]], rng=rng),
    "compare with budgets": lambda rng: eh.compare(MACHINES, rng=rng, budgets=[[1]]),
    "compare": lambda rng: eh.compare(MACHINES, ["random"], rng=rng),
    "evaluate": lambda rng: eh.evaluate(MACHINES, OLDEST, method="monte-carlo", rng=rng),
    "simulate": lambda rng: eh.simulate(MACHINES, OLDEST, rng=rng),
    "simulate_counts": lambda rng: eh.simulate_counts(MACHINES, OLDEST, rng=rng),
    "check_policy": lambda rng: eh.check_policy(MACHINES, OLDEST, rng),
    "act": lambda rng: OLDEST.act([0, 1], rng),
}


@pytest.mark.parametrize("call", CALLS_WITH_RNG.values(), ids=CALLS_WITH_RNG)
@pytest.mark.parametrize("rng", [1.5, "abc", -1, True, np.random.RandomState(0)], ids=str)
def test_an_invalid_rng_is_reported_by_its_name(call, rng):
    with pytest.raises(InvalidInputError, check=mentions("rng", 0, "NumPy")):
        call(rng)


def test_a_seed_of_numpy_is_the_same_seed():
    one, two = (
        eh.compare(MACHINES, ["random"], num_episodes=5, rng=seed, method="monte-carlo") for seed in (3, np.int64(3))
    )
    assert one.rows[0].evaluation.welfare == two.rows[0].evaluation.welfare


def _played(call):
    """So many steps that two streams do not come to the same mean by chance."""
    found = call()
    return np.asarray(found.returns if isinstance(found, Rollout) else found.unit_values)


WITHOUT_RNG = {
    "evaluate": lambda **rng: eh.evaluate(MACHINES, OLDEST, "gini:2", 50, 30, method="monte-carlo", **rng),
    "simulate": lambda **rng: eh.simulate(MACHINES, OLDEST, 50, 30, **rng),
    "simulate_counts": lambda **rng: eh.simulate_counts(MACHINES, OLDEST, 50, 30, **rng),
    "compare": lambda **rng: (
        eh.compare(MACHINES, OLDEST, "gini:2", num_episodes=50, horizon=30, method="monte-carlo", **rng)
        .rows[0]
        .evaluation
    ),
    "compare with budgets": lambda **rng: (
        eh.compare(MACHINES, ["random"], num_episodes=50, horizon=30, method="monte-carlo", budgets=[[1]], **rng)[
            0
        ].evaluation
    ),
}


@pytest.mark.parametrize("call", WITHOUT_RNG.values(), ids=WITHOUT_RNG)
def test_the_same_call_gives_the_same_numbers_and_none_gives_others(call):
    first, again, zero, other = (
        _played(call),
        _played(call),
        _played(lambda: call(rng=0)),
        _played(lambda: call(rng=None)),
    )
    assert np.array_equal(first, again)
    assert np.array_equal(first, zero)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", ["fair-index", "occupancy-priority", "re-solving", "whittle", "optimal", "random"])
def test_a_policy_is_made_by_its_name(name):
    policy = eh.make_policy(MACHINES, name, "gini:2")
    assert eh.simulate(MACHINES, policy, 2, 3).returns.shape == (2, 2)


def test_a_policy_of_a_name_that_is_not_there():
    with pytest.raises(UnknownNameError, check=mentions("re-solving")):
        eh.make_policy(MACHINES, "resolving")


@pytest.mark.parametrize("progress", [5, "yes"])
@pytest.mark.parametrize(
    "call",
    [
        lambda **more: eh.solve(MACHINES, **more),
        lambda **more: eh.price_of_fairness(MACHINES, **more),
        lambda **more: eh.simulate(MACHINES, OLDEST, 2, 2, **more),
        lambda **more: eh.solve(MACHINES, budgets=[[1]], **more),
        lambda **more: eh.compare(MACHINES, budgets=[[1]], **more),
        lambda **more: eh.train(MACHINES, 1, **more),
    ],
)
def test_invalid_progress_is_reported(call, progress):
    with pytest.raises(InvalidInputError, check=mentions("progress")):
        call(progress=progress)


@pytest.mark.parametrize("tolerance", ["small", None, True])
def test_an_invalid_tolerance_is_reported(tolerance):
    with pytest.raises(InvalidInputError, check=mentions("tolerance")):
        eh.solve(MACHINES, method=eh.SolveMethod(tolerance=tolerance))


ARM = eh.Arm([[[1.0], [1.0]]], rewards=[[0.0, 1.0]], usage=[[0], [1]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: eh.CoupledMDP(ARM, [1], 0.9), ("arms", "[arm]")),
        (lambda: eh.CoupledMDP(3, [1], 0.9), ("arms", "int")),
        (lambda: eh.CoupledMDP([ARM, "pump"], [1], 0.9), ("arms[1]", "str")),
        (lambda: eh.CoupledMDP([ARM], [1, 2], 0.9), ("budget", 2, 1)),
        (
            lambda: eh.Arm([[[1.0], [1.0]]], [[0.0, 1.0]], [[0], [1]], actions=["wait"]),
            ("actions", 1, 2),
        ),
    ],
)
def test_an_invalid_problem_is_reported_in_terms_of_python(make, words):
    with pytest.raises(InvalidInputError, check=mentions(*words)):
        make()


def test_arms_may_come_from_anything_that_gives_them():
    assert eh.CoupledMDP((ARM for _ in range(3)), [1], 0.9).num_arms == 3


def test_a_reward_that_is_not_a_number_is_reported_with_its_place():
    def sample(states, actions, rng):
        return states, np.where(np.arange(len(states)) == 1, np.nan, 1.0)

    pumps = eh.Simulator(sample, lambda number, rng: np.zeros(number, dtype=int), [[0], [1]], 2, 3, [1], 0.9)
    with pytest.raises(InvalidInputError, check=mentions("rewards[1]", "state 0", "action 0")):
        pumps.step(np.zeros(3, np.int32), np.zeros(3, np.int32), np.random.default_rng(0))


def test_what_a_welfare_lacks_is_named():
    class Least:
        name = "least"

        def __call__(self, values, counts=None):
            return np.min(values, axis=-1)

    with pytest.raises(InvalidInputError, check=mentions("check_domain")):
        eh.solve(MACHINES, Least())


def test_only_model_files_are_proposed_for_a_model(tmp_path):
    for name in ("fair.html", "other.toml"):
        (tmp_path / name).write_text("")
    with pytest.raises(InvalidInputError, check=lambda error: "?" not in str(error)):
        eh.check(tmp_path / "fair.htm.toml")
    with pytest.raises(InvalidInputError, check=mentions("other.toml")):
        eh.check(tmp_path / "othr.toml")


def test_a_policy_may_return_a_mask_of_served_arms():
    class WornOut:
        def act(self, states, rng):
            return (states == 2) & (np.cumsum(states == 2, axis=1) == 1)

    eh.check_policy(MACHINES, WornOut())
    assert eh.simulate(MACHINES, WornOut(), 2, 3).returns.shape == (2, 2)


def test_policies_of_the_relaxation_take_lists():
    visits = [[[6.0, 0.0], [7.0, 0.0], [0.0, 7.0]]]
    policies = eh.policies
    for made in (
        policies.fair_index(MACHINES, [0.5], [1.0]),
        policies.occupancy_priority(MACHINES, visits, [0.5], [1.0]),
        policies.Resolving(MACHINES, [0.5], [1.0]),
    ):
        assert made.act([0, 2], 0).tolist() == [0, 1]
    with pytest.raises(InvalidInputError, check=mentions("prices")):
        policies.fair_index(MACHINES, [0.5], ["dear"])
