"""`evenhand check`."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import number, percent, print_facts, print_json, print_table
from evenhand.cli.opened import opened_model, run_check
from evenhand.cli.reading import read_noting, refuse_several, start_at, with_budgets
from evenhand.model.files import Format

if TYPE_CHECKING:
    from evenhand.planning.check import Check, TypeFacts

SHOWN_TYPES = 50
"""Types shown in the table; --json has all of them."""


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    initial: str | None,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    backend: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Tell what a model says, and what looks odd."""
    refuse_several(budgets)
    if (arms := opened_model(model, backend, budgets, criterion, over, initial)) is not None:
        run_check(arms, backend, as_json, quiet)
        return
    loaded = read_noting(model, parameters, format, criterion)
    (problem,) = with_budgets(start_at(loaded.problem, initial), parameters, budgets)
    from evenhand.planning.check import check_loaded  # after what may be refused at once

    found = check_loaded(replace(loaded, problem=problem.under(criterion, over)), welfare)
    if as_json:
        print_json(as_dict(found))
    else:
        _show(found)


def as_dict(found: "Check") -> dict[str, Any]:
    """The JSON form."""
    problem = found.problem
    return {
        "model": found.source,
        "sound": True,
        "arms": problem.num_arms,
        "criterion": problem.criterion.name,
        "discount": problem.discount,
        "over": problem.over,
        "welfare": {
            "name": found.welfare.name,
            "weight_of_worst_tenth": None if found.weight_of_worst is None else found.weight_of_worst[1],
        },
        "resources": [asdict(resource) for resource in found.resources],
        "groups": found.groups,
        "types": [asdict(facts) for facts in found.types],
        "notes": [asdict(note) for note in found.notes],
    }


def _show(found: "Check") -> None:
    print_facts(found.summary, found.facts)
    columns = ["type", "arms", "states", "starts in", "actions", "served by", "service adds at most"]
    columns += ["group"] if found.groups else []
    columns += ["floor"] if found.problem.has_floors else []
    rows = [_row(t, facts) for t, facts in enumerate(found.types[:SHOWN_TYPES])]
    sides = [(name, "right" if name in ("arms", "service adds at most", "floor") else "left") for name in columns]
    print_table("types", sides, [[row[name] for name in columns] for row in rows])
    if len(found.types) > SHOWN_TYPES:
        click.echo(f"... {len(found.types) - SHOWN_TYPES} more types; --json has all of them\n")
    if found.notes:
        click.echo("what looks odd\n")
    for note in found.notes:
        click.echo(f"  - {note}")


def _row(t: int, facts: "TypeFacts") -> dict[str, str]:
    from evenhand.planning.check import listed, starts_in_words

    return {
        "type": f"{t} {facts.name}".strip(),
        "arms": str(facts.count),
        "states": listed(facts.states),
        "starts in": starts_in_words(facts),
        "actions": listed(facts.actions),
        "served by": listed(facts.served_by) or "nothing",
        "service adds at most": number(facts.service_worth),
        "group": facts.group,
        "floor": percent(facts.floor),
    }
