"""alpha below 1 where some arms can have no value: random problems, every method, against the product-space program.

Arms come to nothing in every way there is: no rewards, rewards where they never get, by actions that no budget allows,
after the last step, or where they cannot stay. The oracle asks a linear program what each member has at most and at
least, leaves out those that have nothing, and solves for the others; it shares no code with the library. An arm that
can do no better than 0, and worse, is another matter: what is asked for is not defined for all policies, and a refusal
in words is right.
"""

import copy

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import NotApplicable, OutOfDomain
from evenhand.planning.relaxed import tightest

from ..conftest import try_each
from ..oracles.problems import seeded_problem
from ..oracles.product_space_lp import read_problem

KINDS = ("nothing", "nothing", "unreached", "too dear", "too dear", "late", "passing", "passing", "below")
CRITERIA = ("discounted", "discounted", "average", "finite:1", "finite:2", "finite:3")
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95)
EXACT = ("joint", "counts", "auto")
SEEDS, MANY_SEEDS = range(6), range(6, 300)


def without_value(kind, like, rng):
    """An arm of the shape of another one, whose best value is 0 (for some kinds: under some criteria)."""
    rewards, moves = np.zeros(like.rewards.shape), np.array(like.transitions)
    usage, initial = np.array(like.usage), np.array(like.initial)
    num_states, num_actions = rewards.shape
    if kind == "unreached":
        initial, rewards[-1] = np.eye(num_states)[0], rng.random(num_actions)
        moves[:-1] = np.eye(num_states)[rng.integers(0, num_states - 1, size=moves[:-1].shape[:2])]
    elif kind == "too dear":
        usage[:, 1:, 0], rewards[:, 1:] = 99, rng.random((num_states, num_actions - 1))
    elif kind == "late":  # as many steps away as there are other states
        initial, rewards[-1] = np.eye(num_states)[0], rng.random(num_actions)
        moves[:] = np.eye(num_states)[np.minimum(np.arange(num_states) + 1, num_states - 1)][:, None]
    elif kind == "passing":
        moves[:], rewards[:-1] = np.eye(num_states)[-1], rng.random((num_states - 1, num_actions))
    elif kind == "below":
        rewards[:, 1:] = -rng.random((num_states, num_actions - 1))
    return eh.Arm(moves, rewards, usage, initial)


def case_of(seed):
    """A problem some of whose arms may be without value, its criterion, over whom, and alpha."""
    rng = np.random.default_rng([seed, 173])
    found = seeded_problem(seed, most_pairs=100, floors=False)
    arms = [found.arms[b] for b in range(len(found.counts))]
    chosen = rng.random(len(arms)) < 0.5
    chosen[rng.integers(len(arms))] = True
    arms = [
        without_value(str(rng.choice(KINDS)), arm, rng) if changed else arm
        for arm, changed in zip(arms, chosen, strict=True)
    ]
    criterion, over = str(rng.choice(CRITERIA)), str(rng.choice(["arms", "groups"]))
    problem = eh.CoupledMDP(arms, found.budget, found.discount, found.counts, groups=found.groups, over=over)
    return problem.under(criterion), criterion, over, float(rng.choice(ALPHAS))


def optimum(problem, criterion, over, alpha):
    """(the best welfare, whether it is defined whatever is done)."""
    oracle = read_problem(problem, criterion, over)
    units = np.eye(oracle.num_members)
    most = np.array([oracle.best_linear(unit).bound for unit in units])
    least = np.array([-oracle.best_linear(-unit).bound for unit in units])
    if (least < -1e-9).any() and (most < 1e-9).any():
        return None, False
    live = most > 1e-9
    if not live.any():
        return 0.0, True
    rest = copy.copy(oracle)
    rest.averaging = oracle.averaging[live]
    vars(rest).pop("members_of", None)
    return float(live.mean() ** (1 / (1 - alpha)) * rest.best_alpha(alpha).welfare), True


def answer_of(problem, welfare, method):
    """Welfare, bound and standard error; None where the method is for other problems."""
    try:
        if method == "relaxation":
            return -np.inf, tightest(problem, welfare).upper_bound, 0.0
        solution = eh.solve(problem, welfare, method, seconds=0.2 if method == "fluid" else None)
    except NotApplicable:
        assert method == "whittle" or problem.criterion.is_average
        return None
    return solution.welfare, solution.upper_bound, solution.welfare_stderr


def refuse(problem, welfare, method):
    """It must, in words; the relaxation alone may have a bound all the same."""
    try:
        answer = answer_of(problem, welfare, method)
    except OutOfDomain as refusal:
        assert "positive value" in str(refusal) or "values of at least 0" in str(refusal)
    else:
        assert answer is None or method == "relaxation"


def attack(seed):
    problem, criterion, over, alpha = case_of(seed)
    welfare, (best, defined) = f"alpha:{alpha}", optimum(problem, criterion, over, alpha)
    for method in (*EXACT, "relaxation", *(("fluid", "whittle") if seed % 5 == 0 else ())):
        if not defined:
            refuse(problem, welfare, method)
            continue
        answer = answer_of(problem, welfare, method)
        if answer is None:
            continue
        low, high, error = answer
        assert high >= best * (1 - 1e-6) - 1e-12, (method, high, best)
        assert low <= best * (1 + 1e-6) + 1e-9 + 6 * error, (method, low, best)
        if method in EXACT:
            assert low >= best * (1 - 1e-5) - 1e-12, (method, low, best)


def test_arms_without_value_are_no_hindrance():
    try_each(attack, SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY_SEEDS[::42])
def test_arms_without_value_are_no_hindrance_on_many_problems(first):
    try_each(attack, range(first, min(first + 42, MANY_SEEDS.stop)))
