"""Studies: figures as of compare, cells on disk, paired tests, table and figure."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.planning.study import Study, StudyRow, holm
from evenhand.planning.study_files import digest

PLAYED = {"seeds": 3, "num_episodes": 40, "horizon": 30, "method": "monte-carlo"}
SMALL = [2, 3]


def unlike(size):
    return eh.problems.random_coupled(num_arms=size, num_states=3, seed=1)


def figures(study):
    return [(row.problem, row.size, row.policy, row.welfare, row.welfare_stderr, row.upper_bound) for row in study.rows]


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- figures ---------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_compare():
    found = eh.study("machine-replacement", ["whittle", "never-act", "solve"], SMALL)
    for size, rows in itertools.groupby(found.rows, lambda row: row.size):
        beside = eh.compare(eh.problems.machine_replacement(num_arms=size), ["whittle", "never-act"])
        known = {row.policy: row.evaluation.welfare for row in beside.rows}
        for row in rows:
            expected = known.get(row.policy, beside.upper_bound)
            assert row.exact
            assert row.welfare == pytest.approx(expected, rel=1e-6)
            assert row.upper_bound == pytest.approx(beside.upper_bound, rel=1e-6)
            assert row.welfare <= row.upper_bound * (1 + 1e-9)


def test_simulated_figures_are_means_over_the_seeds():
    problem = unlike(3)
    found = eh.study(problem, "fair-index", **PLAYED).rows[0]
    runs = [
        eh.evaluate(problem, "fair-index", num_episodes=40, horizon=30, rng=s, method="monte-carlo") for s in range(3)
    ]
    assert found.welfare == pytest.approx(np.mean([run.welfare for run in runs]), rel=1e-12)
    errors = [run.welfare_stderr for run in runs]
    assert found.welfare_stderr == pytest.approx(np.sqrt(np.sum(np.square(errors))) / 3, rel=1e-12)


def test_all_kinds_of_problems_and_policies():
    problem = eh.problems.machine_replacement(num_arms=3)
    solved = eh.SolveMethod("count-lp")
    policies = {
        "own": lambda problem: eh.policies.worst_first(problem),
        "object": eh.policies.never_act(problem),
        "solved": solved,
        "by": "counts",
        "result": lambda problem: eh.solve(problem, "utilitarian"),
    }
    problems = {"a": ("machine-replacement", {"num_arms": 3}), "b": problem, "c": lambda size: problem}
    found = eh.study({name: problems[name] for name in "ab"}, policies)
    assert [row[:3] for row in found.rows] == [(name, 3, policy) for name in "ab" for policy in policies]
    best = eh.solve(problem).welfare
    assert [row.welfare for row in found.rows if row.policy in ("solved", "by", "result")] == pytest.approx([best] * 6)
    assert eh.study(problems["c"], policies["object"], [3]).rows[0].welfare == found.rows[1].welfare


def test_what_does_not_apply_is_left_out():
    problem = unlike(3)
    found = eh.study({"own": problem}, ["never-act", "joint-lp"], welfare="alpha:2", **PLAYED)
    assert [row.policy for row in found.rows] == ["never-act"]
    assert list(found.left_out) == ["own, size 3, joint-lp"]
    with pytest.raises(eh.errors.NotApplicableError):
        eh.study({"own": problem}, ["joint-lp"], welfare="alpha:2")


def test_a_simulator_has_no_bound():
    def sample(states, actions, rng):
        return np.where(actions == 1, 0, np.minimum(states + (rng.random(len(states)) < 0.3), 2)), 1 - states / 2

    pumps = eh.Simulator(
        sample,
        lambda n, rng: rng.integers(0, 3, n),
        usage=[[0], [1]],
        num_states=3,
        num_arms=4,
        budget=[1],
        discount=0.9,
    )
    found = eh.study({"pumps": pumps}, ["random", "never-act"], seeds=2, num_episodes=20, horizon=20)
    assert [row.upper_bound for row in found.rows] == [None, None]
    assert np.isnan(found.rows[0].share_of_bound)
    for quantity in ("share", "gap"):
        with pytest.raises(eh.errors.NotApplicableError):
            found.plot(quantity)
    assert len(found.plot("welfare").axes) == 1
    assert "upper bound &" not in found.to_latex()


class Idling:
    """A policy of a problem, made by its class."""

    def __init__(self, problem):
        self.problem = problem

    def act(self, states, rng):
        return np.zeros_like(states)


def test_a_class_is_a_function_of_the_problem(tmp_path):
    settings = {"seeds": 2, "num_episodes": 20, "horizon": 20, "path": tmp_path}
    found = eh.study(unlike, [Idling], SMALL, **settings)
    beside = eh.study(unlike, {"Idling": lambda problem: Idling(problem)}, SMALL, **settings)
    assert [row.policy for row in found.rows] == ["Idling", "Idling"]
    assert figures(found) == figures(beside)


def test_costs_have_a_gap_and_no_share():
    def costly(size):
        machine = eh.problems.machine_replacement(num_arms=1).arms[0]
        arm = eh.Arm(machine.transitions, machine.rewards - 5, machine.usage, machine.initial)
        return eh.CoupledMDP([arm], [1], 0.9, [size])

    found = eh.study(costly, ["whittle", "never-act"], SMALL)
    assert all(row.upper_bound < 0 and np.isnan(row.share_of_bound) for row in found.rows)
    gaps = found.to_frame("pandas")["gap"].to_numpy()
    assert gaps == pytest.approx([row.welfare / row.upper_bound - 1 for row in found.rows], abs=1e-9)
    assert (gaps >= -1e-9).all() and gaps.max() > 0.01
    with pytest.raises(eh.errors.NotApplicableError):
        found.to_latex("share")
    cells = [line.split(" & ") for line in found.to_latex("gap").splitlines()[4:-2]]
    assert ["mathbf" in row[2] and "mathbf" not in row[3] for row in cells] == [True, True]
    bound = {line.get_label(): line for line in found.plot("gap").axes[0].get_lines()}["upper bound"]
    assert set(bound.get_ydata()) == {0}


def test_a_policy_above_its_bound_is_an_error(monkeypatch):
    monkeypatch.setattr("evenhand.planning.study.best_bound", lambda *_: (5.0, "optimum", None))
    for method in ("auto", "monte-carlo"):
        with pytest.raises(eh.errors.ContradictionError):
            eh.study("machine-replacement", "random", [3], num_episodes=50, method=method)


@pytest.mark.parametrize(
    "wrong",
    [
        {"problems": []},
        {"problems": "no-such-problem"},
        {"problems": ["machine-replacement", "machine-replacement"]},
        {"policies": ["whittle", "whittle"]},
        {"policies": "no-such-policy"},
        {"policies": {1: "whittle"}},
        {"policies": None},
        {"sizes": [0]},
        {"sizes": 3},
        {"sizes": []},
        {"sizes": [2, 2]},
        {"problems": unlike, "sizes": None},
        {"seeds": 0},
        {"seeds": [0.5]},
        {"seeds": [1, 1]},
        {"problems": eh.problems.machine_replacement(num_arms=2), "sizes": [2]},
        {"epsiodes": 3},
    ],
)
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(eh.errors.InvalidInputError):
        eh.study(**({"problems": "machine-replacement", "policies": "whittle"} | wrong))


# -- cells -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["threads:2", "processes:2"])
def test_neither_backend_nor_folder_changes_a_figure(backend, tmp_path):
    problems = {"unlike": unlike, "machines": "machine-replacement"}
    here = eh.study(problems, ["fair-index", "random"], SMALL, **PLAYED)
    there = eh.study(problems, ["fair-index", "random"], SMALL, path=tmp_path, backend=backend, **PLAYED)
    again = eh.study(problems, ["fair-index", "random"], SMALL, path=tmp_path, **PLAYED)
    assert figures(here) == figures(there) == figures(again)


def test_only_what_is_missing_is_computed(tmp_path):
    made = []

    def counted(problem):
        made.append(problem.num_arms)
        return eh.policies.worst_first(problem)

    def study(sizes=SMALL, path=tmp_path, **changes):
        made.clear()
        policies = {"counted": lambda problem: counted(problem)}
        return eh.study(unlike, policies, sizes, path=path, **(PLAYED | changes)), list(made)

    # The list is a global of the function, and so part of what the policy depends on: it is empty at each call.
    first, calls = study()
    assert calls == SMALL
    assert study() == (first, [])
    assert study([*SMALL, 4])[1] == [4]
    more, calls = study(seeds=4)
    assert calls == SMALL
    assert [row.runs[:3] for row in more.rows] == [row.runs for row in first.rows]
    assert study(seeds=[3])[1] == []
    assert study(num_episodes=41)[1] == SMALL
    assert study(welfare="maximin")[1] == SMALL
    assert study() == (first, [])


def test_a_cell_that_fails_loses_no_other(tmp_path):
    broken = tmp_path / "broken"

    def policies(problem):
        if broken.exists() and problem.num_arms == 3:
            raise KeyboardInterrupt
        return eh.policies.worst_first(problem)

    folder = tmp_path / "cells"
    broken.touch()
    with pytest.raises(KeyboardInterrupt):
        eh.study(unlike, policies, [2, 3, 4], path=folder, **PLAYED)
    before = files(folder)
    assert len(before) == 3  # two bounds and the policy of the first size
    broken.unlink()
    eh.study(unlike, policies, [2, 3, 4], path=folder, **PLAYED)
    after = files(folder)
    assert len(after) == 6
    assert before.items() <= after.items()


SCRIPT = """
import evenhand as eh


