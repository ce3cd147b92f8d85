"""The reproduction of the paper as one page: what holds, then every table and figure with ours beside the paper's.

From a run's folder (records.jsonl, manifest.json) and its targets, nothing else; nothing is computed anew.

    OUT/report.html         one self-contained file: figures as inline SVG, data as CSV inside, no scripts
    OUT/tables.md, .tex     the same tables
    OUT/csv/<target>.csv    every figure, unrounded
    OUT/figures/<target>.svg
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from evenhand._version import __version__
from evenhand.experiments.records import Run, read_run
from evenhand.experiments.spec import Target
from evenhand.model.files import write_atomically
from evenhand.report import words
from evenhand.report.page import _document
from evenhand.report.reproduction_claims import Claim, Verdict, own_claims, paper_claims
from evenhand.report.reproduction_drawings import Drawings, draw_target
from evenhand.report.reproduction_sheets import Found, cell_seconds, found_cells, target_sheets
from evenhand.report.reproduction_tables import (
    Entry,
    Sheet,
    csv_text,
    figure_text,
    html_sheet,
    latex_sheet,
    markdown_sheet,
    missing_word,
    signed,
)

PAPER = "Fair Resource Allocation in Weakly Coupled Markov Decision Processes"
AUTHORS = "Tu, Adulyasak, Akbarzadeh and Delage"
HEADLINE = "table-1"
"""The target whose figure stands for all."""

_CSS = """
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.banner { border-left: 4px solid #D55E00; background: #fdf3ec; color: #7a3300; padding: .7rem .9rem; margin: 1rem 0;
  max-width: 46rem; }
