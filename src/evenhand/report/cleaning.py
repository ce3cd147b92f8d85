"""Summary of cleaned records."""

from collections.abc import Sequence

from evenhand.display import counted
from evenhand.fitting.cleaning import CleanedRecords, Finding
from evenhand.report.summary import Summary, Table, summarise, table


@summarise.register
def _cleaned(cleaned: CleanedRecords) -> Summary:
    frame = cleaned.frame
    facts = [
        ("rows", f"{cleaned.num_rows:,} read, {len(frame):,} clean"),
        ("arms", f"{frame['arm'].n_unique():,}"),
        ("times", cleaned.span),
    ]
    for role in ("state", "action", "type", "group"):
        if role in frame.columns:
            names = frame[role].drop_nulls().unique(maintain_order=True)
            facts.append((f"{role}s", f"{', '.join(names.head(8))}{f' and {len(names) - 8} more' * (len(names) > 8)}"))
    odd = "oddities and proposed rules" if cleaned.is_proposal else "oddities that the rules do not cover"
    tables = [_listed(odd, cleaned.findings)] if cleaned.findings else []
    if cleaned.effects:
        tables.append(_listed("effects of the rules", cleaned.effects))
    return Summary("records", counted(len(frame), "clean row"), facts=facts, tables=tables)


def _listed(caption: str, findings: Sequence[Finding]) -> Table:
    rows = [
        [finding.kind, f"{finding.count:,}" if finding.count else "", finding.message, "; ".join(finding.examples)]
        for finding in findings
    ]
    return table(caption, ["kind", "rows", "", "examples"], rows, text=("", "examples"))
