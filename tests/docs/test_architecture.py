"""The architecture page: it is short, every place that it names exists, and its table of extensions is true.

The extensions are written as a user would write them: with the public protocols and without a change of the library.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.model import BasePolicy, Discounted, explain_by_rank, order_by_rank
from evenhand.problems import Entry

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "evenhand"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLACE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.pyi?|(?:[\w-]+/)+)(?::([\w.]+))?`")
PLACES = sorted(set(PLACE.findall(PAGE)))


def exists(path, name):
    """Whether a place of the page exists: a file or folder of the package or the repository, and a name in it."""
    found = next((root / path for root in (SOURCE, ROOT) if (root / path).exists()), None)
    return found is not None and (not name or name in names_of(ast.parse(found.read_text(encoding="utf-8")).body))


def names_of(body):
    """The functions, classes, methods (`Class.method`) and variables that some statements define."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for name in names_of(node.body)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def read_extensions():
    """The rows of the table of extensions: what is added, and the files to touch."""
    table = PAGE[PAGE.index("| to add a | touch |") :].partition("\n\n")[0]
    cells = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    return {row[0]: row[1].split(";") for row in cells}


def test_the_page_is_short():
    assert len(PAGE.splitlines()) <= 200
    assert PAGE.count("](images/packages.svg)") == 1


def test_every_place_exists():
    missing = [":".join(place) for place in PLACES if not exists(*place)]
    assert missing == []
    assert sum(bool(name) for _, name in PLACES) >= 50


def test_an_extension_touches_at_most_three_files():
    rows = read_extensions()
    assert {"welfare", "criterion", "problem", "command", "endpoint"} < set(rows)
    assert any(row.startswith("policy") for row in rows)
    assert all(1 <= len(files) <= 3 and all("`" in file for file in files) for files in rows.values())


# -- a welfare -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanAndWorst:
    """Mean and minimum with given weights: concave, monotone and symmetric."""

    share: float = 0.5

    @property
    def name(self):
        return f"mean-and-worst:{self.share:g}"

    def __call__(self, values, counts=None):
        values = np.asarray(values, dtype=float)
        mean = np.average(values, axis=-1, weights=counts)
        return (1 - self.share) * mean + self.share * values.min(axis=-1)

    def supergradient(self, values, counts=None):
        values = np.asarray(values, dtype=float)
        counts = np.broadcast_to(1.0 if counts is None else counts, values.shape)
        worst = counts * (values == values.min(axis=-1, keepdims=True))
        parts = [part / part.sum(axis=-1, keepdims=True) for part in (counts, worst)]
        return (1 - self.share) * parts[0] + self.share * parts[1]

    def check_domain(self, values):
        """Every vector is in the domain."""


@pytest.fixture(scope="module")
def unlike():
    return eh.problems.heterogeneous_machine_replacement(num_arms=3)


class TestWelfare:
    @pytest.mark.parametrize("method", ["joint", "counts"])
    def test_it_is_maximised_and_evaluated(self, unlike, method):
        welfare = MeanAndWorst()
        found = eh.solve(unlike, welfare, method)
        assert found.gap <= 1e-7
        assert found.welfare == pytest.approx(welfare(found.values), rel=1e-8)
        assert eh.evaluate(unlike, found.policy, welfare).welfare == pytest.approx(found.welfare, rel=1e-6)
        assert found.welfare <= eh.bound(unlike, welfare).upper_bound * (1 + 1e-8)

    def test_it_agrees_with_the_same_welfare_by_rank(self, unlike):
        # Half of the mean and half of the minimum of three arms: rank weights (4, 1, 1) / 6.
        ranked = eh.solve(unlike, eh.Gini([4 / 6, 1 / 6, 1 / 6]), "joint")
        assert eh.solve(unlike, MeanAndWorst(), "joint").welfare == pytest.approx(ranked.welfare, rel=1e-6)

    def test_its_text_is_registered(self, unlike):
        eh.register_welfare("mean-and-worst", lambda numbers, num_arms: MeanAndWorst(*numbers))
        by_text = eh.solve(unlike, "mean-and-worst:0.25", "joint")
        assert by_text.objective.welfare == MeanAndWorst(0.25)

    def test_its_plan_is_saved_and_explained(self, unlike, tmp_path):
        found = eh.solve(unlike, MeanAndWorst(), "counts")
        eh.save_solution(found, tmp_path / "plan.zip")
        plan = eh.load_plan(tmp_path / "plan.zip")
        assert plan.about["welfare"] == "mean-and-worst:0.5"
        assert all(row.reason for row in plan.act(unlike_states(unlike)).rows)

    def test_one_that_is_not_concave_is_refused(self, unlike):
        class Best(MeanAndWorst):
            def __call__(self, values, counts=None):
                return np.asarray(values, dtype=float).max(axis=-1)

        with pytest.raises(eh.errors.NotApplicableError) as refused:
            eh.solve(unlike, Best())
        assert refused.value.code == "not-applicable"


def unlike_states(problem):
    """A table with every arm in its first state."""
    return [{"arm": f"arm {arm}", "type": int(kind), "state": 0} for arm, kind in enumerate(problem.type_of_arm)]


# -- a policy that is saved, resized and explained -------------------------------------------------------------------


class FirstWornOut:
    """Serve the first arms whose state is at least a threshold: an object with a few methods, of no base class."""

    kind = "first-worn-out"

    def __init__(self, problem, threshold):
        self.problem, self.threshold = problem, int(threshold)

    def act(self, states, rng):
        worn = states >= self.threshold
        return (worn & (worn.cumsum(axis=1) <= self.problem.budget[0])).astype(np.int32)

    def to_arrays(self):
        return {"threshold": np.array(self.threshold)}

    @classmethod
    def from_arrays(cls, problem, arrays):
        return cls(problem, arrays["threshold"])

    def resized(self, problem, types=None):
        return type(self)(problem, self.threshold)

    def explain(self, decision):
        return decision.each(f"state {self.threshold} or worse, and first", "better, or not first")