.banner p { margin: .2rem 0; }
.contents { columns: 16rem 2; padding-left: 1.1rem; max-width: 52rem; margin: .6rem 0; }
.contents li { break-inside: avoid; padding: .15rem 0; }
a { color: #005a8c; }
.claims { list-style: none; padding: 0; margin: 1rem 0; max-width: 54rem; }
.claims li { display: grid; grid-template-columns: 9rem 1fr; gap: .2rem 1rem; padding: .7rem 0;
  border-top: 1px solid #e3e3e3; break-inside: avoid; }
.claims p { margin: .15rem 0 0; max-width: none; color: #333; font-size: .95rem; }
.claims b { font-weight: 650; }
.claims .where { white-space: nowrap; font-size: .9em; }
.verdict { align-self: start; justify-self: start; border-radius: .3rem; padding: .1rem .5rem; font-size: .88rem;
  font-weight: 650; white-space: nowrap; border: 1px solid; }
.verdict.holds { color: #00593f; background: #e6f4ef; border-color: #009E73; }
.verdict.part { color: #6b4a00; background: #fdf4e0; border-color: #E69F00; }
.verdict.fails { color: #8a3a00; background: #fdeee5; border-color: #D55E00; }
.verdict.none { color: #4a4a4a; background: #f3f3f3; border-color: #8a8a8a; }
.source { color: #4a4a4a; font-weight: 400; font-size: .85em; display: block; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .5rem 1.2rem;
  max-width: none; }
figure.wide { max-width: none; }
table.sheet { font-size: .86rem; }
table.sheet th, table.sheet td { padding-left: .4rem; padding-right: .4rem; }
table.sheet.dense { font-size: .81rem; }
table.sheet.dense th, table.sheet.dense td { padding-left: .3rem; padding-right: .3rem; }
.scroll:has(.dense) { margin-right: min(0px, max(-8rem, (61rem - 100vw) / 2 + 1.5rem)); }
table.sheet td small { font-weight: 400; font-size: .88em; }
table.sheet th[scope=row] { font-weight: 400; min-width: 0; max-width: 11rem; white-space: nowrap; }
table.sheet tr.group th { text-align: left; font-weight: 650; padding: .75rem .4rem .1rem; border: 0;
  position: static; }
table.sheet td, table.sheet th[scope=row] { padding-top: .22rem; padding-bottom: .22rem; }
table.sheet tbody tr.paper td, table.sheet tbody tr.paper th, table.sheet tbody tr.protocol td,
  table.sheet tbody tr.protocol th { color: #4a4a4a; border-bottom: 0; }
table.sheet tbody tr.ours td { font-weight: 600; }
table.sheet tbody:has(tr.group) tr.ours td, table.sheet tbody:has(tr.group) tr.ours th { border-bottom: 0; }
table.sheet tbody tr.ours td.missing { color: #8a3a00; font-weight: 400; font-style: italic; }
td.less { color: #8a3a00; } td.more { color: #00593f; }
.remarks { color: #4a4a4a; font-size: .92rem; padding-left: 1.1rem; max-width: 46rem; margin: .4rem 0 1rem; }
.remarks li { overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
dl.readings { max-width: 54rem; }
dl.readings div { display: grid; grid-template-columns: 13rem 1fr; gap: 0 1rem; padding: .25rem 0; }
dl.readings dt { margin: 0; overflow-wrap: anywhere; }
dl.readings dt small { display: block; white-space: nowrap; font-weight: 400; color: #4a4a4a;
  font-variant-numeric: tabular-nums; }
.made { border-top: 1px solid #e3e3e3; padding-top: .5rem; font-size: .92rem; color: #333; }
@media (max-width: 40rem) {
  .claims li { grid-template-columns: 1fr; }
  dl.readings div { grid-template-columns: 1fr; padding: .4rem 0; }
  dl.readings dt small { display: inline; }
  table.sheet tbody:not(:has(tr.group)) th[scope=row] { min-width: 5.5rem; max-width: 7.5rem; white-space: normal;
    overflow-wrap: break-word; }
}
@media print {
  section { break-inside: auto; } .contents { columns: 2; } a { color: inherit; text-decoration: none; }
  section > h2 + p { break-after: avoid; }
  .panels { grid-template-columns: repeat(auto-fit, minmax(5.5cm, 1fr)); } figure.wide { max-width: 100%; }
  .claims li { grid-template-columns: 9.5rem 1fr; padding: .35rem 0; }
  .verdict, .banner { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  table.sheet, table.sheet.dense { font-size: 7pt; } .scroll:has(.dense) { margin-right: 0; }
  table.sheet td, table.sheet th { padding-left: .2rem; padding-right: .2rem; }
  table.sheet.dense { font-size: 6.2pt; }
  table.sheet tbody { break-inside: avoid; }
}
"""

_BADGES: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "✓ holds"),
    "holds in part": ("part", "◐ in part"),
    "does not hold": ("fails", "✗ does not hold"),
    "not run": ("none", "– not run"),
}

_TERMS = (
    ("Machine (arm)", "What competes for attention: it wears out step by step and can be replaced."),
    ("N and b", "The number of machines, and how many can be replaced in one step."),
    (
        "Welfare (GGF)",
        "One number for how well all machines fare, in which those that are worse off count for more. The paper calls "
        "it the GGF score. Larger is better.",
    ),
    ("Exponential- and Quadratic-RCCC", "The two ways in which costs grow with age in the paper's problem."),
    ("OPT", "The best possible welfare, by exact computation."),
    (
        "WIP",
        "The Whittle index policy: replace the machine with the highest index. The paper searched for indices between "
        "−2 and 2 only; “WIP” repeats that search, “WIP exact” uses the true indices.",
    ),
    (
        "CP-DRL",
        "The paper's method: a network that sees the share of machines in each state. Ours serves machines by falling "
        "score; “CP-DRL(PS)” draws them by priority, as the paper does. What is kept is the best network seen in "
        "training. MT is one network trained on several numbers of machines, SC one that was trained on few and used "
        "on many.",
    ),
    (
        "V-DRL",
        "Plain deep learning on the states of all machines. It must replace a machine at every step; “V-DRL(idle)” may "
        "also replace none.",
    ),
    ("OFT, MYP, EQR, RDM", "Simple rules: oldest first, best for this step, everybody in turn, at random."),
    (
        "Ours (plug-in)",
        "The paper simulates 1000 plays of 300 steps and takes the welfare of the estimated means, which is a little "
        "too low when machines fare alike. We repeat that, and give the exact figure wherever it can be computed; "
        "differences from the paper are of the latter.",
    ),
)


def write_reproduction(folder: Path, targets: Sequence[Target]) -> Path:
    """Write the report of a run, with its tables, data and figures.

    Args:
        folder: of the run; the files are written there.
        targets: what to report on, in this order.

    Returns:
        The path of report.html.
    """
    report = read_report(folder, targets)
    for name in ("csv", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    drawings = draw_report(report)
    for part in report.parts:
        _write(folder / "csv" / f"{part.target.name}.csv", part.csv)
    for name, drawn in drawings.items():
        if drawn.file is not None:
            _write(folder / "figures" / f"{name}.svg", drawn.file)
    _write(folder / "tables.md", tables_markdown(report))
    _write(folder / "tables.tex", tables_latex(report))
    _write(folder / "report.html", report_page(report, drawings))
    return folder / "report.html"


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode("utf-8", errors="replace"))


@dataclass(frozen=True)
class Part:
    """One target: its sheets and its data."""

    target: Target
    sheets: tuple[Sheet, ...]
    csv: str
    cells: tuple[Found, ...]
    seconds: float


@dataclass(frozen=True)
class Report:
    """All that is told."""

    run: Run
    parts: tuple[Part, ...]
    claims: tuple[Claim, ...]
    """The paper's."""
    findings: tuple[Claim, ...]
    """Ours."""

    @property
    def quick(self) -> bool:
        """Whether sizes are reduced."""
        return bool(self.run.manifest.get("quick"))


def read_report(folder: Path, targets: Sequence[Target]) -> Report:
    """Read a run and put all of it in its place; arguments as of `write_reproduction`."""
    run = read_run(folder)
    sheets = {target.name: target_sheets(target, run) for target in targets}
    parts = tuple(_part(target, run, sheets[target.name]) for target in targets)
    return Report(run, parts, tuple(paper_claims(sheets)), tuple(own_claims(sheets)))


def _part(target: Target, run: Run, sheets: tuple[Sheet, ...]) -> Part:
    cells = tuple(found_cells(target, run))
    return Part(target, sheets, csv_text(sheets), cells, cell_seconds(target, run))


def draw_report(report: Report) -> dict[str, Drawings]:
    """The figures of all targets, by name."""
    sheets = {part.target.name: part.sheets for part in report.parts}
    return {part.target.name: draw_target(part.target, sheets) for part in report.parts}


# The page


def report_page(report: Report, drawings: Mapping[str, Drawings]) -> str:
    """The page of a report, with the figures of `draw_report`."""
    title = "The paper, reproduced"
    sections = [
        f'<header class="lead"><h1>{title}</h1>{_lead(report)}</header>',
        _banner(report),
        _cards(report),
        _section("summary", "What holds and what does not", _claims(report.claims)),
        _section("findings", "What we found besides", _claims(report.findings)),
        _section("contents", "Contents", _contents(report)),
        *(_target(part, report, drawings[part.target.name]) for part in report.parts),
        _section("reading", "Words used here", _definitions(_TERMS)),
        _section("making", "How this was made", _making(report)),
    ]
    page = _document(title, "\n".join(part for part in sections if part))
    return page.replace("</style>", f"{_CSS}</style>", 1)


def _section(name: str, title: str, content: str) -> str:
    return f'<section id="{escape(name)}"><h2>{escape(title)}</h2>\n{content}\n</section>' if content else ""


def _definitions(entries: Sequence[tuple[str, str]]) -> str:
    items = [f"<div><dt>{escape(term)}</dt><dd>{escape(meaning)}</dd></div>" for term, meaning in entries]
    return f"<dl>{''.join(items)}</dl>"


def _lead(report: Report) -> str:
    parts = words.counted(len(report.parts), "table or figure", "tables, figures and open questions")
    version = report.run.manifest.get("evenhand", __version__)
    about = (
        f"{words.capitalised(parts)} of the paper “{PAPER}” ({AUTHORS}), computed again with evenhand {version} "
        "and set beside the published numbers."
    )
    problem = (
        "The paper asks how to share a limited resource fairly: N machines wear out, only b can be replaced at a time, "
        "and no machine should be left behind. It compares rules and learned policies by one number, the welfare."
    )
    return f"<p>{escape(about)}</p><p>{escape(problem)}</p>"


def _banner(report: Report) -> str:
    lines = []
    if report.quick:
        lines.append(
            "<b>This is a quick run.</b> Sizes, training and repeats are much reduced, to see everything in minutes. "
            "The numbers are not those of the full run, and learned policies are weaker than they can be. "
            "For the full run leave out <code>--quick</code>."
        )
    failed, absent = _missing(report)
    if failed or absent:
        told = [
            f"{words.counted(count, 'cell')} {what}"
            for count, what in ((failed, "failed"), (absent, "not run"))
            if count
        ]
        lines.append(f"<b>This run is not complete:</b> {escape(words.listed(told))}. The tables say which, and why.")
    return f'<div class="banner" role="note">{"".join(f"<p>{line}</p>" for line in lines)}</div>' if lines else ""


def _missing(report: Report) -> tuple[int, int]:
    """How many cells failed, and how many were not run; a cell of several targets counts once."""
    cells = {cell.planned.cell.kind + repr(cell.settings): cell for part in report.parts for cell in part.cells}
    failed = sum(cell.record is not None and cell.record.get("status") != "done" for cell in cells.values())
    return failed, sum(cell.record is None for cell in cells.values())


def _cards(report: Report) -> str:
    checked = [claim for claim in report.claims if claim.verdict != "not run"]
    by_verdict = {verdict: sum(claim.verdict == verdict for claim in checked) for verdict in _BADGES}
    done = sum(record.get("status") == "done" for record in report.run.records.values())
    entries = [
        ("Claims that hold", f"{by_verdict['holds']} of {len(checked)}", _not_checked(report, len(checked))),
        ("In part", str(by_verdict["holds in part"]), "for some sizes or costs"),
        ("Do not hold", str(by_verdict["does not hold"]), "explained below"),
        ("Cells computed", f"{done:,}", f"in {words.duration(_all_seconds(report))} of computing"),
    ]
    cards = [
        f"<div><dt>{escape(term)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for term, value, note in entries
    ]
    return f'<dl class="key">{"".join(cards)}</dl>'


def _not_checked(report: Report, checked: int) -> str:
    rest = len(report.claims) - checked
    return f"{rest} not run" if rest else "of the paper's claims"


def _all_seconds(report: Report) -> float:
    return sum(float(record.get("seconds") or 0.0) for record in report.run.records.values())


def _claims(claims: Sequence[Claim]) -> str:
    items = "\n".join(_claim(claim) for claim in claims)
    return f'<ul class="claims">\n{items}\n</ul>' if claims else ""


def _claim(claim: Claim) -> str:
    css, badge = _BADGES[claim.verdict]
    links = ", ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in claim.targets)
    where = f' <span class="where">({links})</span>' if claim.verdict != "not run" else ""
    return (
        f'<li><span class="verdict {css}">{badge}</span><div><b>{escape(claim.title)}</b>'
        f"<p>{escape(claim.evidence)}{where}</p></div></li>"
    )


def _contents(report: Report) -> str:
    items = [
        f'<li><a href="#{escape(part.target.name)}">{escape(words.capitalised(part.target.source))}: '
        f"{escape(part.target.title)}</a></li>"
        for part in report.parts
    ]
    return f'<ul class="contents">{"".join(items)}</ul>' if items else ""


def _target(part: Part, report: Report, drawn: Drawings) -> str:
    target = part.target
    title = f'{escape(target.title)} <span class="source">{escape(target.source)}</span>'
    sheets = "\n".join(filter(None, (html_sheet(sheet) for sheet in part.sheets)))
    content = [
        f"<p>{escape(target.about)}</p>",
        _figure(drawn),
        sheets or '<p class="quiet">Nothing of this was run.</p>',
        _readings(part),
        _made(part, report),
    ]
    body = "\n".join(filter(None, content))
    return f'<section id="{escape(target.name)}"><h2>{title}</h2>\n{body}\n</section>'


def _readings(part: Part) -> str:
    """How each method was read, beside how far its figures are from the paper's."""
    items = []
    for method, reading in part.target.readings.items():
        apart = [e.difference for e in _welfare_entries(part) if e.column == method and e.difference is not None]
        told = f" <small>ours − paper: {_range(apart, part.sheets[0])}</small>" if apart else ""
        items.append(f"<div><dt>{escape(method)}{told}</dt><dd>{escape(reading)}</dd></div>")
    title = "How to read the differences" if part.target.published else "What was run"
    return f'<h3>{title}</h3><dl class="readings">{"".join(items)}</dl>' if items else ""


def _welfare_entries(part: Part) -> list[Entry]:
    return [entry for sheet in part.sheets if sheet.name == "welfare" for entry in sheet.visible]


def _range(differences: Sequence[float], sheet: Sheet) -> str:
    ends = dict.fromkeys(signed(end, sheet) for end in (min(differences), max(differences)))
    return " to ".join(ends)


def _figure(drawn: Drawings) -> str:
    if not drawn.inline:
        return ""
    several = len(drawn.inline) > 1
    pictures = f'<div class="panels">{"".join(drawn.inline)}</div>' if several else drawn.inline[0]
    css = ' class="wide"' if several else ""
    return f"<figure{css}>{pictures}\n<figcaption>{escape(drawn.caption)}</figcaption></figure>"


def _made(part: Part, report: Report) -> str:
    name = part.target.name
    data = base64.b64encode(part.csv.encode("utf-8", errors="replace")).decode("ascii")
    count = sum(cell.record is not None for cell in part.cells)
    return (
        f'<p class="made">Made by <code>{escape(target_command(name, report))}</code>: '
        f"{words.counted(count, 'cell')}, {words.duration(part.seconds)} of computing. "
        f'Data: <a href="csv/{escape(name)}.csv">{escape(name)}.csv</a> '
        f'(<a download="{escape(name)}.csv" href="data:text/csv;charset=utf-8;base64,{data}">the same, from '
        "inside this page</a>).</p>"
    )


def target_command(name: str, report: Report) -> str:
    """The command for one target alone."""
    return f"evenhand reproduce {name}" + (" --quick" if report.quick else "")


def _making(report: Report) -> str:
    manifest = report.run.manifest
    machine, versions = manifest.get("machine") or {}, manifest.get("versions") or {}
    command = manifest.get("command")
    entries = [
        ("Command", str(command) if command else words.UNKNOWN),
        ("Kind of run", "quick: sizes are reduced" if report.quick else "full"),
        ("Time", _time_words(report)),
        ("Machine", _machine_words(machine)),
        ("Versions", ", ".join([f"evenhand {manifest.get('evenhand', '?')}", *_version_words(versions)])),
        (
            "Seeds",
            "They are in the target's file. The same seed gives the same figures; results do not depend on the number "
            "of jobs, times do vary.",
        ),
    ]
    return _definitions(entries)


def _time_words(report: Report) -> str:
    manifest = report.run.manifest
    told = f"{words.duration(_all_seconds(report))} of computing, all cells one after the other"
    if manifest.get("jobs"):
        told += f"; run by {words.counted(int(manifest['jobs']), 'job')}"
    return told + (f", ended {manifest['ended']}." if manifest.get("ended") else ".")


def _machine_words(machine: Mapping[str, Any]) -> str:
    memory = machine.get("memory_bytes")
    parts = [
        str(machine.get("cpu") or "unknown processor"),
        words.counted(int(machine["cores"]), "core") if machine.get("cores") else "",
        f"{float(memory) / 2**30:.0f} GiB of memory" if memory else "",
        str(machine.get("system") or ""),
    ]
    return ", ".join(filter(None, parts))


def _version_words(versions: Mapping[str, Any]) -> list[str]:
    return [f"{package} {version}" for package, version in versions.items() if version]


# Tables for other papers and pages


def tables_markdown(report: Report) -> str:
    """All tables as Markdown, the verdicts first."""
    parts = [f"# {PAPER}: reproduced\n"]
    if report.quick:
        parts.append("> Quick run: sizes are reduced, and the numbers are not those of the full run.\n")
    parts += ["## What holds and what does not\n", claims_markdown((*report.claims, *report.findings))]
    for part in report.parts:
        parts += [f"## {part.target.source}: {part.target.title}\n", f"`{target_command(part.target.name, report)}`\n"]
        parts += [markdown_sheet(sheet) for sheet in part.sheets if sheet.visible]
    return "\n".join(parts)


def claims_markdown(claims: Sequence[Claim]) -> str:
    """Claims as a Markdown list."""
    return "".join(f"- **{claim.verdict}**: {claim.title}. {claim.evidence}\n" for claim in claims)


def tables_latex(report: Report) -> str:
    """All tables as LaTeX, to be included; needs booktabs."""
    head = "% Needs \\usepackage{booktabs} and, with pdfLaTeX, \\usepackage{textcomp}.\n"
    if report.quick:
        head += "% Quick run: sizes are reduced, and the numbers are not those of the full run.\n"
    tables = [
        latex_sheet(sheet, f"tab:{part.target.name}-{sheet.name}")
        for part in report.parts
        for sheet in part.sheets
        if sheet.visible
    ]
    return "\n".join([head, *tables])


# The headline


HEADLINE_COLUMNS = (
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
"""Title, column of the sheet, and whose figure."""


def headline_table(folder: Path, targets: Sequence[Target]) -> str:
    """The main results as a Markdown table: published and ours, both kinds of costs.

    Args:
        folder: of the run.
        targets: table-1 and table-2 among them.
    """
    run = read_run(folder)
    heads = ["costs", "N", *(title for title, _, _ in HEADLINE_COLUMNS)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * 2}{'---:|' * len(HEADLINE_COLUMNS)}"]
    for target, costs in (("table-1", "Exponential"), ("table-2", "Quadratic")):
        for sheet in next((target_sheets(each, run) for each in targets if each.name == target), ())[:1]:
            lines += [f"| {costs} | {' | '.join(_headline_row(row, sheet))} |" for row in sheet.rows]
    return "\n".join(lines) + "\n"


def _headline_row(row: str, sheet: Sheet) -> list[str]:
    by_column = {entry.column: entry for entry in sheet.visible if entry.row == row}
    cells = [_headline_cell(by_column.get(column), whose, sheet) for _, column, whose in HEADLINE_COLUMNS]
    return [row.removeprefix("N = "), *cells]


def _headline_cell(entry: Entry | None, whose: str, sheet: Sheet) -> str:
    if entry is None:
        return words.UNKNOWN
    if whose == "paper":
        return figure_text(entry.paper, sheet)
    return missing_word(entry) if entry.ours is None else f"**{figure_text(entry.ours, sheet)}**"


def headline_figure(folder: Path) -> Path:
    """Where the figure of the main results is, once the report is written."""
    return folder / "figures" / f"{HEADLINE}.svg"
