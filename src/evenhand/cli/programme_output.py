"""Results of `evenhand programme` as texts and tables, and its words as options or answers."""

import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.arguments import DASH
from evenhand.cli.console import table_bytes
from evenhand.cli.options import RunOptions
from evenhand.cli.refusals import OptionError
from evenhand.display import counted
from evenhand.report.format import printable, shortened
from evenhand.report.summary import Summary, table

if TYPE_CHECKING:
    from evenhand.programme.changes import ChangePreview
    from evenhand.programme.decisions import StoredPlan
    from evenhand.programme.programme import Programme
    from evenhand.programme.refit import Refitted
    from evenhand.programme.vocabulary import Vocabulary

SHOWN = 200
"""Rows that are listed; --json and --out have all of them."""

COLUMNS = ("arm", "type", "group", "state", "known", "action", "next_in_line", "reason")
"""Columns of a plan on the terminal."""

MOST_TESTED = 50_000
"""Reports beyond which a plan does not wait for the test of its model."""


def event_content(body: Mapping[str, Any], run: RunOptions) -> str:
    """Return the content of an event in short: lists are counted, tables and digests left out."""
    words, parts = run.vocabulary, []
    assert words is not None
    for name, value in sorted(body.items(), key=lambda item: not item[0].endswith("step")):
        if isinstance(value, list):
            names = [one for one in value if isinstance(one, str)]
            parts.append(f"{words.say(name)} {', '.join(names) if 0 < len(names) == len(value) < 4 else len(value)}")
        elif name == "step":
            parts.append(words.name(value))
        elif name == "from_step":
            parts.append(f"from {words.name(value)}")
        elif not (isinstance(value, dict) or value is None or len(str(value)) == 64):
            parts.append(f"{words.say(name)} {value}")
    return shortened("; ".join(parts), 100)


def own_table(run: RunOptions, rows: Sequence[dict[str, Any]], name: str) -> bytes:
    """Return a table with heads in the words of the programme, but in JSON."""
    words = None if Path(name).suffix.lower() == ".json" else run.vocabulary
    return table_bytes(rows if words is None else list(map(words.row, rows)), name)


def rows_summary(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0, notes: Sequence[str] = ()
) -> Summary:
    """Return a table of texts and notes below it, without control characters."""
    cells = [[printable(cell) for cell in row] for row in rows]
    lines = [printable(note) for note in notes]
    return Summary(title, tables=[table("", heads, cells, more, heads)], notes=lines)


def address_of(one: "Programme") -> str:
    """Return the name of a programme in commands, without a password, since output is logged."""
    return printable(one.store.address)


def drift_notices(one: "Programme") -> list[str]:
    """Describe drift beyond its bound, and the command that does something about it."""
    anew = f"`evenhand programme solve {address_of(one)}` finds a new policy"
    return [f"{why}: {anew}" for why in one.needs_solving().why] + _model_notices(one, MOST_TESTED)


def _model_notices(one: "Programme", most: int | None = None) -> list[str]:
    offer, name = one.offered(), address_of(one)
    if offer is not None:
        ways = f"`evenhand programme refits {name} {offer.refit}` shows it, `adopt` or `decline` answers it"
        return [*offer.why, f"refit {offer.refit} is offered: {ways}"]
    drift = one.model_drift(most)
    if most is not None and drift.reports > most:
        return [f"not tested against {counted(drift.reports, 'report')}: `evenhand programme status {name}` does it"]
    if not drift.needed:
        return []
    return [*drift.why, f"`evenhand programme refit {name}` fits the model again and shows what would change"]


def show_status(one: "Programme", run: RunOptions) -> None:
    """Print the status of a programme."""
    found, drift = one.status(), one.needs_solving()
    certificate = one.certificate() if drift.policy else None
    if run.as_json:
        offer = one.offered()
        more = {"certificate": None if certificate is None else certificate.to_dict(), "solve": drift.to_dict()}
        more |= {"model_drift": one.model_drift().to_dict(), "offered": None if offer is None else offer.to_dict()}
        run.say(found.to_dict() | more, "")
        return
    numbers, words = ", ".join(f"{number} {kind}" for kind, number in found.arms.items()), one.vocabulary()
    total = f"{counted(sum(found.arms.values()), 'arm')}{f' ({numbers})' if len(found.arms) > 1 else ''}"
    facts = [
        ("budget", f"{words.share(found.budget)} per step"),
        ("welfare", f"{found.welfare}, over {found.over}, {found.criterion}"),
    ]
    if certificate is not None:
        value = f"{certificate.welfare:.6g}, at most {certificate.upper_bound:.6g}, gap {100 * certificate.gap:.3g} %"
        facts.append(("policy", f"{value}, for the present roster"))
    facts += [("solve", why) for why in drift.why] + [("model", why) for why in _model_notices(one)]
    title = f"{found.name}: step {found.step}, {total}; {found.observed} seen at this step"
    run.say({}, Summary(title, facts=[*facts, ("events", str(found.events))]))


