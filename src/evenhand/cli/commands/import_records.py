"""`evenhand import`."""

import shlex
from pathlib import Path
from typing import Any

import click

from evenhand.cli.arguments import check_target
from evenhand.cli.options import RunOptions, option, run_options
from evenhand.cli.refusals import OptionError

ROLES = {
    "arm": "arm names",
    "time": "times, or starts of intervals",
    "stop": "ends of intervals",
    "state": "states",
    "from": "states before a change",
    "to": "states after a change",
    "status": "1 if a change happened, else 0",
    "action": "actions",
    "type": "types",
    "group": "groups",
}


def _role_options(command: Any) -> Any:
    for role, words in reversed(ROLES.items()):
        command = option(f"--{role} {role}_column", "COLUMN", f"Column of {words}; found by its name by default.")(
            command
        )
    return command


@click.command("import")
@click.argument("records", nargs=-1, required=True)
@option("--out", "LOG", "Clean table (.csv or .parquet).", required=True)
@option("--rules", "FILE", "Rules to apply; with --accept, where to write them. LOG.rules.toml by default.")
@option("--accept", None, "Apply the proposed rules at once.", is_flag=True)
@_role_options
@run_options(seeded=False)
def command(records: tuple[str, ...], rules: str | None, accept: bool, run: RunOptions, **columns: str | None) -> None:
    """Clean RECORDS, one or several tables, into a log that `evenhand fit` reads.

    RECORDS are CSV (any separator), Excel, Parquet or JSON, possibly with .gz; several tables are joined by arm and
    time. The first run groups what is odd, proposes a rule for each kind, and writes the rules to a small TOML file.
    Edit it if needed, and run again with --rules, or take the proposals with --accept. Needs the extra "data".
    """
    run.check_targets()
    out = str(run.out)
    given = Path(rules) if rules else Path(out).with_suffix(".rules.toml")
    if not rules and not accept and given.exists():
        raise OptionError("--rules", f"{given} exists: apply it with --rules {given}, or replace it with --accept")
    if rules and accept and given.exists():
        raise OptionError("--accept", f"{given} exists and would be replaced; give either --rules or --accept")
    files = [Path(each).resolve() for each in (*records, str(given))]
    if Path(out).resolve() in files or given.resolve() in files[:-1]:
        raise OptionError("--out", "the records, the rules and the clean table must be different files")
    if Path(out).suffix.lower() not in (".csv", ".parquet"):
        raise OptionError("--out", f"expected a file .csv or .parquet, got {out}")
    check_target(str(given), "--rules")
    from evenhand.fitting.cleaning import clean_records

    roles = {name.removesuffix("_column"): column for name, column in columns.items() if column}
    applies = rules is not None and not accept
    cleaned = clean_records(list(records), given if applies else None, roles)
    if not applies:
        title = f"Rules for {', '.join(Path(each).name for each in records)}, proposed by evenhand import."
        cleaned.rules.save(given, f"{title}\nEdit them, and apply them with --rules.")
    if writes := applies or accept or not cleaned.needs_decisions:
        cleaned.save(out)
    frame = cleaned.frame
    named = [
        f"--{role} {role}" for role in ("arm", "time", "state", "action", "type", "group") if role in frame.columns
    ]
    if "action" in frame.columns and frame["action"].null_count():
        named.append("--idle none")
    layout = [f"--layout {cleaned.layout}"] if cleaned.layout else []
    if cleaned.layout or any("." in text for text in frame["time"].head(1000)):
        layout.append("--step LENGTH")
    fit = " ".join(["evenhand fit", shlex.quote(out), *named, *layout, "--out model.toml"])
    again = shlex.join(["evenhand", "import", *records, "--out", out, "--rules", str(given)])
    next_step = f"written to {out}; next: {fit}" if writes else f"check the rules, then: {again}"
    run.show(cleaned, lines=[f"rules: {given}", next_step], rules=str(given), written=out if writes else None)
