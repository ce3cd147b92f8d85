"""The page is whole, safe, the same every time, and tells every policy."""

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.errors import InvalidInputError
from evenhand.evaluation import Evaluation
from evenhand.model import Arm, CoupledMDP, Objective, Simulator, as_welfare
from evenhand.planning import Comparison, Row, find_policy
from evenhand.planning.compare import compare
from evenhand.problems import crew_maintenance, machine_replacement
from evenhand.report import comparison_report, lorenz_rows, page, values_by_type, write_page
from evenhand.typing import Floats, Ints

from ..conftest import mentions

EVIL = '<script>alert("x")</script> & $x_1$ \'"><img src=x onerror=y>'
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Reader(HTMLParser):
    """Checks that tags nest, and collects what a test asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    def values_of(self, key: str) -> list[str | None]:
        return [value for _, name, value in self.attributes if name == key]


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def plain(page: str) -> str:
    return " ".join("".join(read(page).text).split())


def comparison_page(comparison: Comparison, command: str = "", **options: Any) -> str:
    return page(comparison_report(comparison, **options), command)


def said(comparison: Comparison) -> str:
    return " ".join(comparison_report(comparison).lead)


def made_up(problem: CoupledMDP, values: np.ndarray, by_type: bool = False, **changes: object) -> Evaluation:
    """An evaluation with these values, exact unless told otherwise."""
    counts = problem.type_counts if by_type else np.ones(problem.num_arms, dtype=np.int64)
    given = {
        "welfare": float(as_welfare("gini:2", problem.num_arms)(values, counts)),
        "welfare_stderr": 0.0,
        "plug_in_welfare": None,
        "mean": float(values @ counts / problem.num_arms),
        "mean_stderr": 0.0,
        "unit_values": values,
        "unit_stderr": np.zeros(len(values)),
        "unit_served": np.zeros(len(values)),
        "unit_served_stderr": np.zeros(len(values)),
        "member_stderr": np.zeros(len(values)),
        "by_type": by_type,
        "budget_used": np.full(problem.num_resources, 0.5),
        "exact": True,
        "truncation_bound": 0.0,
        "num_episodes": None,
        "horizon": None,
        "seconds": 0.25,
        "objective": (Objective.of_types if by_type else Objective.of_arms)(problem, "gini:2"),
        "problem": problem,
    }
    return Evaluation(**(given | changes))  # type: ignore[arg-type]


def side_by_side(
    problem: CoupledMDP, rows: dict[str, Evaluation], bound: float | None = None, name: str = ""
) -> Comparison:
    ranked = sorted((Row(policy, found) for policy, found in rows.items()), key=lambda row: -row.evaluation.welfare)
    return Comparison(as_welfare("gini:2", problem.num_arms), tuple(ranked), {}, bound, name, problem)


def different_arms(num_arms: int, num_resources: int = 1, name: str = "") -> CoupledMDP:
    usage = np.zeros((2, num_resources))
    usage[1] = 1.0
    arms = [Arm(np.ones((1, 2, 1)), [[1.0 + n, 1.0 + n]], usage, name=name) for n in range(num_arms)]
    return CoupledMDP(arms, budget=np.ones(num_resources), discount=0.5)


@pytest.fixture(scope="module")
def crew() -> tuple[CoupledMDP, Comparison]:
    problem = crew_maintenance(num_arms=4, num_states=3, num_types=2)
    return problem, compare(problem, num_episodes=20, horizon=20, rng=0, method="monte-carlo")


@pytest.fixture(scope="module")
def crew_page(crew: tuple[CoupledMDP, Comparison]) -> str:
    return comparison_page(crew[1])


@pytest.fixture(scope="module")
def machines() -> tuple[CoupledMDP, Comparison]:
    problem = machine_replacement(num_arms=3)
    return problem, replace(compare(problem, num_episodes=20, horizon=20, rng=0), upper_bound=20.0)


def test_the_page_stands_alone(crew: tuple[CoupledMDP, Comparison]) -> None:
    page = comparison_page(crew[1], command="evenhand compare crew-maintenance", seed=0)
    reader = read(page)
    assert not {"script", "link", "img", "iframe", "object", "image", "base", "foreignobject"} & set(reader.tags)
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    assert all(
        value and value.startswith("#") for key in ("href", "xlink:href", "src") for value in reader.values_of(key)
    )
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*[\"']?([^)]*)\)", page))
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]


def test_the_page_is_accessible(crew: tuple[CoupledMDP, Comparison], crew_page: str) -> None:
    reader = read(crew_page)
    assert ("html", "lang", "en") in reader.attributes
    assert reader.tags.count("title") == reader.tags.count("h1") == 1
    assert reader.tags.count("svg") == reader.tags.count("figcaption") >= 2
    labels = [value for tag, name, value in reader.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == reader.tags.count("svg")
    assert all(crew[1].rows[0].policy in (label or "") for label in labels)
    scopes = [value for tag, name, value in reader.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == reader.tags.count("th")
    assert set(scopes) == {"row", "col"}


def test_ids_are_used_once_and_links_find_them(crew_page: str) -> None:
    ids = read(crew_page).values_of("id")
    assert len(set(ids)) == len(ids) > 0
    targets = re.findall(r'href="#([^"]*)"', crew_page) + re.findall(r"url\(#([^)]*)\)", crew_page)
    assert targets
    assert set(targets) <= set(ids)


def test_every_policy_is_reported_with_its_summary(crew: tuple[CoupledMDP, Comparison], crew_page: str) -> None:
    text = plain(crew_page)
    for row in crew[1].rows:
        entry = find_policy(row.policy)
        assert f"{row.policy} {entry.abbreviation}{entry.summary}" in text
    assert mentions("20 episodes", "20 steps")(text)


def test_the_same_data_give_the_same_bytes(crew: tuple[CoupledMDP, Comparison], crew_page: str) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 20, "svg.fonttype": "path", "svg.hashsalt": None}):
        assert comparison_page(crew[1]) == crew_page
        assert mpl.rcParams["font.size"] == 20


def test_pages_are_drawn_without_pyplot(crew: tuple[CoupledMDP, Comparison], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a state of its own, and opens windows."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # an import of it is an error
    assert "<svg" in comparison_page(crew[1])


@pytest.mark.filterwarnings("error")
def test_text_from_outside_is_escaped() -> None:
    pump = Arm(np.ones((1, 2, 1)), [[1.0, 2.0]], [[0.0], [1.0]], name=EVIL, states=(EVIL,), actions=(EVIL, "漢字"))
    other = Arm(np.ones((2, 2, 2)) / 2, np.zeros((2, 2)), [[0.0], [1.0]])
    problem = CoupledMDP([pump, other], budget=np.ones(1), discount=0.5)
    found = {EVIL: made_up(problem, np.array([2.0, 1.0])), "$x$ 漢字": made_up(problem, np.array([3.0, 0.5]))}
    comparison = replace(side_by_side(problem, found, 5.0, EVIL), left_out={EVIL: EVIL})
    page = comparison_page(comparison, title=EVIL, command=EVIL)
    reader = read(page)
    assert "script" not in reader.tags
    assert "img" not in reader.tags
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    told = "".join(reader.text)
    assert told.count(EVIL) >= 8  # heading, title, sentences, table, left out twice, states and actions, command
    assert "$x$ 漢字" in told


def test_the_bound_is_on_top_and_in_the_figure(machines: tuple[CoupledMDP, Comparison]) -> None:
    _, comparison = machines
    best = comparison.rows[0].evaluation.welfare
    optimum = plain(comparison_page(replace(comparison, bound_name="optimum")))
    assert "optimumno policy can have more" in optimum
    assert f"{100 * (20 - best) / 20:.2f} % below the optimum of 20.00" in optimum
    assert "optimum 20.00" in optimum
    other = plain(comparison_page(replace(comparison, bound_name="fluid")))
    assert "fluidfluid: no policy can have more" in other
    assert mentions("20.00")(other)
    assert "Optimum" not in other
    without = plain(comparison_page(replace(comparison, upper_bound=None)))
    assert "bound" not in without.lower()
    assert "optimum" not in without.lower()


def test_a_bound_that_is_met_and_one_below_zero() -> None:
    problem = different_arms(2)
    values = np.array([-3.0, -1.0])
    welfare = float(as_welfare("gini:2", 2)(values))
    met = side_by_side(problem, {"a": made_up(problem, values)}, welfare, "optimum")
    assert mentions("optimum")(plain(comparison_page(met)))
    below = plain(comparison_page(replace(met, upper_bound=-1.0)))
    assert "below bound" in below
    assert f"{-1 - welfare:.3f} below the optimum of −1.000" in below
    zero = plain(comparison_page(replace(met, upper_bound=0.0)))
    assert f"{-welfare:.3f} below the optimum of 0" in zero


def test_a_simulation_above_the_optimum_is_not_a_contradiction() -> None:
    problem = different_arms(2)
    found = made_up(problem, np.array([1.0, 2.0]), exact=False, welfare_stderr=0.1, num_episodes=9, horizon=9)
    comparison = side_by_side(problem, {"a": found}, found.welfare - 0.01, "optimum")
    assert mentions("optimum")(plain(comparison_page(comparison)))


def test_who_is_worst_off_and_who_is_unfair() -> None:
    problem = different_arms(3)
    fair = made_up(problem, np.array([3.0, 2.0, 2.5]))
    unfair = made_up(problem, np.array([0.5, 1.0, 6.0]))
    text = said(side_by_side(problem, {"even": fair, "odd": unfair}))
    assert "Two policies were compared on three arms that share one resource." in text
    assert mentions("even", "arm 1", "2.000", "2.500")(text)
    assert f"is odd (Gini coefficient {unfair.gini_coefficient:.3f}; worst-off arm 0.5000)" in text
    assert f"is even (Gini coefficient {fair.gini_coefficient:.3f}; worst-off arm 2.000)" in text


def test_ties_are_reported_exactly_and_within_error() -> None:
    problem = different_arms(2)
    values = np.array([1.0, 2.0])
    noisy = made_up(problem, values - 0.01, exact=False, welfare_stderr=0.1, num_episodes=9, horizon=9)
    rows = {"a": made_up(problem, values), "b": made_up(problem, values), "c": noisy}
    text = said(side_by_side(problem, rows))
    assert "Exactly as good: b." in text
    assert "error of the simulation: c." in text


def test_equal_arms_need_no_figure_of_their_spread(machines: tuple[CoupledMDP, Comparison]) -> None:
    _, comparison = machines
    assert lorenz_rows(comparison.rows) == []
    page = comparison_page(comparison)
    assert read(page).tags.count("svg") == 1
    assert "Every policy gives each arm the same value" in plain(page)


def test_lorenz_curves_are_of_the_best_the_most_equal_and_the_most_unequal() -> None:
    problem = different_arms(2)
    values = {"best": (5.0, 9.0), "equal": (4.0, 4.0), "odd": (1.0, 9.0), "other": (3.0, 4.0)}
    comparison = side_by_side(problem, {name: made_up(problem, np.array(pair)) for name, pair in values.items()})
    assert [row.policy for row in lorenz_rows(comparison.rows)] == ["best", "equal", "odd"]
    negative = side_by_side(problem, {"a": made_up(problem, np.array([-1.0, 9.0]))})
    assert lorenz_rows(negative.rows) == []


def test_values_by_type_of_a_policy_that_distinguishes_arms() -> None:
    problem = crew_maintenance(num_arms=4, num_states=2, num_types=2)
    values = np.array([1.0, 3.0, 7.0, 9.0])
    assert values_by_type(made_up(problem, values), problem).tolist() == [2.0, 8.0]


def test_one_arm_and_one_policy() -> None:
    problem = different_arms(1)
    page = comparison_page(side_by_side(problem, {"only": made_up(problem, np.array([2.0]))}))
    text = plain(page)
    assert mentions("2.000")(text)
    assert "Values of the arms" not in text


def test_no_policy_at_all() -> None:
    problem = different_arms(2)
    comparison = replace(side_by_side(problem, {}), left_out={"whittle": "it needs one resource"})
    text = plain(comparison_page(comparison))
    assert mentions("2 arms")(text)
    assert mentions("whittle")(text)


def test_the_use_of_three_resources_is_listed() -> None:
    problem = different_arms(2, num_resources=3)
    used = np.array([0.125, 0.25, 1.0])
    page = comparison_page(side_by_side(problem, {"a": made_up(problem, np.ones(2), budget_used=used)}))
    assert mentions("12.5 %", "25.0 %", "100.0 %")(plain(page))


def test_a_single_episode_has_no_error_bar() -> None:
    problem = different_arms(2)
    one = made_up(problem, np.array([1.0, 2.0]), exact=False, welfare_stderr=np.inf, num_episodes=1, horizon=9)
    page = plain(comparison_page(side_by_side(problem, {"a": one})))
    assert "inf" not in page.split() and "nan" not in page.split()


@pytest.mark.slow
def test_a_thousand_different_arms() -> None:
    problem = different_arms(1000, name="pump")
    values = np.random.default_rng(0).uniform(1, 9, (2, 1000))
    rows = {"a": made_up(problem, values[0]), "b": made_up(problem, values[1], exact=False, num_episodes=5, horizon=7)}
    page = comparison_page(side_by_side(problem, rows))
    assert len(page) < 200_000
    assert "pump (type 19)1" in plain(page) and "and 980 more" in plain(page)


def test_a_billion_arms_are_reported_by_type() -> None:
    problem = crew_maintenance(num_arms=10**9, num_types=3)
    found = made_up(problem, np.array([1.0, 5.0, 9.0]), by_type=True)
    text = plain(comparison_page(side_by_side(problem, {"a": found})))
    assert mentions("333,333,334", "type 1")(text)


def test_what_a_simulator_cannot_tell_is_said_in_its_own_words() -> None:
    def sample(states: Ints, actions: Ints, rng: np.random.Generator) -> tuple[Ints, Floats]:
        return states, actions * 1.0

    def first(number: int, rng: np.random.Generator) -> Ints:
        return np.zeros(number, dtype=np.int64)

    usage = np.array([[0.0, 0.0], [1.0, 1.0]])
    world = Simulator(sample, first, usage, num_states=1, num_arms=2, budget=np.ones(2), discount=0.9)
    found = compare(world, ["random", "never-act"], num_episodes=4, horizon=5, rng=0)
    text = plain(comparison_page(found))
    assert "cannot be bounded" in text and "Long run" not in text
    assert "No upper bound: " in text and "Left out" not in text


def test_it_is_written_wholly_or_not_at_all(
    tmp_path: Path, machines: tuple[CoupledMDP, Comparison], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, comparison = machines
    path = tmp_path / "report.html"
    write_page(comparison_report(comparison, title="Ümlaut"), path)
    before = path.read_text(encoding="utf-8")
    assert before == comparison_page(comparison, title="Ümlaut")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_page(comparison_report(comparison, title="other"), path)
    assert path.read_text(encoding="utf-8") == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(InvalidInputError, check=mentions("report.html", "absent")):
        write_page(comparison_report(comparison), tmp_path / "absent" / "report.html")


def test_seed_and_command_are_reported_only_if_given(machines: tuple[CoupledMDP, Comparison]) -> None:
    given = plain(comparison_page(machines[1], command="evenhand compare x", seed=7))
    assert mentions("command", "evenhand", "compare")(given)
    assert mentions("seed", "seed 7")(given)
    absent = plain(comparison_page(machines[1]))
    assert "by the command" not in absent
    assert "seed" not in absent


def test_importing_the_report_imports_neither_matplotlib_nor_jinja() -> None:
    code = "import sys, evenhand.report.results; sys.exit(bool({'matplotlib', 'jinja2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_notes_end_in_one_full_stop() -> None:
    problem = different_arms(2)
    left = {"whittle": "it needs one resource. Use fluid.", "cp-drl": "it is for identical arms"}
    comparison = replace(side_by_side(problem, {"a": made_up(problem, np.ones(2))}), left_out=left)
    text = plain(comparison_page(comparison))
    assert "Left out: whittle: it needs one resource. Use fluid.Left out: cp-drl: it is for identical arms." in text
    assert ".." not in text
