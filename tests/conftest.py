"""Small problems of every kind, and oracles that share no code with the library: plain enumeration and chi-square."""

import gc
import importlib.util
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scipy import stats

from evenhand.model import Arm, CoupledMDP
from evenhand.planning import limited_effort
from evenhand.problems import machine_replacement

TASKS = str(Path(__file__).parent / "parallel")
"""Where the work of test workers is, so that they can import it."""

LIGHT = bool(os.environ.get("EVENHAND_TEST_LIGHT"))
"""Set by `make test-light`: tests that need a program of the system are skipped where it is missing, else they fail."""

_PYTHONPATH = os.environ.get("PYTHONPATH", "")

if TASKS not in sys.path:
    sys.path.append(TASKS)

JointLaw = Callable[[tuple[int, ...]], dict[tuple[int, ...], float]]
"""For each joint state the possible joint actions and their probabilities."""


def random_arm(seed, num_states, usage, sparse=False):
    """An arm with random rows and rewards; `usage` is (action, resource) or (state, action, resource)."""
    rng = np.random.default_rng(seed)
    num_actions = len(usage[0]) if np.ndim(usage) == 3 else len(usage)
    rows = rng.dirichlet(np.ones(num_states), size=(num_states, num_actions))
    if sparse and num_states > 1:
        rows[0, 0] = np.eye(num_states)[-1]
        rows[-1, -1] = rows[0, 0]
    return Arm(
        transitions=rows,
        rewards=rng.random((num_states, num_actions)),
        usage=usage,
        initial=rng.dirichlet(np.ones(num_states)),
    )


def two_types():
    by_state = [[[0.0, 0.0], [1.0, 0.5], [0.0, 2.0]], [[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]]]
    arms = [random_arm(1, 2, by_state, sparse=True), random_arm(2, 3, [[0, 0], [1, 1]])]
    return CoupledMDP(arms, budget=[2.0, 2.0], discount=0.8, counts=[2, 1])


def all_different():
    usage = [[0, 0], [1, 0], [1, 2]]
    arms = [random_arm(3, 2, usage), random_arm(4, 3, usage[:2]), random_arm(5, 2, [[1, 1], [0, 0], [2, 1]])]
    return CoupledMDP(arms, budget=[2, 2], discount=0.7)


def tenths():
    """Three uses of 0.1 fit a budget of 0.3, although 0.1 + 0.1 + 0.1 > 0.3 in doubles."""
    return CoupledMDP([random_arm(6, 2, [[0.0], [0.1]])], budget=[0.3], discount=0.6, counts=[4])


def two_free_actions():
    return CoupledMDP([random_arm(7, 2, [[0.0], [1.0], [0.0]])], budget=[1.0], discount=0.9, counts=[3])


PROBLEMS = {
    "machines": lambda: machine_replacement(num_arms=3),
    "two types": two_types,
    "all different": all_different,
    "tenths": tenths,
    "two free actions": two_free_actions,
    "one arm": lambda: CoupledMDP([random_arm(8, 3, [[0], [1]])], budget=[1], discount=0.9),
    "one state": lambda: CoupledMDP([random_arm(9, 1, [[0], [1]])], budget=[2], discount=0.5, counts=[3]),
    "one action": lambda: CoupledMDP([random_arm(10, 3, [[0]])], budget=[1], discount=0.9, counts=[2]),
    "no budget": lambda: machine_replacement(num_arms=2, budget=0),
}