def plan_summary(found: "StoredPlan", words: "Vocabulary") -> Summary:
    """Return a plan as a table, with notes, in the words of its programme for resources."""
    from evenhand.programme.decisions import drawn_part

    seen = f"{found.missing} of {found.arms} arms not seen, and believed" if found.missing else "all arms seen"
    rows = sorted(found.rows, key=lambda row: (not row.served, row.next_in_line or len(found.rows) + 1))
    heads = [column.replace("next_in_line", "next") for column in COLUMNS]
    shown = [[getattr(row, column) for column in COLUMNS] for row in rows[:SHOWN]]
    used = [f"{amount:g} of {words.resource(name).counted(found.budget[name])}" for name, amount in found.used.items()]
    notes = [f"used: {', '.join(used)}", *([f"note: {found.note}"] if found.note else [])]
    notes += [f"warning: {line}" for line in found.warnings]
    if found.part is not None:
        notes.append(f"{drawn_part(found.part)}.")
    title = f"plan {found.id} of step {found.step}, {found.status}; {seen}"
    return rows_summary(title, heads, shown, len(rows) - SHOWN, notes)


def change_summary(found: "ChangePreview") -> Summary:
    """Return the effect of a lasting change as a table, with notes."""
    rows = [
        [row.group, row.arms, "" if row.before is None else f"{row.before:.4g}", f"{row.after:.4g}"]
        for row in found.groups
    ]
    effect = "" if found.difference is None else f"welfare {found.difference:+.4g}, compared with the plan in use"
    if effect and not found.measurable:
        effect = "no measurable difference in welfare"
    elif found.by_plan:
        effect += f"; {found.by_plan:+.4g} of it by a better plan, which needs no change"
    bound = f"welfare {found.after.welfare:.6g}, at most {found.after.upper_bound:.6g}"
    notes = [*([effect] if effect else []), bound, "nothing is changed yet; --adopt adopts it"]
    return rows_summary("; ".join(found.change.said), ("group", "arms", "value before", "after"), rows, notes=notes)


def standing(found: "Refitted", model: str) -> str:
    """Return the outcome of a refit.

    Args:
        found: the refit.
        model: digest of the model in use.
    """
    if found.model == model:
        return "in use"
    if found.adopted_event is not None:
        return "was in use"
    if found.declined_event is not None:
        return "declined"
    return "offered" if found.why and found.before == model else "not adopted"


def show_refit(found: "Refitted", run: RunOptions, name: str) -> None:
    """Print what a refit would change."""
    columns = ("type", "state", "action", "next_state", "before", "after")
    rows = [
        [*(getattr(row, column) for column in columns), f"{row.lower:.3g} to {row.upper:.3g}", row.seen]
        for row in [row for row in found.moved if row.is_beyond_chance][:SHOWN]
    ]
    before, after = ["impossible" if value is None else f"{value:.6g}" for value in found.likelihood]
    now, then = found.welfare
    known = "" if now is None else f"the present policy has {now:.6g} in it, "
    changes = "; ".join(f"{arm} {old} -> {new}" for arm, old, new in found.plan[:10])
    more = f" and {len(found.plan) - 10} more" if len(found.plan) > 10 else ""
    unseen = f"never seen, and left as they are: {counted(len(found.unseen), 'pair')} of state and action"
    notes = [
        f"log-likelihood {before} before, {after} after",
        *([unseen] if found.unseen else []),
        f"welfare: {known}the new one {0.0 if then is None else then:.6g}",
        f"in a plan now: {changes}{more}" if found.plan else "a plan now would be the same",
        *(f"why: {why}" for why in found.why),
        f"to adopt it: evenhand programme adopt {name} {found.id}",
    ]
    title = f"refit {found.id}: {counted(found.rows, 'row')}; probabilities that differ beyond chance"
    run.say(found.to_dict(), rows_summary(title, (*columns, "95 %", "seen"), rows, notes=notes))


def read_words(file: str | None, single: Sequence[str], start: str | None, period: str | None) -> dict[str, Any]:
    """Return fields of `Vocabulary` from the options; a word of an unknown term is that of a resource."""
    from evenhand.programme.vocabulary import NOUNS

    words: dict[str, Any] = {}
    if file is not None:
        try:
            words = tomllib.loads(Path(file).read_text("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise OptionError("--words", f"{file} is invalid TOML: {error}") from None
    for text in single:
        term, equals, word = (part.strip() for part in text.partition("="))
        if not (term and equals and word):
            raise OptionError("--word", f"expected TERM=WORD, got {text!r}")
        own = words if term in (*NOUNS, "value") else words.setdefault("resources", {})
        own[term] = word
    return words | {name: given for name, given in (("start", start), ("period", period)) if given}


def ask_words(resources: Sequence[str]) -> dict[str, Any]:
    """Prompt for the words and the calendar of a new programme; Enter takes what is proposed."""
    click.echo("The words of this programme. Enter takes what is in brackets; a plural may follow a comma.", err=True)
    asked = {"arm": "Who shares: patient, machine, ...", "group": "Whom it is compared by: clinic, district, ..."}
    words: dict[str, Any] = {term: click.prompt(text, default=term, err=True) for term, text in asked.items()}
    own = {name: click.prompt(f"One of the resource {name}", default=name, err=True) for name in resources}
    words["resources"] = {name: word for name, word in own.items() if word != name}
    words["value"] = click.prompt("What a value counts: weeks on treatment, ...", default="value", err=True)
    periods = click.Choice(["day", "week", "month", "quarter", "year", "none"])
    period = click.prompt("How often there is a plan: every", type=periods, default="none", err=True)
    if period == "none":
        return words | {"step": click.prompt("The word for a step: round, shift, ...", default="step", err=True)}
    first = click.prompt(f"The first day of the first {period}", default=date.today().isoformat(), err=True)
    return words | {"period": period, "start": first}


def read_wait(text: str) -> int | None:
    """Read a number of steps; None for -."""
    if text == DASH:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise OptionError("--max-wait", f"expected a whole number of steps, or -, got {text!r}")
    return int(text)
