"""Display of results as one line and as a frame, and of progress."""

import io
import sys
import types
from dataclasses import dataclass

import numpy as np
import pandas
import polars
import pytest

import evenhand as eh
from evenhand import display
from evenhand.cli import progress
from evenhand.display import Shown, as_frame, progress_callback, with_progress_bar
from evenhand.errors import InvalidInputError, MissingExtraError
from evenhand.kernels import compile_now
from evenhand.model import MixturePolicy, TimeVaryingPolicy
from evenhand.policies import CountNetworkPolicy, Network

from .conftest import mentions, two_types


@pytest.fixture(scope="module")
def machines():
    return eh.problems.machine_replacement(num_arms=3)


class TestOneLine:
    """Nothing that a person meets at a prompt is a wall of numbers."""

    @pytest.mark.parametrize(
        ("make", "expected"),
        [
            (lambda m: m, "CoupledMDP(3 arms, identical, 1 resource, discount 0.95)"),
            (lambda m: m.arms[0], "Arm('machine', 3 states, 2 actions, 1 resource)"),
            (lambda m: m.arms, "ArmTables(1 arm, up to 3 states and 2 actions)"),
            (lambda m: eh.solve(m), "Solution(gini:2 14.0793, at most 14.0793, gap 0.000 %, by counts)"),
            (lambda m: eh.indices(m), "TypeIndices(1 type, 1 indexable, discounted)"),
            (lambda m: eh.solve(m).policy, "CountChoices(for 3 arms)"),
            (lambda m: eh.policies.whittle(m), "ExchangeablePriority(for 3 arms)"),
            (lambda m: eh.policies.RoundRobin(m), "RoundRobin(for 3 arms)"),
            (
                lambda m: MixturePolicy([eh.policies.myopic(m), eh.policies.never_act(m)], [0.25, 0.75], 5),
                "MixturePolicy(2 parts with shares 0.25, 0.75, drawn again every 5 steps)",
            ),
            (
                lambda m: TimeVaryingPolicy([eh.policies.never_act(m)] * 4),
                "TimeVaryingPolicy(4 steps, the first ExchangeablePriority(for 3 arms))",
            ),
            (
                lambda m: eh.evaluate(m, eh.policies.whittle(m)),
                "Evaluation(gini:2 14.0793, mean 14.0793, worst 14.0793, exact)",
            ),
        ],
    )
    def test_words(self, machines, make, expected):
        assert repr(make(machines)) == expected

    def test_a_comparison_names_the_best_and_the_bound(self, machines):
        found = eh.compare(machines, ["random", "whittle"], rng=0)
        told = "Comparison(2 policies by gini:2, best 'whittle' with 14.0793; optimum 14.0793)"
        assert repr(found) == told
        assert repr(found.rows[0]) == "Row('whittle', welfare 14.0793)"

    def test_an_estimate_has_its_error(self, machines):
        found = eh.evaluate(machines, eh.policies.whittle(machines), num_episodes=20, rng=0, method="monte-carlo")
        assert " ± " in repr(found) and repr(found).endswith("20 episodes of 300 steps)")
        assert repr(eh.simulate(machines, eh.policies.whittle(machines), 1, 7, 0)) == "Rollout(1 episode of 7 steps)"

    def test_a_network_has_its_layers(self, machines):
        layers = [np.zeros((4, 8), dtype=np.float32), np.zeros((8, 6), dtype=np.float32)]
        policy = CountNetworkPolicy(machines, Network(layers, [np.zeros(8, np.float32), np.zeros(6, np.float32)]))
        assert mentions("CountNetworkPolicy(for", "3 arms", "Network(4", 8, 6)(repr(policy))


@dataclass(frozen=True)
class Pair(Shown):
    """Two things."""

    first: int
    """The one."""

    second: int = 0
    """The other, which may be told
    in two lines."""


class TestHelp:
    def test_fields_are_read_on_first_access(self):
        assert Pair.__dict__["__doc__"].whole is None  # nothing was read to make the class
        told = "Two things.\n\nAttributes:\n    first: The one.\n    second: The other, which may be told in two lines."
        assert Pair.__doc__ == Pair(1).__doc__ == told

    def test_without_source_the_docstring_is_unchanged(self):
        namespace = {"dataclass": dataclass, "Shown": Shown}
        exec("@dataclass\nclass Made(Shown):\n    'By hand.'\n    a: int = 0\n    'A number.'", namespace)
        assert namespace["Made"].__doc__ == "By hand."


