"""Puts the results of a full reproduction into README and docs.

    python docs/make_results.py                 fill in tables and figures from the committed records
    python docs/make_results.py reproduction    first take the records of that run
    python docs/make_results.py RUN TARGET...   only those of these targets, beside the other targets' records

Records are in paper/records. Pages have places `<!-- table: NAME -->` to `<!-- end -->`, where NAME is a target,
`headline` or `claims`; figures go to docs/measured/reproduction. A test does the same and compares.
"""

import json
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from evenhand.experiments.spec import read_targets
from evenhand.report.reproduction import draw_report, read_report, read_statements
from evenhand.report.reproduction.drawings import Drawings
from evenhand.report.reproduction.formats import markdown_sheet
from evenhand.report.reproduction.headline import headline_table
from evenhand.report.reproduction.report import Report
from evenhand.report.reproduction.writing import claims_markdown

REPO = Path(__file__).parent.parent
RECORDS = REPO / "paper" / "records"
COSTS = {"table-1": "Exponential", "table-2": "Quadratic"}
FIGURES = REPO / "docs" / "measured" / "reproduction"
PLACE = re.compile(r"<!-- table: ([a-z0-9-]+) -->\n(?:.*?<!-- end -->\n)?", re.DOTALL)


def pages() -> list[Path]:
    """Every page that may have places."""
    return [REPO / "README.md", *sorted((REPO / "docs").rglob("*.md"))]


@cache
def read_results() -> Report:
    """The report on the committed records."""
    paper = REPO / "paper"
    return read_report(RECORDS, list(read_targets(paper).values()), read_statements(paper))


@cache
def read_drawings() -> dict[str, Drawings]:
    """The figures of every target."""
    return draw_report(read_results())


def tables(figures: Collection[str]) -> dict[str, str]:
    """The text of every place; `figures` names the targets that have one."""
    report = read_results()
    alternative = "Welfare for 10 to 100 machines: CP-DRL, Whittle, optimum and bound"
    picture = f"![{alternative}](docs/measured/reproduction/figure-2a.svg)"
    texts = {"headline": f"{headline_table(report, COSTS)}\n{picture}\n"}
    texts["claims"] = claims_markdown((*report.claims, *report.findings))
    for part in report.parts:
        name = part.target.name
        picture = f"![{part.target.title}](../measured/reproduction/{name}.svg)\n\n" if name in figures else ""
        texts[name] = picture + "\n".join(markdown_sheet(sheet) for sheet in part.sheets if sheet.visible)
    return texts


def fill(page: str, texts: dict[str, str]) -> str:
    """A page with its places filled."""
    return PLACE.sub(lambda place: f"<!-- table: {place[1]} -->\n{texts[place[1]].rstrip()}\n\n<!-- end -->\n", page)


def draw(folder: Path) -> None:
    """Write the figure of every target that has one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawings in read_drawings().items():
        if drawings.file is not None:
            (folder / f"{name}.svg").write_text(drawings.file, encoding="utf-8")


def take_over(run: Path, targets: Sequence[str]) -> None:
    """Take the records of a run: all of them, or those of some targets in place of what there was of these.

    A record has the digest of the code it was made by, so records of several commits can stand side by side.
    """
    RECORDS.mkdir(exist_ok=True)
    if not targets:
        for name in ("records.jsonl", "manifest.json"):
            shutil.copyfile(run / name, RECORDS / name)
        return
    manifest, made = (json.loads((folder / "manifest.json").read_bytes()) for folder in (RECORDS, run))
    manifest["targets"].update({name: made["targets"][name] for name in targets})
    (RECORDS / "manifest.json").write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    named = {label["id"] for labels in manifest["targets"].values() for label in labels}
    lines = [line for folder in (RECORDS, run) for line in (folder / "records.jsonl").read_text("utf-8").splitlines()]
    records = {json.loads(line)["id"]: line for line in lines}
    kept = "".join(f"{line}\n" for key, line in records.items() if key in named)
    (RECORDS / "records.jsonl").write_text(kept, encoding="utf-8")


def main(run: str | None = None, *targets: str) -> None:
    """Take the records of a run, if one is named, and fill everything in."""
    if run is not None:
        take_over(Path(run), targets)
    texts = tables([name for name, drawings in read_drawings().items() if drawings.file])
    for page in pages():
        page.write_text(fill(page.read_text(encoding="utf-8"), texts), encoding="utf-8")
    draw(FIGURES)


if __name__ == "__main__":
    main(*sys.argv[1:])
