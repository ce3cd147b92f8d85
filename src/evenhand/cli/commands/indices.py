"""`evenhand indices`."""

from typing import Any

import click

from evenhand.cli.console import number, print_json, print_table
from evenhand.cli.reading import read_problem
from evenhand.model.coupled import CoupledMDP
from evenhand.policies.index import TypeIndices, indices_of

SHOWN_TYPES = 50
"""Types shown in the table; --json has all of them."""


def run(model: str, parameters: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Compute and print Whittle indices."""
    problem = read_problem(model, parameters)
    found = indices_of(problem)
    if as_json:
        print_json({"arms": [_as_dict(problem, found, t) for t in range(problem.num_types)]})
        return
    _show(problem, found, f"Whittle indices of {model}: the charge per active step at which idling is as good")
    if not quiet and not found.result.indexable.all():
        for t in [t for t in range(problem.num_types) if not found.result.indexable[t]][:SHOWN_TYPES]:
            click.echo(f"type {t}: {found.result.explain(t)}")


def _as_dict(problem: CoupledMDP, found: TypeIndices, t: int) -> dict[str, Any]:
    indexable = bool(found.result.indexable[t])
    size = problem.types.num_states[t]
    return {
        "name": problem.types.labels[t][0] if problem.types.labels else "",
        "count": int(problem.type_counts[t]),
        "indexable": indexable,
        "indices": found.result.indices[t, :size].tolist() if indexable else None,
        "reason": None if indexable else found.result.explain(t),
    }


def _show(problem: CoupledMDP, found: TypeIndices, title: str) -> None:
    labels = problem.types.labels
    rows = []
    for t in range(min(problem.num_types, SHOWN_TYPES)):
        name, states, _ = labels[t] if labels else ("", (), ())
        size = int(problem.types.num_states[t])
        words = [f"{states[s] if states else s}: {number(float(found.result.indices[t, s]))}" for s in range(size)]
        verdict = "yes" if found.result.indexable[t] else "no"
        rows.append((f"{t} {name}".strip(), str(problem.type_counts[t]), verdict, ", ".join(words)))
    columns = [("type", "left"), ("arms", "right"), ("indexable", "left"), ("index by state", "left")]
    print_table(title, columns, rows)
    if problem.num_types > SHOWN_TYPES:
        click.echo(f"... {problem.num_types - SHOWN_TYPES} more types; --json has all of them")
