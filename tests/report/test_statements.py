"""Claims as data: what is refused when they are read, and what each kind of measure finds, by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InvalidInput
from evenhand.experiments.spec import read_targets
from evenhand.report.reproduction import read_report, read_statements
from evenhand.report.reproduction.claims import Claim, bears_out, judge
from evenhand.report.reproduction.measures import KINDS, Item, Scene
from evenhand.report.reproduction.sheets import Entry, Sheet
from evenhand.report.reproduction.statements import Statements

PAPER = Path(__file__).parents[2] / "paper"

WORDS = """
title = "A paper"
authors = "Somebody"
about = "Fairness."
terms = { welfare = "One number." }
"""

CLAIM = """
[names]
table-1 = "Left"

[[claims]]
title = "A is close to B"
targets = ["table-1"]
measure = { kind = "loss", of = "A", against = "B", at_most = 2.0 }
also.paper = { kind = "loss", of = "A", against = "B", whose = "paper" }
evidence = [
  "{in_cells}, at most {largest:percent} ({largest.at})",
  ", theirs {paper.largest:percent}",
  { holds = "!", fails = "?" },
]
"""


def write(folder: Path, claims: str, words: str = WORDS) -> Path:
    (folder / "report").mkdir(parents=True, exist_ok=True)
    (folder / "report" / "claims.toml").write_text(claims, encoding="utf-8")
    (folder / "report" / "words.toml").write_text(words, encoding="utf-8")
    return folder


def sheet_of(figures: dict[str, dict[int, float | None]], paper: dict[str, dict[int, float]] | None = None) -> Sheet:
    """A sheet with a row a number of arms and a column a method."""
    made = [
        Entry(
            (("num_arms", size),),
            column,
            (paper or {}).get(column, {}).get(size),
            values=() if ours is None else (ours,),
        )
        for column, by_size in figures.items()
        for size, ours in by_size.items()
    ]
    return Sheet("welfare", "caption", tuple(made))


def measured(kind: str, scene: Scene, **settings: Any) -> dict[str, float]:
    return {item.at: item.value for item in KINDS[kind].measure(scene, **settings).items}


def judged(folder: Path, text: str, *sheets: Sheet) -> Claim:
    statements = read_statements(write(folder, text))
    return judge(statements.claims[0], {"table-1": sheets}, statements.names)


# Reading


def test_the_shipped_statements_are_read_and_use_every_kind() -> None:
    found = read_statements(PAPER)
    assert (len(found.claims), len(found.findings)) == (18, 6)
    every = [*found.claims, *found.findings]
    assert {measure.kind for each in every for measure in (each.measure, *each.also.values())} == KINDS.keys()
    known = read_targets(PAPER).keys()
    assert {target for each in every for target in each.targets} <= known
    assert found.names.keys() <= known
    assert len({each.title for each in every}) == 24


def test_a_folder_without_statements_has_none(tmp_path: Path) -> None:
    assert read_statements(tmp_path) == Statements()


FAULTS = [
    ('measure = { kind = "loss"', 'measure = { kind = "los"', "claims[0].measure.kind: ", "'loss'"),
    (', against = "B", at_most', ", at_most", "claims[0].measure: ", "against is missing: loss needs it"),
    ('of = "A", against = "B", at_most', 'off = "A", against = "B", at_most', "claims[0].measure.off: ", "'of'"),
    (", at_most = 2.0", "", "claims[0].measure: ", "requires nothing"),
    ("at_most = 2.0", 'at_most = "2"', "claims[0].measure.at_most: ", "expected a number, got '2'"),
    ("at_most = 2.0", "falling = false", "claims[0].measure.falling: ", "expected true, got False"),
    ('whose = "paper"', 'whose = "them"', "claims[0].also.paper.whose: ", "does not fit loss: 'them'"),
    ('of = "A", against = "B", at', 'of = 3, against = "B", at', "claims[0].measure.of: ", "does not fit loss: 3"),
    ("{largest.at}", "{largest.when}", "claims[0].evidence: ", "largest.at, "),
    ("{largest:percent}", "{largest:percents}", "claims[0].evidence: ", "'percent'"),
    ("{paper.largest", "{paper.in_cells}{paper.largest", "claims[0].evidence: ", "'paper.in_cells'"),
    ("{paper.largest", "{paper.limit}{paper.largest", "claims[0].evidence: ", "'paper.limit'"),
    ("{paper.largest", "{paper.each}{paper.largest", "claims[0].evidence: ", "'paper.each'"),
    ("{paper.largest", "{papers.largest", "claims[0].evidence: ", "'paper.largest'"),
    ("{in_cells}", "{in_cells", "claims[0].evidence: ", "unexpected '{'"),
    ('fails = "?"', 'fail = "?"', "claims[0].evidence[2]: ", "one where it holds and one where it fails"),
    ('targets = ["table-1"]', 'targets = "table-1"', "claims[0].targets: ", "expected a list of texts"),
    ('title = "A is', 'titel = "A is', "claims[0].titel: ", "'title'"),
    ("[[claims]]", "[[claim]]", "claim: ", "'claims'"),
]


@pytest.mark.parametrize(("old", "new", "place", "told"), FAULTS, ids=[fault[1] for fault in FAULTS])
def test_a_fault_is_told_with_its_place(old: str, new: str, place: str, told: str, tmp_path: Path) -> None:
    assert CLAIM.count(old) == 1
    with pytest.raises(InvalidInput) as refusal:
        read_statements(write(tmp_path, CLAIM.replace(old, new)))
    lines = [line for line in str(refusal.value).splitlines() if line.startswith(f"  {place}")]
    assert any(told in line for line in lines), str(refusal.value)


def test_faults_of_the_words_and_of_toml_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="authors: expected a text, got nothing"):
        read_statements(write(tmp_path, CLAIM, WORDS.replace("authors", "author")))
    with pytest.raises(InvalidInput, match=r"claims\.toml: 1 fault"):
        read_statements(write(tmp_path, "[names"))


# Judging


def test_a_claim_is_judged_place_by_place_and_told_in_its_words(tmp_path: Path) -> None:
    ours = {"A": {2: 99.0, 3: 97.0, 4: None}, "B": {2: 100.0, 3: 100.0, 4: 100.0}}
    found = judged(tmp_path, CLAIM, sheet_of(ours))
    assert (found.verdict, found.evidence) == (
        "holds in part",
        "in 1 of 2 cells that were run (of 3), at most 3.0\u00a0% (Left, N = 3)?",
    )
    paper = {"A": {2: 95.0, 3: 80.0}, "B": {2: 100.0, 3: 100.0}}
    better = judged(tmp_path, CLAIM, sheet_of({"A": {2: 99.0}, "B": {2: 100.0}}, paper))
    assert (better.verdict, better.evidence) == (
        "holds",
        "in the one cell, at most 1.0\u00a0% (Left, N = 2), theirs 5.0\u00a0%!",
    )
    absent = judged(tmp_path, CLAIM, sheet_of({"A": {2: 99.0}}))
    assert (absent.verdict, absent.evidence) == ("not run", "This needs table-1.")


@pytest.mark.parametrize(
    ("required", "values", "good"),
    [
        ({"at_least": 1.0}, [0.9, 1.0, 1.1], [False, True, True]),
        ({"more_than": 1.0}, [0.9, 1.0, 1.1], [False, False, True]),
        ({"at_most": 1.0}, [0.9, 1.0, 1.1], [True, True, False]),
        ({"less_than": 1.0}, [0.9, 1.0, 1.1], [True, False, False]),
        ({"at_least": -1.0, "at_most": 1.0}, [-2.0, 0.0, 2.0], [False, True, False]),
        ({"falling": True}, [3.0, 2.0, 1.0], [True]),
        ({"falling": True}, [3.0, 3.0, 1.0], [False]),
        ({"lowest": "1"}, [3.0, 2.0, 4.0], [True]),
        ({"lowest": "0"}, [3.0, 2.0, 4.0], [False]),
        ({"lowest": "9"}, [3.0, 2.0, 4.0], [False]),
    ],
)
def test_what_is_required(required: dict[str, Any], values: list[float], good: list[bool]) -> None:
    assert bears_out([Item(str(index), value) for index, value in enumerate(values)], required) == good


@given(st.floats(-1e3, 1e3), st.sampled_from(["at_least", "more_than", "at_most", "less_than"]))
def test_nothing_turns_on_a_last_bit(limit: float, name: str) -> None:
    values = [limit, limit + 1e-12, limit - 1e-12]
    verdicts = bears_out([Item("", value) for value in values], {name: limit})
    assert set(verdicts) == {name in ("at_least", "at_most")}


# Measures, by hand


@pytest.fixture
def scene() -> Scene:
    ours = {"A": {2: 8.0, 3: 6.0}, "B": {2: 10.0, 3: 5.0}, "C": {2: 9.0, 3: None}}
    return Scene({"table-1": [sheet_of(ours, {"A": {2: 7.0, 3: 6.5}, "B": {2: 11.0}})]}, {})


def test_methods_against_each_other(scene: Scene) -> None:
    assert measured("loss", scene, of="A", against="B") == pytest.approx({"N = 2": 20.0, "N = 3": -20.0})
    assert measured("excess", scene, of="A", against="B") == pytest.approx({"N = 2": -20.0, "N = 3": 20.0})
    assert measured("loss", scene, of=["A", "C"], against="B") == pytest.approx({"N = 2": 10.0, "N = 3": -20.0})
    assert measured("loss", scene, of="A", against="B", whose="paper") == pytest.approx({"N = 2": 400 / 11})
    assert measured("lead", scene, of="A", over="C") == {"N = 2": -1.0}
    assert measured("lead", scene, of="A", over=["B", "C"]) == {"over B, N = 2": -2.0, "over B, N = 3": 1.0}


def test_ours_against_the_published(scene: Scene) -> None:
    assert measured("above_published", scene, columns=["A"]) == {"N = 2": 1.0, "N = 3": -0.5}
    assert measured("off_published", scene, columns=["A"]) == {"N = 2": 1.0, "N = 3": 0.5}
    every = KINDS["off_published"].measure(scene)
    assert [(item.details["column"], item.value) for item in every.items] == [("A", 1.0), ("A", 0.5), ("B", 1.0)]
    assert every.total == 3


def test_protocol_is_ours_as_the_paper_measures() -> None:
    entry = Entry((("num_arms", 2),), "A", paper=7.0, values=(8.0,), plug_in=(7.25, 7.75))
    scene = Scene({"table-1": [Sheet("welfare", "", (entry,))]}, {"table-1": "Left"})
    assert measured("above_published", scene, columns=["A"], whose="protocol") == {"Left, N = 2": 0.5}
    bare = Scene({"table-1": [Sheet("welfare", "", (replace(entry, plug_in=()),))]}, {})
    assert measured("above_published", bare, columns=["A"], whose="protocol") == {"N = 2": 1.0}


def test_spread_is_the_mean_over_places_where_all_have_one() -> None:
    def entry(size: int, column: str, *values: float) -> Entry:
        return Entry((("num_arms", size),), column, values=values)

    made = (entry(2, "A", 1, 3), entry(2, "B", 0, 0), entry(3, "A", 0, 4), entry(3, "B", 1, 2), entry(4, "A", 0, 100))
    scene = Scene({"table-1": [Sheet("welfare", "", made)]}, {})
    root = 2**0.5
    assert measured("spread", scene, columns=["A", "B"]) == pytest.approx({"A": 1.5 * root, "B": root / 4})


def test_growth_is_a_power() -> None:
    sheet = replace(sheet_of({"A": {10: 2.0, 40: 9.0, 100: 200.0}, "B": {10: 3.0}}), name="seconds")
    scene = Scene({"figure-2b": [sheet], "figure-2c": [replace(sheet, entries=())]}, {})
    (item,) = KINDS["growth"].measure(scene, sheet="seconds", along="num_arms").items
    assert (item.at, item.value) == ("A", pytest.approx(2.0))
    assert item.details == {"factor": 100.0, "from": 10.0, "to": 100.0, "proportional": 10.0}


def test_unevenness_is_over_all_sheets() -> None:
    shares = [Entry((("budget_share", share),), "A", values=(value,)) for share, value in ((0.1, 2.0), (0.5, 5.0))]
    sheets = [sheet_of({"A": {10: 2.0, 20: 1.0}}), Sheet("shares", "", tuple(shares))]
    scene = Scene({"figure-2b": sheets, "figure-2c": [sheet_of({"A": {10: 3.0}})]}, {})
    assert measured("unevenness", scene) == {"A, N = 10": 1.5, "A, all budgets": 2.5}


def test_ratio_is_of_two_rows() -> None:
    def totals(**by_size: float) -> Sheet:
        made = [Entry((("quantity", "Total"),), size, values=(value,)) for size, value in by_size.items()]
        return Sheet("times", "", tuple(made))

    scene = Scene({"table-5": [totals(a=6.0, b=8.0)], "table-6": [totals(a=3.0, c=1.0)]}, {})
    lines = [{"target": target, "sheet": "times", "row": "Total"} for target in ("table-5", "table-6")]
    (item,) = KINDS["ratio"].measure(scene, of=lines[0], over=lines[1]).items
    assert item == Item("a", 2.0, {"of": 6.0, "over": 3.0})


def test_change_is_the_lesser_of_gain_and_price() -> None:
    figures = {("fair", "worst"): 5.0, ("fair", "mean"): 7.0, ("blind", "worst"): 2.0, ("blind", "mean"): 8.0}
    made = [Entry((("idea", row),), column, values=(value,)) for (row, column), value in figures.items()]
    scene = Scene({"x": [Sheet("outcomes-1", "Six people: the best", tuple(made))]}, {})
    settings = {"before": "blind", "after": "fair", "rises": "worst", "falls": "mean"}
    assert measured("change", scene, **settings) == {"Six people": 1.0}
    assert measured("change", scene, **settings | {"before": "absent"}) == {}


# The committed records


def test_verdicts_of_the_committed_records() -> None:
    """As judged before claims became data."""
    report = read_report(PAPER / "records", list(read_targets(PAPER).values()), read_statements(PAPER))
    told = {"holds": "+", "holds in part": "/", "does not hold": "-", "not run": "?"}
    assert "".join(told[claim.verdict] for claim in report.claims) == "+++--+++++" + "+--/" + "++++"
    assert "".join(told[claim.verdict] for claim in report.findings) == "+//+++"