settings.register_profile("default", deadline=None, max_examples=5, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("slow", settings.get_profile("default"), max_examples=60)
settings.load_profile("default")


def require(program, package):
    """Skip a light run, and fail any other, if a program of the system is missing.

    Args:
        program: what was found; None or nothing if it is missing.
        package: packages of Debian that bring it.
    """
    if not program:
        reason = f"missing on this system: on Debian, apt-get install {package}"
        (pytest.skip if LIGHT else pytest.fail)(reason if LIGHT else f"{reason}; or run make test-light")


def slow_after(number, cases):
    """Cases of which all after the first so many are slow."""
    cases = list(cases)
    return [*cases[:number], *(pytest.param(case, marks=pytest.mark.slow) for case in cases[number:])]


def crossed(*factors):
    """All combinations of several factors; those that vary more than one factor from its first level are slow."""
    combinations = []
    for places in product(*(range(len(factor)) for factor in map(list, factors))):
        values = [list(factor)[place] for factor, place in zip(factors, places, strict=True)]
        combinations.append(pytest.param(*values, marks=pytest.mark.slow if np.count_nonzero(places) > 1 else ()))
    return combinations


class mentions:  # noqa: N801  # reads as a predicate
    """Predicate of an error or a text: it holds all these names and numbers, however it is worded."""

    def __init__(self, *facts):
        self.facts = facts

    def __call__(self, said):
        return all(re.search(self._pattern(fact), str(said)) for fact in self.facts)

    @staticmethod
    def _pattern(fact):
        """Numbers are whole: 3 is not in 13; further decimals may follow."""
        end = r"(?!\d)" if isinstance(fact, int) else ""
        return (r"(?<![\d.])" if isinstance(fact, int | float) else "") + re.escape(str(fact)) + end

    def __repr__(self):
        return f"mentions{self.facts}"


def try_each(check, cases):
    """Check all of many cases within one test; name those that fail, and fail if every case is skipped."""
    failed, skipped = {}, []
    for case in cases:
        try:
            check(case)
        except pytest.skip.Exception:
            skipped.append(case)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # raised below, with all others
            failed[case] = error
    if failed:
        raise BaseExceptionGroup(f"failed: {list(failed)}", list(failed.values()))
    assert len(skipped) < len(cases), f"all {len(skipped)} cases were skipped"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keep files together for `--dist loadgroup`; those that share an expensive fixture share a worker."""
    for item in items:
        if not any(item.iter_markers("xdist_group")):
            file = item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group("page" if "/service/page/" in file else file))


def pytest_collection_finish():
    """Exclude what was imported and collected from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture
def effort():
    """Function that limits the effort of the method fluid, by fields of `Effort`, to the end of the test."""
    with ExitStack() as stack:
        yield lambda **limits: stack.enter_context(limited_effort(**limits))


@pytest.fixture(autouse=True)
def brief_search(request, effort):
    """Search briefly for plans by the method fluid, except in the documentation and in slow tests."""
    if "docs" not in request.path.parts and not request.node.get_closest_marker("slow"):
        effort(arm_steps=1e5, report_steps=1e6, inequality_steps=1e4, rounds=3)


@pytest.fixture(params=list(PROBLEMS))
def small_problem(request):
    """Each kind of problem in turn, small enough to enumerate."""
    return PROBLEMS[request.param]()


@pytest.fixture(scope="session")
def problems():
    """The small problems by name."""
    return PROBLEMS


@pytest.fixture(scope="session")
def build_arm():
    return random_arm


class BruteForce:
    """The product of all arms, by plain enumeration."""

    def __init__(self, problem):
        self.problem = problem
        self.arms = [problem.arms[i] for i, count in enumerate(problem.counts) for _ in range(count)]
        self.states = list(product(*(range(arm.num_states) for arm in self.arms)))
        self.number = {state: i for i, state in enumerate(self.states)}
        self.initial = np.array(
            [self._chance(arm.initial[s] for arm, s in zip(self.arms, x, strict=True)) for x in self.states]
        )

    @staticmethod
    def _chance(chances):
        return float(np.prod(list(chances)))

    def usage(self, state, actions):
        return sum(arm.usage[s, a] for arm, s, a in zip(self.arms, state, actions, strict=True))

    def fits(self, used):
        budget = self.problem.budget
        return bool((used <= budget + 1e-9 * np.maximum(budget, 1)).all())

    def feasible(self, state):
        """All joint actions within the budget, in lexicographic order."""
        choices = product(*(range(arm.num_actions) for arm in self.arms))
        return [actions for actions in choices if self.fits(self.usage(state, actions))]

    def rewards(self, state, actions):
        return np.array([arm.rewards[s, a] for arm, s, a in zip(self.arms, state, actions, strict=True)])

    def row(self, state, actions):
        """The law of the next joint state."""
        rows = [arm.transitions[s, a] for arm, s, a in zip(self.arms, state, actions, strict=True)]
        return np.array(
            [self._chance(row[s] for row, s in zip(rows, following, strict=True)) for following in self.states]
        )

    def evaluate(self, law: JointLaw):
        """(arm,) values and (resource,) discounted usage of a policy."""
        size = len(self.states)
        matrix, gains = np.zeros((size, size)), np.zeros((size, len(self.arms) + self.problem.num_resources))
        for i, state in enumerate(self.states):
            for actions, chance in law(state).items():
                used = self.usage(state, actions)
                assert self.fits(used)
                matrix[i] += chance * self.row(state, actions)
                gains[i] += chance * np.concatenate([self.rewards(state, actions), used])
        solved = self.initial @ np.linalg.solve(np.eye(size) - self.problem.discount * matrix, gains)
        return solved[: len(self.arms)], solved[len(self.arms) :]

    def optimum(self):
        """The best mean value, by value iteration."""
        choices = [
            (
                np.array([self.rewards(x, a).mean() for a in self.feasible(x)]),
                [self.row(x, a) for a in self.feasible(x)],
            )
            for x in self.states
        ]
        values, change = np.zeros(len(self.states)), np.inf
        while change > 1e-11:
            better = np.array(
                [(gain + self.problem.discount * (np.array(rows) @ values)).max() for gain, rows in choices]
            )
            change, values = np.abs(better - values).max(), better
        return float(self.initial @ values)

    def greedy(self, score: Callable[[int, int, int], float | None], stop=False) -> JointLaw:
        """Again and again the best candidate that fits, ties and stopping drawn uniformly, by recursion.

        `score(arm, state, action)` is None for candidates that are never served.
        """
        idle = [
            [next(a for a in range(arm.num_actions) if not arm.usage[s, a].any()) for s in range(arm.num_states)]
            for arm in self.arms
        ]

        def extend(state, chosen, chance, found):
            used = self.usage(state, [chosen.get(n, idle[n][s]) for n, s in enumerate(state)])
            open_to = [
                (score(n, s, a), n, a)
                for n, s in enumerate(state)
                for a in range(self.arms[n].num_actions)
                if n not in chosen and a != idle[n][s] and score(n, s, a) is not None
                if self.fits(used + self.arms[n].usage[s, a])
            ]
            best = [(n, a) for value, n, a in open_to if value >= max(open_to)[0] - 1e-9]
            shares = len(best) + (1 if stop else 0)
            if stop or not best:
                actions = tuple(chosen.get(n, idle[n][s]) for n, s in enumerate(state))
                found[actions] += chance / max(shares, 1)
            for n, a in best:
                extend(state, chosen | {n: a}, chance / shares, found)

        def law(state):
            found = defaultdict(float)
            extend(state, {}, 1.0, found)
            return found

        return law


@pytest.fixture(scope="session")
def brute_force():
    return BruteForce


@pytest.fixture(scope="session")
def start_postgresql():
    """Starts PostgreSQL servers of this machine, within a folder or anywhere, and ends them."""
    spec = importlib.util.spec_from_file_location("postgresql", Path(__file__).parent / "postgresql.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    @contextmanager
    def start(within=None):
        programs = module.find_programs()
        require(programs, "postgresql")
        server = module.PostgreSQL(programs, within)
        try:
            server.start()
            yield server
        finally:
            server.end()

    return start


@pytest.fixture(scope="session")
def postgresql(start_postgresql):
    """A running PostgreSQL server; `database()` gives the address of a new database."""
    with start_postgresql() as server:
        yield server


def _chi_square(observed, expected_law):
    """The p-value of observed (cell,) numbers under a law; 0 if something impossible was seen."""
    observed, law = np.asarray(observed, dtype=float), np.asarray(expected_law, dtype=float)
    if observed[law <= 0].any():
        return 0.0
    expected = observed.sum() * law / law.sum()
    order = np.argsort(expected)[::-1]
    observed, expected = observed[order], expected[order]
    large = max(1, int((expected >= 5).sum()))
    observed = np.append(observed[:large], observed[large:].sum())
    expected = np.append(expected[:large], expected[large:].sum())
    if expected[-1] < 5:  # too rare for a cell of its own
        observed[-2], expected[-2] = observed[-2:].sum(), expected[-2:].sum()
        observed, expected = observed[:-1], expected[:-1]
    return float(stats.chisquare(observed, expected).pvalue) if len(observed) > 1 else 1.0


@pytest.fixture(scope="session")
def chi_square():
    return _chi_square


@pytest.fixture(scope="module")
def small_ray():
    """A real Ray of this machine, for files of the group "ray"; it sees nothing beyond it, and ends with their last."""
    import ray

    if not ray.is_initialized():
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_PYTHONPATH, TASKS]))
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            num_cpus=3,
            address="local",
            include_dashboard=False,
            object_store_memory=200_000_000,
            log_to_driver=False,
            logging_level="error",
        )
    return ray


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """A Ray that nobody needs is busy all the same: it ends where the next test is not of its group."""
    if "ray" not in sys.modules or (nextitem is not None and _needs_ray(nextitem)) or not _needs_ray(item):
        return
    sys.modules["ray"].shutdown()
    os.environ["PYTHONPATH"] = _PYTHONPATH
    if not _PYTHONPATH:
        del os.environ["PYTHONPATH"]


def _needs_ray(item):
    return any(mark.args == ("ray",) for mark in item.iter_markers("xdist_group"))


def make_token(file, role, name, groups=None):
    """A new token with one role, or with all for `write`."""
    from evenhand.programme import Tokens
    from evenhand.programme.api.auth import ROLES

    return Tokens.read(file, empty=True).create(name, ROLES if role == "write" else [role], groups)
