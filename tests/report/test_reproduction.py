"""The reproduction's page tells every cell, judges by the numbers, and stands alone; from made-up records."""

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from evenhand.errors import InvalidInput
from evenhand.experiments.records import identify
from evenhand.experiments.spec import Planned, Target, read_targets
from evenhand.report.reproduction import draw_report, read_report, read_statements, write_reproduction
from evenhand.report.reproduction.claims import Claim
from evenhand.report.reproduction.formats import csv_text, latex, markdown_sheet
from evenhand.report.reproduction.headline import headline_table
from evenhand.report.reproduction.page import report_page, view_sheet
from evenhand.report.reproduction.points import place_of
from evenhand.report.reproduction.report import Report
from evenhand.report.reproduction.sheets import Entry, Sheet
from evenhand.report.reproduction.writing import tables_latex, tables_markdown

from ..conftest import one_in

PAPER = Path(__file__).parents[2] / "paper"
STATEMENTS = read_statements(PAPER)
CODE = "0123456789abcdef"
EVIL = '<script>alert("x")</script> & 50% of $x_1$ | \'"><img src=x onerror=y>'
VOID = {"meta", "br", "img", "link", "hr", "input"}

OPT = {
    "exponential": {2: 14.1859, 3: 14.0793, 4: 13.9430, 5: 13.7670},
    "quadratic": {2: 16.1725, 3: 16.0969, 4: 16.0092, 5: 15.9101},
}
TRUNCATED = {
    "exponential": {2: 14.08, 3: 13.76, 4: 13.28, 5: 12.49},
    "quadratic": {2: 16.17, 3: 16.09, 4: 16.0, 5: 15.86},
}
LOSSES = {
    "CP-DRL": 0.002,
    "CP-DRL(MT)": 0.004,
    "CP-DRL(SC)": 0.003,
    "PPO": 0.002,
    "V-DRL": 0.3,
    "SAC": 0.05,
    "TD3": 0.5,
    "OFT": 0.4,
    "MYP": 0.7,
    "EQR": 2.0,
    "RDM": 4.0,
    "WIP exact": 0.00001,
    "WIP": 0.4,
}