class WorstFirst(BasePolicy):
    """Serve the arm in the worst state: a policy of the library's base class, with ranks."""

    kind = "worst-state-first"

    def __init__(self, problem):
        self.problem = problem
        num_states = problem.types.num_states[0]
        self.ranks = np.full(problem.types.valid.shape, -1, dtype=np.int32)
        self.ranks[:, :num_states, 1] = np.arange(num_states)[::-1]

    def act(self, states, rng):
        actions = np.zeros(states.shape, dtype=np.int32)
        number = min(int(self.problem.budget[0]), states.shape[1])
        chosen = np.argsort(-states, axis=1, kind="stable")[:, :number]
        np.put_along_axis(actions, chosen, 1, axis=1)
        return actions

    def to_arrays(self):
        return {"ranks": self.ranks}

    @classmethod
    def from_arrays(cls, problem, arrays):
        return cls(problem)

    def resized(self, problem, types=None):
        return type(self)(problem)

    def ranks_at(self, decision):
        return self.ranks[decision.types, decision.states]

    def explain(self, decision):
        return explain_by_rank(decision, self.ranks)

    def service_order(self, step=0):
        return order_by_rank(self.problem, self.ranks, "the worst state first")


@pytest.fixture(scope="module")
def alike():
    return eh.problems.machine_replacement(num_arms=3)


KINDS = (FirstWornOut, WorstFirst)
TABLE = [{"arm": name, "state": state} for name, state in (("a", 0), ("b", 1), ("c", 2))]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def own(request, alike):
    return FirstWornOut(alike, 1) if request.param is FirstWornOut else WorstFirst(alike)


class TestPolicy:
    def test_it_is_evaluated_below_the_bound(self, alike, own):
        eh.check_policy(alike, own)
        found = eh.evaluate(alike, own, "gini:2", num_episodes=200)
        assert 0 < found.welfare <= eh.bound(alike, "gini:2").upper_bound

    def test_it_is_saved_and_loaded(self, alike, own, tmp_path):
        eh.save_policy(alike, own, tmp_path / "own.zip")
        again = eh.load_policy(tmp_path / "own.zip", alike, kinds=KINDS)
        states = np.random.default_rng(0).integers(0, 3, size=(20, 3))
        assert type(again) is type(own)
        assert np.array_equal(again.act(states, 0), own.act(states, 0))

    def test_a_file_does_not_import_its_class(self, alike, own, tmp_path):
        eh.save_policy(alike, own, tmp_path / "own.zip")
        with pytest.raises(eh.errors.PolicyError, match=own.kind):
            eh.load_plan(tmp_path / "own.zip")

    def test_its_plan_explains_every_decision(self, alike, own, tmp_path):
        eh.save_policy(alike, own, tmp_path / "own.zip")
        plan = eh.load_plan(tmp_path / "own.zip", kinds=KINDS)
        rows = plan.act(TABLE).rows
        served = [row.arm for row in rows if row.served]
        assert served == (["b"] if isinstance(own, FirstWornOut) else ["c"])
        reasons = {row.arm: row.reason for row in rows}
        assert reasons[served[0]] != reasons["a"] and all(reasons.values())
        assert plan.show()

    def test_it_is_resized(self, alike, own):
        more = [*TABLE, {"arm": "d", "state": 2}, {"arm": "e", "state": 2}]
        found = eh.Plan(own, alike).act(more, budget=[2])
        assert sum(row.served for row in found.rows) == 2

    def test_ranks_give_queue_and_order(self, alike):
        plan = eh.Plan(WorstFirst(alike), alike)
        found = plan.act(TABLE)
        assert found.line == (2, 1, None) and found.priority == (None, None, 1)
        order = plan.policy.service_order()
        assert [row.state for row in order.rows] == [2, 1, 0]


# -- a criterion, a problem ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lifetime(Discounted):
    """Sum of rewards over a geometric lifetime: discounted, with the discount as the survival probability."""

    @property
    def name(self):
        return f"lifetime:{1 / self.rate:g}"


@pytest.mark.parametrize("method", ["counts", "joint", "count-lp", "joint-lp"])
def test_a_criterion_is_an_object(alike, method):
    found = eh.solve(alike, "gini:2", method, criterion=Lifetime(0.9))
    assert found.problem.criterion.name == "lifetime:10"
    assert found.welfare == eh.solve(alike, "gini:2", method, criterion=Discounted(0.9)).welfare


def test_a_problem_is_described_by_its_factory():
    def two_lamps(num_arms: int = 2, failure: float = 0.1) -> eh.CoupledMDP:
        """Lamps that fail.

        Args:
            num_arms: number of lamps.
            failure: probability of failure per step.
        """
        wear = [[1 - failure, failure], [0, 1]]
        lamp = eh.Arm([[row, [1, 0]] for row in wear], rewards=[[1, 1], [0, 0]], usage=[[0], [1]])
        return eh.CoupledMDP([lamp], counts=[num_arms], budget=[1], discount=0.9)

    entry = Entry("two-lamps", two_lamps)
    assert [parameter.name for parameter in entry.parameters] == ["num_arms", "failure"]
    assert entry.parameters[1].help == "probability of failure per step."
    assert eh.solve(entry.factory(num_arms=3)).gap <= 1e-7
