"""evenhand import: from messy tables to a clean log, on the command line."""

import pytest

from ..fitting.cleaning.clinic import messy_clinic


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clinic.csv").write_text(messy_clinic(num_arms=30).text)
    return tmp_path


def test_the_first_run_writes_rules_and_nothing_else(evenhand, clinic):
    found = evenhand("import", "clinic.csv", "--out", "clean.csv", "--json").json
    assert found["written"] is None
    assert found["rules"] == "clean.rules.toml"
    assert {finding["kind"] for finding in found["findings"]} >= {"spelling", "off-grid", "duplicates"}
    assert sorted(file.name for file in clinic.iterdir()) == ["clean.rules.toml", "clinic.csv"]


def test_rules_are_applied_and_never_replaced_silently(evenhand, clinic):
    evenhand("import", "clinic.csv", "--out", "clean.csv", "--json").json  # noqa: B018  checks the exit code
    rules = (clinic / "clean.rules.toml").read_text()
    assert "--rules" in evenhand("import", "clinic.csv", "--out", "clean.csv").refusal
    assert (clinic / "clean.rules.toml").read_text() == rules
    found = evenhand("import", "clinic.csv", "--out", "clean.csv", "--rules", "clean.rules.toml", "--json").json
    assert found["written"] == "clean.csv"
    assert len((clinic / "clean.csv").read_text().splitlines()) == found["rows"] + 1


def test_accepted_proposals_are_what_the_rules_do(evenhand, clinic):
    evenhand("import", "clinic.csv", "--out", "one.csv", "--accept", "--json").json  # noqa: B018
    evenhand("import", "clinic.csv", "--out", "two.csv", "--rules", "one.rules.toml", "--json").json  # noqa: B018
    assert (clinic / "one.csv").read_text() == (clinic / "two.csv").read_text()


def test_a_clean_table_is_written_at_once(evenhand, clinic):
    (clinic / "ok.csv").write_text("id,week,state\na,1,x\na,2,y\nb,1,x\n")
    assert evenhand("import", "ok.csv", "--out", "clean.csv", "--json").json["written"] == "clean.csv"


@pytest.mark.parametrize(
    "words",
    [
        ("nothing.csv", "--out", "clean.csv"),
        ("clinic.csv", "--out", "no/such/folder.csv"),
        ("clinic.csv", "--out", "clean.csv", "--arm", "Nobody"),
        ("clinic.csv", "--out", "clean.csv", "--rules", "nothing.toml"),
        ("clinic.csv", "--out", "clinic.csv", "--accept"),
        ("clinic.csv", "--out", "clean.csv", "--rules", "clinic.csv", "--accept"),
        ("clinic.csv", "--out", "clean.xlsx", "--accept"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(evenhand, clinic, words):
    evenhand("import", *words).refusal  # noqa: B018
    assert [file.name for file in clinic.iterdir()] == ["clinic.csv"]


def test_an_excel_file_that_stands_for_a_huge_table_is_refused(evenhand, clinic):
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(["id", "week", "state"])
    book.active["XFD1048576"] = "x"
    book.save("far.xlsx")
    evenhand("import", "far.xlsx", "--out", "clean.csv").refusal  # noqa: B018
    assert not (clinic / "clean.csv").exists()