@dataclass
class Lab:
    """Makes records up. A test changes `losses` (welfare lost against the optimum, by method), or a record."""

    losses: dict[str, float] = field(default_factory=lambda: dict(LOSSES))
    shift: float = 0.0
    linear: bool = False
    slow_count_program: bool = False
    wide_bound: bool = False
    price: float = 0.0
    noise: dict[str, float] = field(default_factory=lambda: {"SAC": 0.01, "TD3": 0.1})
    change: Callable[[Planned, dict[str, Any]], dict[str, Any] | None] = lambda planned, record: record

    def record(self, planned: Planned) -> dict[str, Any]:
        made = getattr(self, planned.cell.kind.replace("-", "_"))(planned)
        return {
            "schema": 1,
            "id": identify(planned.cell, CODE),
            "kind": planned.cell.kind,
            "settings": planned.cell.settings,
            "code": CODE,
            "status": "done",
            "error": None,
            "values": made[0],
            "timings": made[1],
            "seconds": 2.0,
        }

    def best(self, planned: Planned, num_arms: int) -> float:
        costs = planned.cell.settings["parameters"].get("operating_cost", "other")
        return OPT.get(costs, {}).get(num_arms, 12.0 + num_arms / 1000) + self.shift

    def worth(self, planned: Planned, num_arms: int) -> dict[str, Any]:
        costs = planned.cell.settings["parameters"].get("operating_cost", "other")
        seed = planned.seed or 0
        value = self.best(planned, num_arms) - self.losses.get(planned.method, 0.1)
        if planned.method == "WIP" and num_arms <= 5 and self.losses["WIP"] == LOSSES["WIP"]:
            value = TRUNCATED[costs][num_arms]
        value -= self.noise.get(planned.method, 0.001 if planned.cell.kind == "train" else 0.0) * (seed % 3)
        exact = planned.method != "EQR"
        played = {"plug_in": value - 0.03, "plug_in_stderr": 0.02, "mean": value, "worst": value}
        return {"welfare": value, "exact": exact, "stderr": 0.0 if exact else 0.02, **played}

    def size(self, planned: Planned) -> int:
        return int(planned.cell.settings["parameters"]["num_arms"])

    def optimum(self, planned: Planned) -> tuple[dict[str, Any], dict[str, float]]:
        best = self.best(planned, self.size(planned))
        return {"welfare": best, "upper_bound": best, "states": 9, "method": "counts"}, {"total": 0.004}

    def fluid(self, planned: Planned) -> tuple[dict[str, Any], dict[str, float]]:
        gap = self.size(planned) / 10 if self.wide_bound else 2 / self.size(planned)
        return {"upper_bound": self.best(planned, self.size(planned)) + gap}, {"total": 0.01}

    def named_policy(self, planned: Planned) -> tuple[dict[str, Any], dict[str, float]]:
        if planned.method == "whittle":
            return {"applies": False, "reason": "it needs two actions"}, {}
        shares = {"gini_coefficient": 0.1, "budget_used": [0.5]}
        values = {"applies": True, **self.worth(planned, self.size(planned)), **shares}
        return values, {"evaluate": 0.1, "simulate": 0.1}

    def train(self, planned: Planned) -> tuple[dict[str, Any], dict[str, float]]:
        sizes = planned.cell.settings["evaluate"]
        found = [{**size, **self.worth(planned, size["num_arms"])} for size in sizes]
        top = found[0]["welfare"]
        curve = [[300 * episode, top - 4 / (1 + episode / 50)] for episode in (8, 80, 240, 500, 800)]
        values = {"score": top, "exact": True, "curve": curve, "steps": 240000, "evaluations": found}
        return values, {"train": 10.0, "evaluate": 1.0}

    def timing(self, planned: Planned) -> tuple[dict[str, Any], dict[str, float]]:
        growth = self.size(planned) / 10 if self.linear else 1.0
        played = {"episodes": 5, "horizon": 300, "repeats": 3}
        return played, {"per_episode": 0.001 * growth, "per_episode_deviation": 0.0001}

    def lp(self, planned: Planned) -> tuple[dict[str, Any], dict[str, float]]:
        n, gini = self.size(planned), planned.cell.settings["program"] == "gini"
        states = 3**n if gini else (n + 2) * (n + 1) // 2
        sizes = (n * n + states, 2 * n + (n + 1) * states) if gini else (states, 4 * states)
        values = {"constraints": states, "variables": 2 * states, "paper_constraints": sizes[0]}
        slow = 9.0 if self.slow_count_program and not gini else 1.0
        stages = dict.fromkeys(("data", "build", "solve", "extract"), 1e-5 * states * slow)
        times = {**stages, "total": 4e-5 * states * slow}
        spread = {f"{name}_deviation": 1e-3 for name in times}
        values |= {"paper_variables": sizes[1], "welfare": 1.0, "upper_bound": 1.0, "repeats": 2}
        return values, {**times, **spread}

    def fairness(self, planned: Planned) -> tuple[dict[str, Any], dict[str, float]]:
        groups = [{"name": f"group {i}", "count": 2, "value": 5.0 + i} for i in (1, 2, 3)]
        fair = self.price * (planned.method == "maximin")
        outcome = {"mean": 7.0 - fair, "worst": 6.0 + fair, "gini_coefficient": 0.1, "groups": groups, "exact": True}
        measures = dict.fromkeys(planned.cell.settings["measures"], 6.5)
        solved = {"method": "counts", "welfare": 6.5, "upper_bound": 6.5, "stderr": 0.0}
        return {**outcome, **solved, "measures": measures}, {"total": 1.0}

    def write(self, folder: Path, targets: Mapping[str, Target], quick: bool = False) -> Path:
        plans = {name: target.plan(quick) for name, target in targets.items()}
        made = {}
        for planned in (planned for plan in plans.values() for planned in plan):
            record = self.change(planned, self.record(planned))
            if record is not None:
                made[record["id"]] = record
        manifest = {
            "schema": 1,
            "evenhand": "0.1",
            "code": CODE,
            "versions": {"python": "3.12", "torch": None},
            "machine": {"cpu": "A & B", "cores": 2, "memory_bytes": 2**33, "system": "Linux x86_64"},
            "command": "evenhand reproduce all",
            "quick": quick,
            "jobs": 2,
            "ended": "2026-01-01T00:00:00Z",
            "seconds": 60.0,
            "targets": {
                name: [{"id": identify(planned.cell, CODE), **planned.label} for planned in plan]
                for name, plan in plans.items()
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        lines = "".join(f"{json.dumps(record)}\n" for record in made.values())
        (folder / "records.jsonl").write_text(lines, encoding="utf-8")
        return folder


class Reader(HTMLParser):
    """Checks that tags nest, and collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
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


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def plain(page: str) -> str:
    return " ".join(" ".join(read(page).text).split()).replace("\u00a0", " ")


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return read_targets(PAPER)


@pytest.fixture(scope="module")
def whole(targets: dict[str, Target], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a full run in which all went well, with its report."""
    folder = Lab().write(tmp_path_factory.mktemp("whole"), targets)
    assert write_reproduction(folder, list(targets.values()), STATEMENTS) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def report(whole: Path, targets: dict[str, Target]) -> Report:
    """What the page of that run is made of."""
    return read_report(whole, list(targets.values()), STATEMENTS)


@pytest.fixture(scope="module")
def page(whole: Path) -> str:
    return (whole / "report.html").read_text(encoding="utf-8")


def judged(lab: Lab, folder: Path, targets: Mapping[str, Target], part: str, *names: str) -> Claim:
    """The claim whose title has these words, of a run of some targets."""
    own = {name: targets[name] for name in names}
    return claim_of(read_report(lab.write(folder, own), list(own.values()), STATEMENTS), part)


def claim_of(report: Report, part: str) -> Claim:
    found = [claim for claim in (*report.claims, *report.findings) if part in claim.title]
    assert len(found) == 1
    return found[0]


# The page


def test_the_page_stands_alone(page: str) -> None:
    reader = read(page)
    assert not {"script", "link", "img", "iframe", "object", "image", "base", "foreignobject"} & set(reader.tags)
    assert not re.search(r"https?:|@import", page)
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    links = [value or "" for _, name, value in reader.attributes if name in ("href", "xlink:href", "src")]
    assert all(link.startswith(("#", "csv/", "data:text/csv")) for link in links)
    ids = [value for _, name, value in reader.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)


def test_a_part_of_the_targets_has_no_dead_links(targets: dict[str, Target], tmp_path: Path) -> None:
    """Claims speak of targets that are not in this run."""
    folder = Lab().write(tmp_path, {"table-1": targets["table-1"]})
    path = write_reproduction(folder, [targets["table-1"]], STATEMENTS)
    reader = read(path.read_text())
    links = {value or "" for tag, name, value in reader.attributes if tag == "a" and name == "href"}
    ids = {value for _, name, value in reader.attributes if name == "id"}
    assert "#table-1" in links
    assert [link for link in links if link.startswith("#") and link[1:] not in ids] == []
    files = [link for link in links if not link.startswith(("#", "data:"))]
    assert files
    assert [link for link in files if not (folder / link).is_file()] == []
    assert "not run here" in path.read_text()


def test_on_a_phone_every_figure_stands_under_its_head(page: str) -> None:
    """There the cells of a table stand below each other, and no table is cut: `td::before` shows the head."""
    cells = re.findall(r"<td[^>]*>", page)
    assert cells
    assert all('data-head="' in cell for cell in cells)


def test_every_target_and_every_column_is_shown(page: str, targets: dict[str, Target]) -> None:
    text = plain(page)
    for name, target in targets.items():
        assert f"evenhand reproduce {name}:" in text.replace(" :", ":")
        assert " ".join(target.title.split()) in text
        assert all(" ".join(reading.split()) in text for reading in target.readings.values())
        assert f'id="{name}"' in page
    sections = re.split(r'<section id="', page)
    for name, target in targets.items():
        section = next(part for part in sections if part.startswith(f'{name}"'))
        table = plain("<p>" + section.partition(">")[2].rpartition("</section>")[0] + "</p>")
        for planned in target.full:
            assert planned.method in table
        for series in target.published:
            for value in series.values:
                shown = f"{value:.2f}" if series.quantity == "welfare" else f"{value:,.0f}"
                assert series.quantity not in ("welfare", "constraints", "variables") or shown in table
        assert "<svg" in section


def test_figures_have_labels_and_tables_have_scopes(page: str) -> None:
    reader = read(page)
    labels = [value for tag, name, value in reader.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == reader.tags.count("svg") >= 13
    assert all(labels)
    scopes = [value for tag, name, value in reader.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == reader.tags.count("th")
    assert reader.tags.count("h1") == 1


def test_the_same_records_give_the_same_bytes(whole: Path, targets: dict[str, Target]) -> None:
    own = read_report(whole, [targets["table-3"], targets["figure-2b"]], STATEMENTS)
    assert report_page(own, draw_report(own)) == report_page(own, draw_report(own))


def test_quick_runs_say_so(targets: dict[str, Target], page: str, tmp_path: Path) -> None:
    own = {name: targets[name] for name in ("table-1", "figure-2a")}
    write_reproduction(Lab().write(tmp_path, own, quick=True), list(own.values()), STATEMENTS)
    quick = plain((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "This is a quick run." in quick
    assert "evenhand reproduce table-1 --quick" in quick
    assert "Quick run" in (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "This is a quick run." not in plain(page)
    assert "This run is not complete" not in plain(page)


def test_text_from_outside_is_escaped(targets: dict[str, Target], tmp_path: Path) -> None:
    def spoil(planned: Planned, record: dict[str, Any]) -> dict[str, Any]:
        return record | ({"status": "failed", "error": EVIL, "values": {}} if planned.method == "CP-DRL" else {})

    folder = Lab(change=spoil).write(tmp_path, {"table-1": targets["table-1"]})
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest |= {"command": EVIL, "machine": {"cpu": EVIL}, "versions": {EVIL: EVIL}, "ended": EVIL, "evenhand": EVIL}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    found = write_reproduction(folder, [targets["table-1"]], STATEMENTS).read_text(encoding="utf-8")
    reader = read(found)
    assert not {"script", "img"} & set(reader.tags)
    assert EVIL in "".join(reader.text)
    markdown = (folder / "tables.md").read_text(encoding="utf-8")
    assert "<script" not in markdown
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines() if line.startswith("|")}) == 1
    tex = (folder / "tables.tex").read_text(encoding="utf-8")
    assert r"50\% of \$x\_1\$" in tex


# Partial runs


def test_failed_cells_are_shown_with_their_reason(targets: dict[str, Target], tmp_path: Path) -> None:
    def spoil(planned: Planned, record: dict[str, Any]) -> dict[str, Any] | None:
        if planned.method == "V-DRL":
            return record | {"status": "failed", "error": "no torch here", "values": {}, "timings": {}}
        if planned.method == "CP-DRL" and planned.seed == 3 and planned.instance == "N=3":
            return record | {"status": "failed", "error": "one bad seed", "values": {}, "timings": {}}
        return None if planned.method == "OFT" else record

    folder = Lab(change=spoil).write(tmp_path, {"table-1": targets["table-1"]})
    text = plain(write_reproduction(folder, [targets["table-1"]], STATEMENTS).read_text(encoding="utf-8"))
    assert "This run is not complete: 21 cells failed and 20 cells not run." in text
    assert "V-DRL at N = 2, N = 3, N = 4 and N = 5: failed: no torch here" in text
    assert "CP-DRL (1 of 5 seeds) at N = 3: failed: one bad seed" in text
    assert "OFT at N = 2, N = 3, N = 4 and N = 5: not run" in text
    rows = list(csv.DictReader(io.StringIO((folder / "csv" / "table-1.csv").read_text(encoding="utf-8"))))
    by_place = {(row["num_arms"], row["column"]): row for row in rows}
    assert by_place["3", "CP-DRL"]["seeds"] == "4"
    assert by_place["2", "V-DRL"]["ours"] == ""
    assert by_place["2", "V-DRL"]["trouble"] == "no torch here"


def test_a_record_that_is_not_whole_is_told(targets: dict[str, Target], tmp_path: Path) -> None:
    def spoil(planned: Planned, record: dict[str, Any]) -> dict[str, Any]:
        return record | ({"values": {"welfare": 14.0}} if planned.method == "OPT" else {})

    folder = Lab(change=spoil).write(tmp_path, {"table-1": targets["table-1"]})
    page = write_reproduction(folder, [targets["table-1"]], STATEMENTS).read_text(encoding="utf-8")
    assert "This run is not complete: 4 cells failed." in plain(page)
    assert "failed: its record cannot be read: values.upper_bound: expected a number, got nothing" in plain(page)


def test_without_statements_nothing_is_judged(targets: dict[str, Target], tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    none = read_statements(tmp_path / "paper")
    folder = Lab().write(tmp_path / "run", {"table-1": targets["table-1"]})
    page = write_reproduction(folder, [targets["table-1"]], none).read_text(encoding="utf-8")
    assert 'id="summary"' not in page
    assert 'id="table-1"' in page
    read(page)


@pytest.mark.parametrize("status", one_in(3, ["failed", "absent", "empty"]))
def test_a_run_without_results_still_has_a_report(targets: dict[str, Target], tmp_path: Path, status: str) -> None:
    def spoil(planned: Planned, record: dict[str, Any]) -> dict[str, Any] | None:
        changes: dict[str, Any] = {"values": {}, "timings": {}}
        if status == "failed":
            changes |= {"status": "failed", "error": None}
        return None if status == "absent" else record | changes

    folder = Lab(change=spoil).write(tmp_path, targets)
    text = plain(write_reproduction(folder, list(targets.values()), STATEMENTS).read_text(encoding="utf-8"))
    assert "Claims that hold 0 of 0" in text
    report = read_report(folder, list(targets.values()), STATEMENTS)
    assert {claim.verdict for claim in (*report.claims, *report.findings)} == {"not run"}


@pytest.mark.parametrize(
    "names", one_in(2, [("figure", "table-1", "table-5", "beyond-exact"), ("",)]), ids=["some", "all"]
)
@pytest.mark.slow
def test_a_sweep_with_one_size_left(names: tuple[str, ...], targets: dict[str, Target], tmp_path: Path) -> None:
    keep = ("N=10", "N=10 b=1", "N=10 b=5", "N=2")
    lab = Lab(change=lambda planned, record: record if planned.instance in keep else None)
    sweeps = {name: target for name, target in targets.items() if name.startswith(names)}
    assert any(planned.instance in keep for target in sweeps.values() for planned in target.full)
    text = plain(
        write_reproduction(lab.write(tmp_path, sweeps), list(sweeps.values()), STATEMENTS).read_text(encoding="utf-8")
    )
    assert "not run" in text


def test_no_targets_at_all(targets: dict[str, Target], tmp_path: Path) -> None:
    assert write_reproduction(Lab().write(tmp_path, {}), [], STATEMENTS).exists()
    with pytest.raises(InvalidInput, match="no finished run"):
        write_reproduction(tmp_path / "absent", [], STATEMENTS)


# Verdicts


FLIPS = [
    ("column OPT", ("table-1", "table-2"), {}, {"shift": 0.02}, "does not hold"),
    ("comes close to the optimum", ("table-1", "table-2"), {}, {"CP-DRL": 1.0}, "does not hold"),
    ("on Exponential-RCCC: with indices as the paper", ("table-1",), {}, {"CP-DRL": 3.0}, "does not hold"),
    ("on Exponential-RCCC: with exact indices", ("table-1",), {"WIP exact": 0.5}, {}, "does not hold"),
    ("does not reach the optimum", ("table-1",), {"WIP exact": 0.5}, {}, "does not hold"),
    ("serves every number", ("table-1", "table-2"), {}, {"CP-DRL(MT)": 1.0}, "does not hold"),
    ("Vanilla-DRL: that may also", ("table-1", "table-2"), {}, {"V-DRL(idle)": 0.0}, "does not hold"),
    ("Vanilla-DRL: that always", ("table-1", "table-2"), {}, {"V-DRL": 0.0}, "does not hold"),
    ("beats the simple rules", ("table-1", "table-2"), {}, {"OFT": 0.0}, "does not hold"),
    ("does as well on up to 100", ("figure-2a",), {}, {"CP-DRL(SC)": 1.0}, "does not hold"),
    ("up to 100 machines: with indices as", ("figure-2a",), {}, {"CP-DRL": 1.0}, "does not hold"),
    ("up to 100 machines: with exact", ("figure-2a",), {"WIP exact": 0.5}, {}, "does not hold"),
    ("grows linearly", ("figure-2b", "figure-2c"), {"linear": True}, {}, "does not hold"),
    ("PPO reaches more", ("table-3", "table-4"), {}, {"SAC": 0.0, "PPO": 0.1}, "does not hold"),
    ("more stable", ("table-3", "table-4"), {}, {"noisy PPO": 1.0}, "does not hold"),
    ("far smaller", ("table-5", "table-6"), {}, {"slow": 1.0}, "holds in part"),
    ("at least the published welfare", ("table-1", "table-2"), {}, {"CP-DRL": 2.0, "CP-DRL(MT)": 2.0}, "does not hold"),
    ("approaches the fluid bound", ("beyond-exact",), {}, {"wide": 1.0}, "does not hold"),
    ("where no Whittle index exists", ("beyond-indexability",), {}, {"CP-DRL": 1.0}, "does not hold"),
    ("fairness has a price", ("beyond-fairness",), {"price": 1.0}, {}, "does not hold"),
    ("between −2 and 2 gives", ("table-1", "table-2"), {}, {"WIP": 3.0}, "does not hold"),
]


def lab_with(changes: Mapping[str, Any]) -> Lab:
    lab = Lab()
    for name, value in changes.items():
        if name == "shift":
            lab.shift = value
        elif name == "linear":
            lab.linear = value
        elif name == "slow":
            lab.slow_count_program = True
        elif name == "wide":
            lab.wide_bound = True
        elif name == "price":
            lab.price = value
        elif name == "noisy PPO":
            lab.noise["PPO"] = value
        else:
            lab.losses[name] = value
    return lab


@pytest.fixture(scope="module")
def good_report(targets: dict[str, Target], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Report]:
    """The report on a run of some targets, made once for all claims that look at it."""

    @cache
    def made(names: tuple[str, ...], **changes: Any) -> Report:
        own = {name: targets[name] for name in names}
        folder = lab_with(changes).write(tmp_path_factory.mktemp("good"), own)
        return read_report(folder, list(own.values()), STATEMENTS)

    return made


@pytest.mark.parametrize(("part", "names", "good", "bad", "verdict"), FLIPS, ids=[flip[0] for flip in FLIPS])
def test_verdicts_follow_the_numbers(
    part: str,
    names: tuple[str, ...],
    good: dict[str, Any],
    bad: dict[str, Any],
    verdict: str,
    targets: dict[str, Target],
    tmp_path: Path,
    good_report: Callable[..., Report],
) -> None:
    held = claim_of(good_report(names, **good), part)
    assert held.verdict == "holds", held.evidence
    fell = judged(lab_with(bad), tmp_path / "bad", targets, part, *names)
    assert fell.verdict == verdict, fell.evidence
    assert held.evidence != fell.evidence


def test_a_claim_can_hold_in_part(targets: dict[str, Target], tmp_path: Path) -> None:
    def spoil(planned: Planned, record: dict[str, Any]) -> dict[str, Any]:
        wrong = {"values": record["values"] | {"welfare": 14.0}}
        return record | (wrong if (planned.method, planned.instance) == ("OPT", "N=4") else {})

    found = judged(Lab(change=spoil), tmp_path, targets, "column OPT", "table-1")
    assert found.verdict == "holds in part"
    assert "in 3 of 4 cells" in found.evidence
    assert "0.060 (Exponential, N = 4)" in found.evidence


def test_what_was_not_run_is_not_judged(targets: dict[str, Target], tmp_path: Path) -> None:
    lab = Lab(change=lambda planned, record: record if planned.instance == "N=2" else None)
    found = judged(lab, tmp_path, targets, "column OPT", "table-1")
    assert (found.verdict, "in the one cell that was run (of 4)" in found.evidence) == ("holds", True)
    assert judged(Lab(), tmp_path, targets, "grows linearly", "table-1").verdict == "not run"


def test_sizes_are_compared_as_the_paper_counts(targets: dict[str, Target], tmp_path: Path) -> None:
    held = judged(Lab(), tmp_path, targets, "numbers of constraints", "table-5", "table-6")
    assert held.verdict == "holds"

    def spoil(planned: Planned, record: dict[str, Any]) -> dict[str, Any]:
        wrong = {"values": record["values"] | {"paper_variables": 1}} if planned.instance == "N=3" else {}
        return record | (wrong if planned.cell.kind == "lp" else {})

    fell = judged(Lab(change=spoil), tmp_path, targets, "numbers of constraints", "table-5", "table-6")
    assert fell.verdict == "holds in part"
    assert "table-5, Variables, N = 3" in fell.evidence


# Tables and data


def test_csv_reads_back_to_the_last_bit(whole: Path, report: Report) -> None:
    for part in report.parts:
        text = (whole / "csv" / f"{part.target.name}.csv").read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text)))
        entries = [(sheet, entry) for sheet in part.sheets for entry in sheet.entries]
        assert len(rows) == len(entries) > 0
        for row, (sheet, entry) in zip(rows, entries, strict=True):
            assert (row["sheet"], row["column"], int(row["seeds"])) == (sheet.name, entry.column, len(entry.values))
            assert [row[key] for key, _ in entry.at] == [str(value) for _, value in entry.at]
            for name, value in (("ours", entry.ours), ("paper", entry.paper), ("spread", entry.spread)):
                assert (float(row[name]) if row[name] else None) == value


def test_the_page_holds_the_data(whole: Path, page: str, targets: dict[str, Target]) -> None:
    for name in targets:
        data = re.search(rf'download="{name}\.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"', page)
        assert data is not None
        assert base64.b64decode(data[1]) == (whole / "csv" / f"{name}.csv").read_bytes()
        assert f'href="csv/{name}.csv"' in page


def test_markdown_tables_are_well_formed(report: Report) -> None:
    text = tables_markdown(report)
    blocks = re.findall(r"(?:^\|.*\n)+", text + "\n", flags=re.MULTILINE)
    assert len(blocks) >= 13
    for block in blocks:
        lines = block.splitlines()
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
        assert re.fullmatch(r"\|( -+:? \|)+", lines[1])


def test_latex_tables_are_well_formed(report: Report) -> None:
    text = tables_latex(report)
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, flags=re.DOTALL)
    assert len(tables) == text.count(r"\begin{table}") >= 13
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert len(set(labels)) == len(labels) == len(tables)
    for table in tables:
        columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", table)[1])  # type: ignore[index]
        rows = [line for line in table.splitlines() if line.endswith(r"\\")]
        assert all(len(re.findall(r"(?<!\\)&", row)) == columns - 1 for row in rows)
        assert table.count("{") == table.count("}")
    assert not re.search(r"[−±≈×µ÷]", text)


def test_figures_are_files_too(whole: Path, targets: dict[str, Target]) -> None:
    from xml.etree import ElementTree

    for name in targets:
        root = ElementTree.parse(whole / "figures" / f"{name}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_the_headline_has_both_costs(report: Report) -> None:
    lines = headline_table(report, {"table-1": "Exponential", "table-2": "Quadratic"}).splitlines()
    assert len(lines) == 2 + 8
    assert len({line.count("|") for line in lines}) == 1
    assert lines[5].startswith("| Exponential | 5 | 13.77 | **13.77** | 12.47 | **12.49** | **13.77** | 12.96 |")
    assert lines[6].startswith("| Quadratic | 2 | 16.17 |")


# The small parts


def shown(sheet: Sheet) -> str:
    """The texts of a sheet as the page has them, line by line."""
    lines = [line for group in view_sheet(sheet).groups for line in group.lines]
    texts = [text for line in lines for text in (line.head, *(cell.figure + cell.spread for cell in line.cells))]
    return " ".join(texts).replace("\u00a0", " ")


def test_an_entry_averages_over_seeds() -> None:
    entry = Entry((("num_arms", 3),), "CP-DRL", paper=2.0, values=(1.0, 3.0, 5.0), plug_in=(1.0, 2.0))
    assert (entry.ours, entry.spread, entry.difference, entry.protocol) == (3.0, 2.0, 1.0, 1.5)
    assert entry.ratio == pytest.approx(2 / 3)
    assert entry.row == "N = 3"
    assert Entry((), "x").ours is None


def test_a_sheet_shows_the_lines_that_say_something() -> None:
    alone = Sheet("welfare", "caption", (Entry((("num_arms", 2),), "A", values=(1.0,)),))
    assert "ours − paper" not in shown(alone)
    both = Sheet("welfare", "caption", (Entry((("num_arms", 2),), "A", paper=1.25, values=(1.0,), exact=False),))
    text = shown(both)
    assert "paper 1.25 ours ≈ 1.00 ours − paper −0.25" in text
    ratio = Sheet("times", "c", (Entry((("quantity", "Total"),), "A", 10.0, values=(0.001,)),), "seconds", "ratio")
    assert "10,000 ×" in shown(ratio)
    assert "| N = 2 | paper | 1.25 |" in markdown_sheet(both)


def test_places_are_read_from_instances() -> None:
    assert place_of("N=10 b=1") == (("num_arms", 10), ("budget", 1))
    assert place_of("N=10, b/N=0.5") == (("num_arms", 10), ("budget_share", 0.5))
    assert place_of("N=2..5") == (("instance", "N=2..5"),)
    assert place_of("crew, 5 machines") == (("instance", "crew, 5 machines"),)


def test_a_network_for_several_sizes_has_a_figure_at_each(targets: dict[str, Target], whole: Path) -> None:
    report = read_report(whole, [targets["table-1"]], STATEMENTS)
    sheet = report.parts[0].sheets[0]
    for size in (2, 3, 4, 5):
        place = ("CP-DRL(MT)", (("num_arms", size),))
        (entry,) = (each for each in sheet.entries if (each.column, each.at) == place)
        assert len(entry.values) == 5
        assert entry.ours == pytest.approx(OPT["exponential"][size] - 0.004 - 0.001 * (0 + 1 + 2 + 0 + 1) / 5)


def test_special_characters_in_latex() -> None:
    assert latex("50% & a_b {x} ~ ^ \\") == (
        r"50\% \& a\_b \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert "\\" not in csv_text([Sheet("s", "c", (Entry((("n", 1),), "a"),))])
