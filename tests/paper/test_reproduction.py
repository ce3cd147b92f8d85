"""The reproduction: targets expand, cells run once, tables and claims follow from the records."""

import json
import tomllib

import pytest

from paper import run as running
from paper.claims import check_claims
from paper.report import read_report, write_report
from paper.run import compute, read_records, run
from paper.tables import Entry, Table, latex, lines, markdown, target_tables
from paper.targets import FOLDER, Cell, Target, choose, read_targets

from ..conftest import mentions

RECORDS = FOLDER.parent / "records"


def target(**changes):
    cells = tuple(
        Cell("OFT", f"N={size}", "named-policy", {**problem(size), "policy": "oldest-first", "num_episodes": 20})
        for size in (2, 3)
    ) + tuple(Cell("OPT", f"N={size}", "optimum", problem(size)) for size in (2, 3))
    facts = {"name": "small", "title": "Two sizes", "source": "a test", "about": "", "curves": False, "readings": {}}
    published = {("welfare", "OPT", "N=2"): (14.19, None)}
    return Target(**{**facts, "published": published, "full": cells, "quick": cells[:1], **changes})


def problem(size):
    return {"problem": "machine-replacement", "parameters": {"num_arms": size}}


@pytest.fixture
def in_process(monkeypatch):
    """Cells computed in this process, counted."""
    computed = []

    def run_cells(cells, jobs):
        for cell in cells:
            computed.append(cell)
            yield cell, *compute(cell.kind, cell.settings)

    monkeypatch.setattr(running, "_run_cells", run_cells)
    return computed


class TestTargets:
    def test_every_file_expands_to_cells_with_known_kinds(self):
        for one in read_targets().values():
            assert 0 < len(one.quick) <= len(one.full)
            assert {cell.kind for cell in one.full} <= set(running.KINDS)

    def test_references_are_replaced(self):
        table = read_targets()["table-1"]
        cell = next(cell for cell in table.full if cell.method == "CP-DRL" and cell.instance == "N=4")
        assert cell.settings["parameters"]["num_arms"] == 4
        assert cell.settings["steps"] == tomllib.loads((FOLDER / "table-1.toml").read_text())["sizes"]["steps"]
        assert "$" not in json.dumps([one.settings for one in table.full])

    def test_names_are_chosen_by_their_beginning(self):
        targets = read_targets()
        assert [one.name for one in choose(targets, ["figure-2"])] == ["figure-2a", "figure-2b", "figure-2c"]
        assert len(choose(targets, ["all"])) == len(targets)
        with pytest.raises(KeyError, check=mentions("nonsense")):
            choose(targets, ["nonsense"])


class TestRun:
    def test_a_run_gives_records_tables_and_a_report(self, in_process, tmp_path):
        small = target()
        assert run([small], tmp_path, False, 1, lambda line: None) == []
        (table,) = target_tables(small, read_records(tmp_path), False)
        assert table.entries["N = 2", "OPT"].ours == pytest.approx(14.1859, abs=1e-4)
        assert table.entries["N = 2", "OFT"].ours == pytest.approx(10.33, abs=5e-3)
        page = write_report(tmp_path, [small]).read_text()
        assert "14.19" in page
        assert (tmp_path / "csv" / "small.csv").read_text().count("\n") == 5
        assert "14.19" in (tmp_path / "tables.tex").read_text()

    def test_a_finished_cell_is_not_run_again(self, in_process, tmp_path):
        run([target()], tmp_path, False, 1, lambda line: None)
        before = (tmp_path / "records.jsonl").read_bytes()
        in_process.clear()
        run([target()], tmp_path, False, 1, lambda line: None)
        assert in_process == []
        assert (tmp_path / "records.jsonl").read_bytes() == before

    def test_a_record_that_was_cut_off_is_run_again(self, in_process, tmp_path):
        run([target()], tmp_path, False, 1, lambda line: None)
        file = tmp_path / "records.jsonl"
        file.write_text(file.read_text()[:-20])
        in_process.clear()
        run([target()], tmp_path, False, 1, lambda line: None)
        assert len(in_process) == 1
        assert len(read_records(tmp_path)) == 4

    def test_changed_code_runs_again(self, in_process, tmp_path, monkeypatch):
        run([target()], tmp_path, True, 1, lambda line: None)
        monkeypatch.setattr(running, "code_digest", lambda: "another")
        run([target()], tmp_path, True, 1, lambda line: None)
        assert len(in_process) == 2

    def test_a_failing_cell_leaves_the_others(self, tmp_path):
        wrong = Cell("OPT", "N=2", "optimum", {**problem(2), "method": "nonsense"})
        cells = (wrong, Cell("OPT", "N=3", "optimum", problem(3)))
        failures = run([target(full=cells)], tmp_path, False, 1, lambda line: None)
        assert [cell for cell, _ in failures] == [wrong]
        assert len(read_records(tmp_path)) == 1


class TestTables:
    def test_deviations_differences_and_missing_figures_are_shown(self):
        table = Table("welfare", "caption")
        table.entries["N = 2", "a"] = Entry(paper=1.0, values=[1.1, 1.3], plug_in=[1.05])
        table.entries["N = 2", "b"] = Entry(missing="does not apply")
        assert lines(table) == [
            ["", "", "a", "b"],
            ["N = 2", "paper", "1.00", ""],
            ["", "ours", "1.20 ±\u00a00.14", "–"],
            ["", "ours (plug-in)", "1.05", ""],
            ["", "ours − paper", "+0.20", ""],
        ]
        assert mentions("=", 2, "apply")(markdown(table))
        assert r"1.20 $\pm$~0.14" in latex(table)

    def test_simulated_figures_are_marked(self):
        table = Table("welfare", "caption")
        table.entries["N = 2", "a"] = Entry(values=[1.0], exact=False, stderr=0.02)
        assert "≈" in lines(table)[1][1]
        assert "0.02" in markdown(table)


class TestClaims:
    def test_verdicts_of_the_committed_records(self):
        claims = read_report(RECORDS, list(read_targets().values())).claims
        verdicts = {claim.title.split(":")[0]: claim.verdict for claim in claims if not claim.is_finding}
        assert verdicts["The optimal welfare (column OPT) is as published, to two decimals"] == "holds"
        assert verdicts["The Whittle index policy does not reach the optimum on Exponential-RCCC"] == "does not hold"
        assert verdicts["The share of machines that can be replaced has little impact on times"] == "holds in part"
        assert not [claim for claim in claims if claim.verdict == "not run"]

    def test_a_claim_without_its_target_is_not_run(self):
        assert {claim.verdict for claim in check_claims({})} == {"not run"}

    def test_a_changed_figure_changes_the_verdict(self):
        targets = list(read_targets().values())
        report = read_report(RECORDS, targets)
        tables = {name: {table.name: table for table in own} for name, own in report.tables.items()}
        tables["table-1"]["welfare"].entries["N = 2", "OPT"].values = [15.0]
        assert check_claims(tables)[0].verdict == "holds in part"
