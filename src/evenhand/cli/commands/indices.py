"""`evenhand indices`."""

from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.console import number, print_json, print_table
from evenhand.cli.opened import opened_model, refuse_in_memory, run_indices
from evenhand.cli.reading import called, read_problem
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import Format

if TYPE_CHECKING:
    from evenhand.policies.index import TypeIndices
    from evenhand.typing import Floats

SHOWN_TYPES = 50
"""Types shown in the table; --json has all of them."""

SHOWN_STEPS = 7
"""Steps of a finite horizon up to which all are shown; of more the first two, the middle and the last three."""


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    criterion: str | None,
    backend: str | None,
    out: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compute and print Whittle indices."""
    if (arms := opened_model(model, backend, budgets, criterion, table=out)) is not None:
        run_indices(arms, backend, out, as_json, quiet)
        return
    refuse_in_memory(out=out)
    problem = read_problem(model, parameters, format, budgets, criterion).under(criterion)
    from evenhand.policies.index import indices_of  # after what may be refused at once

    found = indices_of(problem)
    name = problem.criterion.name
    if as_json:
        arms = [_as_dict(problem, found, t) for t in range(problem.num_types)]
        print_json({"criterion": name, "arms": arms})
        return
    under = "" if name == "discounted" else f", {name}"
    _show(
        problem,
        found,
        f"Whittle indices of {called(model)}{under}: the charge per active step at which idling is as good",
    )
    if not found.result.indexable.all():
        for t in [t for t in range(problem.num_types) if not found.result.indexable[t]][:SHOWN_TYPES]:
            click.echo(f"type {t}: {found.result.explain(t)}")


def _as_dict(problem: CoupledMDP, found: "TypeIndices", t: int) -> dict[str, Any]:
    indexable, refused = bool(found.result.indexable[t]), t in found.result.refused
    size = problem.types.num_states[t]
    return {
        "name": found.names[t],
        "count": int(problem.type_counts[t]),
        "indexable": None if refused else indexable,
        "indices": found.result.indices[t, ..., :size].tolist() if indexable else None,
        "reason": None if indexable else found.result.explain(t),
    }


def _about(problem: CoupledMDP, found: "TypeIndices", t: int) -> tuple[str, str, str]:
    """Its name, how many there are, and the verdict."""
    verdict = "yes" if found.result.indexable[t] else "undefined" if t in found.result.refused else "no"
    return f"{t} {found.names[t]}".strip(), str(problem.type_counts[t]), verdict


def _in_words(problem: CoupledMDP, indices: "Floats", t: int) -> str:
    """The index of each state of a type."""
    states = problem.types.labels[t][1] if problem.types.labels else ()
    size = int(problem.types.num_states[t])
    return ", ".join(f"{states[s] if states else s}: {number(float(indices[s]))}" for s in range(size))


def _steps_shown(num_steps: int) -> list[int]:
    """All steps, or the first, the middle and the last."""
    if num_steps <= SHOWN_STEPS:
        return list(range(num_steps))
    return [0, 1, num_steps // 2, num_steps - 3, num_steps - 2, num_steps - 1]


def _show(problem: CoupledMDP, found: "TypeIndices", title: str) -> None:
    num_steps = problem.criterion.num_steps
    rows: list[tuple[str, ...]] = []
    for t in range(min(problem.num_types, SHOWN_TYPES)):
        first = _about(problem, found, t)
        if num_steps is None:
            rows.append((*first, _in_words(problem, found.result.indices[t], t)))
            continue
        for step in _steps_shown(num_steps) if found.result.indexable[t] else [0]:
            words = _in_words(problem, found.result.indices[t, step], t)
            rows.append((*first, str(step), str(num_steps - step), words))
            first = ("", "", "")
    columns = [("type", "left"), ("arms", "right"), ("indexable", "left")]
    columns += [("step", "right"), ("steps to go", "right")] if num_steps is not None else []
    print_table(title, [*columns, ("index by state", "left")], rows)
    if problem.num_types > SHOWN_TYPES:
        click.echo(f"... {problem.num_types - SHOWN_TYPES} more types; --json has all of them")