def own(problem):
    return eh.policies.worst_first(problem)


study = eh.study("random", [own, "fair-index", "random"], [2, 3, 4], seeds=2, num_episodes={number},
                 horizon=100, method="monte-carlo", path={path!r})
print([row.welfare for row in study.rows])
"""


def test_a_killed_study_goes_on(tmp_path):
    folder, script = tmp_path / "cells", tmp_path / "script.py"
    script.write_text(SCRIPT.format(number=4000, path=str(folder)))
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    running = subprocess.Popen([sys.executable, script], env=environment)
    while running.poll() is None and not (folder.exists() and len(files(folder)) >= 3):
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = {name: body for name, body in files(folder).items() if name.startswith("cell-")}
    # Another process, another line for the function, another order of sets.
    script.write_text("# moved\n\n" + SCRIPT.format(number=4000, path=str(folder)))
    environment["PYTHONHASHSEED"] = "2"
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, check=True)
    after = files(folder)
    assert len(after) == 12
    assert before.items() <= after.items()
    whole = tmp_path / "whole"
    script.write_text(SCRIPT.format(number=4000, path=str(whole)))
    assert subprocess.run([sys.executable, script], capture_output=True, check=True).stdout == done.stdout


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", None])
def test_a_damaged_cell_is_refused(tmp_path, body):
    eh.study("machine-replacement", "whittle", [2], path=tmp_path)
    file = sorted(tmp_path.iterdir())[0]
    if body is None:
        stored = json.loads(file.read_text())
        stored["figures"]["upper_bound"] = 99.0
        body = json.dumps(stored).encode()
    file.write_bytes(body)
    with pytest.raises(eh.errors.InvalidInputError, check=lambda error: file.name in str(error)):
        eh.study("machine-replacement", "whittle", [2], path=tmp_path)
    file.unlink()
    assert eh.study("machine-replacement", "whittle", [2], path=tmp_path).rows[0].exact


def test_a_cell_under_the_name_of_another_is_refused(tmp_path):
    eh.study("machine-replacement", "whittle", [2], path=tmp_path)
    one, other = sorted(tmp_path.iterdir())
    one.write_bytes(other.read_bytes())
    with pytest.raises(eh.errors.InvalidInputError):
        eh.study("machine-replacement", "whittle", [2], path=tmp_path)


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    for path in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(eh.errors.InvalidInputError):
            eh.study("machine-replacement", "whittle", [2], path=path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


# -- what a cell depends on ------------------------------------------------------------------------------------------


def function(source, **names):
    exec(compile(source, names.pop("file", "<one>"), "exec"), names)
    return names["f"]


CODE = "def f(problem, k=1):\n    return g(problem) + {} + k\n"


def test_a_function_is_known_by_its_code():
    same = function(CODE.format(1), g=len)
    assert digest(same) == digest(function("\n\n" + CODE.format(1), g=len, file="<other>"))
    others = [
        function(CODE.format(2), g=len),
        function(CODE.format(1), g=sum),
        function(CODE.format(1).replace("k=1", "k=2"), g=len),
        function(CODE.format(1), g=function(CODE.format(3), g=len)),
        function(CODE.format(1), g=function(CODE.format(4), g=len)),
    ]
    assert len({digest(same), *map(digest, others)}) == 6


def test_a_closure_counts():
    def make(number):
        return lambda problem: number

    assert digest(make(1)) == digest(make(1)) != digest(make(2))


def test_a_function_that_calls_itself_has_a_digest():
    assert digest(function("def f(n):\n    return f(n - 1)\n")) == digest(function("def f(n):\n    return f(n - 1)\n"))


@pytest.mark.parametrize(
    "change",
    [
        lambda problem: problem.with_budget(2),
        lambda problem: problem.with_criterion("average"),
        lambda problem: problem.with_criterion("finite:20"),
        lambda problem: problem.with_spend("all"),
        lambda problem: eh.problems.machine_replacement(num_arms=5),
        lambda problem: eh.problems.machine_replacement(num_arms=4, discount=0.9),
    ],
)
def test_every_part_of_a_problem_counts(change):
    problem = eh.problems.machine_replacement(num_arms=4)
    eh.evaluate(problem, "whittle")  # what is computed on the way does not count
    assert digest(problem) == digest(eh.problems.machine_replacement(num_arms=4)) != digest(change(problem))


def test_a_policy_is_known_by_its_content():
    problem = eh.problems.machine_replacement(num_arms=4)
    make = eh.policies.whittle, eh.policies.worst_first, eh.policies.myopic, eh.policies.never_act
    own = [eh.policies.from_function(problem, lambda states, rng, k=k: states > k) for k in (7, 8)]
    policies = [*(one(problem) for one in make), *own]
    before = [digest(policy) for policy in policies]
    for policy in policies:
        eh.evaluate(problem, policy, num_episodes=3, horizon=5, method="monte-carlo")
    assert [digest(policy) for policy in policies] == before
    assert len(set(before)) == 6


def test_a_policy_file_is_known_by_its_bytes(tmp_path):
    problem, file, cells = eh.problems.machine_replacement(num_arms=3), tmp_path / "policy.zip", tmp_path / "cells"
    found = []
    for policy in ("whittle", "never-act"):
        eh.save_policy(problem, eh.make_policy(problem, policy), file)
        found.append(eh.study(problem, str(file), path=cells).rows[0].welfare)
    assert found[0] > found[1]


def test_what_cannot_be_recognised_is_refused(tmp_path):
    with Path(os.devnull).open() as stream, pytest.raises(eh.errors.InvalidInputError):
        eh.study(unlike, lambda problem: stream and eh.policies.never_act(problem), [2], path=tmp_path)


# -- paired tests ----------------------------------------------------------------------------------------------------


def played(values, bound=None):
    """A study of simulated policies with the given (policy, seed) welfare."""
    run = {"mean": 0.0, "worst": 0.0, "gini_coefficient": 0.0, "exact": False, "episodes": 5, "horizon": 5}
    runs = [tuple({**run, "welfare": float(w), "welfare_stderr": 1.0} for w in row) for row in values]
    rows = tuple(StudyRow("p", 1, f"policy {place}", own, bound) for place, own in enumerate(runs))
    return Study("utilitarian", tuple(range(len(values[0]))), rows, {})


def test_t_and_sign_tests_are_those_of_scipy():
    values = np.random.default_rng(3).normal(size=(4, 9)) + np.arange(4)[:, None] / 2
    study = played(values)
    for (one, other), t, sign in zip(
        itertools.combinations(range(4), 2), study.tests().rows, study.tests("sign").rows, strict=True
    ):
        expected = stats.ttest_rel(values[one], values[other])
        assert t.p == pytest.approx(expected.pvalue, rel=1e-9)
        assert t.difference / t.stderr == pytest.approx(expected.statistic, rel=1e-9)
        wins = int((values[one] > values[other]).sum())
        assert sign.p == pytest.approx(stats.binomtest(wins, 9).pvalue, rel=1e-9)


def test_holm_is_the_published_method():
    # Holm (1979) by hand: 4 * 0.005, 3 * 0.01, 2 * 0.03 raised to no less, and 0.04 raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@pytest.mark.parametrize("test", ["t", "sign"])
def test_equal_policies_are_rarely_found_different(test):
    rng, false = np.random.default_rng(0), 0
    for _ in range(400):
        common = rng.normal(size=8)
        rows = played(common + rng.normal(size=(4, 8))).tests(test).rows
        false += any(row.p_holm < 0.05 for row in rows)
    # At most 5 % of the families, within three standard errors.
    assert false <= 400 * 0.05 + 3 * np.sqrt(400 * 0.05 * 0.95)


def test_against_one_policy():
    study = played(np.random.default_rng(1).normal(size=(4, 6)))
    rows = study.tests(against="policy 2").rows
    assert [(row.first, row.second) for row in rows] == [(f"policy {k}", "policy 2") for k in (0, 1, 3)]
    every = {(row.first, row.second): row for row in study.tests().rows}
    assert rows[0].p == every["policy 0", "policy 2"].p
    assert rows[2].difference == -every["policy 2", "policy 3"].difference
    with pytest.raises(eh.errors.InvalidInputError):
        study.tests(against="policy 9")


def test_common_random_numbers_make_differences_sharper():
    found = eh.study(unlike, ["myopic", "fair-index"], [6], welfare="utilitarian", **(PLAYED | {"seeds": 12}))
    test, (one, other) = found.tests().rows[0], found.rows
    assert test.stderr < 0.7 * np.hypot(one.welfare_stderr, other.welfare_stderr)


def test_one_seed_allows_no_test_of_simulated_policies():
    study = played([[1.0], [2.0]])
    with pytest.raises(eh.errors.InvalidInputError):
        study.tests()
    exact = eh.study("machine-replacement", ["whittle", "never-act"], [2], seeds=1)
    assert exact.tests().rows[0].p == 0.0
    assert exact.tests().rows[0].stderr == 0.0


# -- what is shown ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown():
    policies = {"index & co": "fair-index", "random": "random", "best": "solve"}
    return eh.study({"50 % of_all": unlike, "b": "machine-replacement"}, policies, [2, 4], **PLAYED)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(shown, library):
    pytest.importorskip(library)
    frame = shown.to_frame(library)
    assert frame.shape[0] == 12
    assert list(frame["welfare"]) == [row.welfare for row in shown.rows]
    by_seed = shown.to_frame(library, by_seed=True)
    assert by_seed.shape[0] == 36
    assert sorted(set(by_seed["seed"])) == [0, 1, 2]
    assert np.mean(list(by_seed["welfare"])[:3]) == pytest.approx(shown.rows[0].welfare)
    assert shown.tests().to_frame(library).shape[0] == 12


def test_json(shown):
    stored = json.loads(json.dumps(shown.to_dict()))
    assert stored["rows"][0]["runs"][0]["welfare"] == shown.rows[0].runs[0]["welfare"]
    assert len(json.loads(json.dumps(shown.tests().to_dict()))) == 12


def test_curves_with_error_bars(shown):
    figure = shown.plot("welfare")
    assert len(figure.axes) == 2
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert lines["upper bound"].get_ydata().tolist() == [shown.rows[0].upper_bound, shown.rows[3].upper_bound]
    bars = figure.axes[0].containers[0]
    assert bars.get_label() == "index & co"
    assert bars.lines[0].get_ydata().tolist() == [shown.rows[0].welfare, shown.rows[3].welfare]
    lengths = [np.ptp(segment[:, 1]) / 2 for segment in bars.lines[2][0].get_segments()]
    assert lengths == pytest.approx([1.96 * shown.rows[k].welfare_stderr for k in (0, 3)], rel=1e-3)
    with pytest.raises(eh.errors.InvalidInputError):
        shown.plot("wealth")


def test_latex(shown):
    text = shown.to_latex("share")
    lines = text.splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrr}"
    assert lines[2] == r"problem & size & index \& co & random & best & upper bound \\"
    rows = [line.split(" & ") for line in lines[4:-2]]
    assert [row[:2] for row in rows] == [[r"50 \% of\_all", "2"], ["", "4"], ["b", "2"], ["", "4"]]
    assert all(sum("mathbf" in cell for cell in row) >= 1 for row in rows)
    assert text.count(r"\pm") == sum(not row.exact for row in shown.rows)


def test_html_is_escaped(shown):
    for thing in (shown, shown.tests()):
        html = thing._repr_html_()
        assert "index &amp; co" in html
        assert "index & co" not in html
    assert repr(shown) == "Study(2 problems, 2 sizes, 3 policies, 3 seeds, by gini:2, gini:half=0.75)"


def test_progress_ends_with_all(tmp_path):
    heard = []
    eh.study("machine-replacement", "whittle", SMALL, path=tmp_path, progress=lambda what, share: heard.append(share))
    assert heard == sorted(heard)
    assert Path(tmp_path).exists()
    assert 0 <= heard[0] <= heard[-1] <= 1