class TestFrames:
    @pytest.mark.parametrize(("library", "kind"), [("pandas", pandas.DataFrame), ("polars", polars.DataFrame)])
    def test_a_comparison_has_a_row_a_policy(self, machines, library, kind):
        found = eh.compare(machines, ["random", "whittle"], rng=0)
        frame = found.to_frame(library)
        assert isinstance(frame, kind)
        assert list(frame["policy"]) == ["whittle", "random"]
        assert list(frame["welfare"]) == [row.evaluation.welfare for row in found.rows]
        assert list(frame["budget_used"]) == [float(row.evaluation.budget_used[0]) for row in found.rows]
        assert list(frame["upper_bound"]) == [found.upper_bound] * 2

    def test_an_evaluation_has_a_row_a_unit(self):
        problem = two_types().with_criterion(over="groups")
        found = eh.evaluate(problem, eh.policies.random_feasible(problem))
        frame = found.to_frame()
        assert isinstance(frame, pandas.DataFrame)
        assert list(frame["value"]) == found.unit_values.tolist()
        assert frame["arms"].sum() == problem.num_arms
        assert set(frame["group"]) == set(problem.group_names)

    def test_arms_that_differ_have_a_row_each(self, machines):
        first = eh.policies.worst_first(machines, ties="first")
        frame = eh.evaluate(machines, first, num_episodes=5, horizon=5, rng=0, method="monte-carlo").to_frame("polars")
        assert frame["arm"].to_list() == [0, 1, 2]
        assert {"name", "value", "stderr", "served", "served_stderr"} <= set(frame.columns)

    def test_a_solution_has_its_values(self, machines):
        solution = eh.solve(machines)
        assert solution.to_frame()["value"].tolist() == solution.unit_values.tolist()

    def test_indices_have_a_row_a_state_and_step(self, machines):
        frame = eh.indices(machines).to_frame()
        assert frame["label"].tolist() == ["age 1", "age 2", "age 3"]
        assert frame["index"].tolist() == eh.indices(machines).indices[0].tolist()
        steps = eh.indices(machines, "finite:4").to_frame()
        assert len(steps) == 12 and set(steps["step"]) == {0, 1, 2, 3}

    def test_an_unknown_library_is_refused(self):
        with pytest.raises(InvalidInputError, check=mentions("pandas", "polars")):
            as_frame({"a": [1]}, "excel")

    @pytest.mark.parametrize(
        ("library", "command"),
        [
            (None, "pip install 'fastexcel"),
            ("polars", "pip install 'fastexcel"),
            ("pandas", "pip install pandas"),
        ],
    )
    def test_a_missing_library_is_reported_with_the_command(self, monkeypatch, library, command):
        monkeypatch.setattr(display, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, check=mentions(command)):
            as_frame({"a": [1]}, library)

    def test_polars_is_used_without_pandas(self, monkeypatch):
        monkeypatch.setattr(display, "find_spec", lambda name: None if name == "pandas" else name)
        assert isinstance(as_frame({"a": [1]}), polars.DataFrame)


@with_progress_bar
def work(steps, progress=None):
    for step in range(steps):
        if progress is not None:
            progress("working", step / steps)
    return progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class TestProgress:
    def test_a_callback_is_called_as_before(self):
        heard = []
        assert work(2, progress=lambda *told: heard.append(told)) is not None
        assert heard == [("working", 0.0), ("working", 0.5)]

    @pytest.mark.parametrize("given", [None, False])
    def test_nothing_is_shown_by_default(self, given, capsys):
        assert work(2, given) is None and work(2, progress=given) is None
        assert capsys.readouterr().err == ""

    def test_a_terminal_gets_a_bar_that_goes_away(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        work(3, True)
        assert "working" in terminal.getvalue() and "%" in terminal.getvalue()
        assert terminal.getvalue().endswith("\x1b[2K")  # the line is cleared

    def test_brackets_in_words_are_words(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        with progress_callback(True) as report:
            report("[bold]mine", 0.5)
        assert "[bold]mine" in terminal.getvalue()

    def test_without_a_terminal_there_are_lines(self, monkeypatch, capsys):
        monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
        monkeypatch.setattr(progress, "LOOK_EVERY", 60.0)
        monkeypatch.setattr(progress, "monotonic", lambda: 0.0)  # however long it takes
        work(2, progress=True)
        assert capsys.readouterr().err.splitlines() == ["working: 0 % (0 s)", "working: 50 % (0 s)"]

    def test_a_notebook_gets_a_bar_in_its_cell(self, monkeypatch):
        shown = []
        handle = types.SimpleNamespace(update=shown.append)
        notebook = types.ModuleType("IPython")
        notebook.get_ipython = lambda: types.SimpleNamespace(kernel=object())
        cells = types.ModuleType("IPython.display")
        cells.display = lambda first, display_id: (shown.append(first), handle)[1]
        cells.HTML = str
        monkeypatch.setitem(sys.modules, "IPython", notebook)
        monkeypatch.setitem(sys.modules, "IPython.display", cells)
        monkeypatch.setattr(display, "monotonic", lambda: 1.0)
        with progress_callback(True) as report:
            report("a <b>", 0.25)
            compile_now(True)
            compile_now(False)
        html = shown
        assert "loading" in html[0]
        assert 'value="0.2500"' in html[1] and "a &lt;b&gt;" in html[1]
        assert 'value="0.2500"' in html[2] and "compiling" in html[2] and html[3] == html[1]
        assert html[4] == ""

    def test_the_library_takes_true(self, machines, monkeypatch, capsys):
        monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
        monkeypatch.setattr(progress, "monotonic", lambda: 0.0)
        policy = eh.policies.whittle(machines)
        eh.solve(machines, progress=True)
        assert "%" in capsys.readouterr().err
        eh.compare(machines, ["whittle"], progress=True)
        assert "whittle" in capsys.readouterr().err
        played = eh.evaluate(machines, policy, num_episodes=5, rng=0, method="monte-carlo", progress=True)
        assert "%" in capsys.readouterr().err
        quiet = eh.evaluate(machines, policy, num_episodes=5, rng=0, method="monte-carlo")
        assert played.welfare == quiet.welfare
