"""The report of a run: report.html, tables.md, tables.tex, csv/TARGET.csv and figures/TARGET.svg; and the docs."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from evenhand.model.io import write_atomically
from paper.claims import Claim, check_claims
from paper.figures import draw
from paper.run import read_records
from paper.tables import Table, csv_text, figure_text, latex, lines, markdown, remarks, target_tables
from paper.targets import Target, read_targets

TITLE = "Fair Resource Allocation in Weakly Coupled Markov Decision Processes"
REPO = Path(__file__).parent.parent
FIGURES = REPO / "docs" / "measured" / "reproduction"
PLACE = re.compile(r"<!-- table: ([a-z0-9-]+) -->\n(?:.*?<!-- end -->\n)?", re.DOTALL)
"""A place of README or docs to fill: a target, `headline` or `claims`."""

HEADLINE = (
    ("OPT", "OPT", "paper"),
    ("OPT, ours", "OPT", "ours"),
    ("WIP", "WIP", "paper"),
    ("WIP, same search", "WIP", "ours"),
    ("WIP, exact indices", "WIP exact", "ours"),
    ("CP-DRL", "CP-DRL", "paper"),
    ("CP-DRL, ours", "CP-DRL", "ours"),
    ("CP-DRL(MT)", "CP-DRL(MT)", "paper"),
    ("CP-DRL(MT), ours", "CP-DRL(MT)", "ours"),
)
"""Columns of the table in docs/reproduction.md: title, method, whose figure."""


@dataclass(frozen=True)
class Report:
    """The tables of a run and the claims that they decide."""

    targets: Sequence[Target]
    tables: Mapping[str, Sequence[Table]]
    claims: Sequence[Claim]
    quick: bool


def read_report(folder: Path, targets: Sequence[Target]) -> Report:
    """The report on the records of a folder."""
    quick = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["quick"]
    records = read_records(folder)
    tables = {target.name: target_tables(target, records, quick) for target in targets}
    claims = check_claims({name: {table.name: table for table in own} for name, own in tables.items()})
    return Report(targets, tables, claims, quick)


def write_report(folder: Path, targets: Sequence[Target]) -> Path:
    """Write the report of a run into its folder; return the path of report.html."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    report = read_report(folder, targets)
    parts, texts, sources = [], [f"# {TITLE}: reproduced\n", claims_markdown(report.claims)], []
    for target in targets:
        tables = [table for table in report.tables[target.name] if table.name != "curve"]
        figure = draw(target, report.tables[target.name])
        shown = [{"caption": table.caption, "lines": lines(table), "remarks": remarks(table)} for table in tables]
        parts.append({"target": target, "figure": figure, "tables": shown})
        texts += [f"## {target.source}: {target.title}\n", *map(markdown, tables)]
        sources += map(latex, tables)
        _write(folder / "csv" / f"{target.name}.csv", csv_text(report.tables[target.name]))
        if figure is not None:
            _write(folder / "figures" / f"{target.name}.svg", figure)
    _write(folder / "tables.md", "\n".join(texts))
    _write(folder / "tables.tex", "\n".join(sources))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("report.html")
    _write(folder / "report.html", page.render(title=TITLE, claims=report.claims, parts=parts, quick=report.quick))
    return folder / "report.html"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())


def claims_markdown(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown list."""
    texts = [f"- **{claim.verdict}**: {claim.title}. {claim.evidence}" for claim in claims]
    lines = (line for text in texts for line in wrap(text, 118, subsequent_indent="  ", break_on_hyphens=False))
    return "".join(f"{line}\n" for line in lines)


# -- README and docs -------------------------------------------------------------------------------------------------


def pages() -> list[Path]:
    """Every page that may have places to fill."""
    return [
        REPO / "README.md",
        *sorted((REPO / "docs").glob("*.md")),
        *sorted((REPO / "docs" / "reproduction").glob("*.md")),
    ]


def fill(text: str, texts: Mapping[str, str]) -> str:
    """A page with its places filled."""
    return PLACE.sub(lambda place: f"<!-- table: {place[1]} -->\n{texts[place[1]].rstrip()}\n\n<!-- end -->\n", text)


def docs_texts() -> dict[str, str]:
    """The text of every place, from the committed records."""
    report = read_report(REPO / "paper" / "records", list(read_targets().values()))
    title = "Welfare for 10 to 100 machines: CP-DRL, Whittle, optimum and bound"
    picture = f"![{title}](measured/reproduction/figure-2a.svg)"
    texts = {"headline": f"{_headline(report)}\n{picture}\n", "claims": claims_markdown(report.claims)}
    for target in report.targets:
        tables = [markdown(table) for table in report.tables[target.name] if table.name != "curve"]
        texts[target.name] = f"![{target.title}](../measured/reproduction/{target.name}.svg)\n\n" + "\n".join(tables)
    return texts


def _headline(report: Report) -> str:
    heads = ["costs", "N", *(title for title, _, _ in HEADLINE)]
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * 2}{'---:|' * len(HEADLINE)}"]
    for name, costs in (("table-1", "Exponential"), ("table-2", "Quadratic")):
        table = report.tables[name][0]
        for row in table.rows:
            entries = [(table.entries[row, method], whose) for _, method, whose in HEADLINE]
            texts = [
                figure_text(entry.paper, table) if whose == "paper" else f"**{figure_text(entry.ours, table)}**"
                for entry, whose in entries
            ]
            rows.append(f"| {' | '.join([costs, row.removeprefix('N = '), *texts])} |")
    return "\n".join(rows) + "\n"


def write_docs() -> None:
    """Fill the tables and figures of README and docs from the committed records."""
    texts = docs_texts()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if PLACE.search(text):
            _write(page, fill(text, texts))
    targets = list(read_targets().values())
    report = read_report(REPO / "paper" / "records", targets)
    for target in targets:
        figure = draw(target, report.tables[target.name])
        if figure is not None:
            _write(FIGURES / f"{target.name}.svg", figure)
