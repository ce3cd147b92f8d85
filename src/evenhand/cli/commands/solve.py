"""`evenhand solve`."""

import shlex
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.commands.budgets import budget_words, refuse_with_several, show_solutions, solutions_as_dict
from evenhand.cli.commands.draws import posterior_of, show_draws, show_knowing, show_robust
from evenhand.cli.console import (
    number,
    objective_words,
    per_arm,
    percent,
    print_facts,
    print_groups,
    print_json,
    print_values,
    really_got,
    say,
    seconds,
)
from evenhand.cli.opened import opened_model, run_solve
from evenhand.cli.progress import progress
from evenhand.cli.reading import called, check_target, read_policy, read_problems
from evenhand.errors import InvalidInput
from evenhand.model.files import Format
from evenhand.model.objective import num_members
from evenhand.model.welfare import is_lexicographic, is_mean, weight_of_worst
from evenhand.planning.names import is_file

if TYPE_CHECKING:
    from evenhand.planning.solution import Solution
    from evenhand.typing import Floats

DEFAULT_TOLERANCE = 1e-8
"""Relative gap at which exact methods stop."""

LARGE_GAP = 0.01
"""From which gap on a search that the time ended is warned of."""

MOST_PARTS = 6
"""Parts of a mixture that are named one by one."""

MOST_COMMON = 3
"""Conditions that all parts begin with that are named."""


def run(
    model: str,
    parameters: tuple[str, ...],
    budgets: tuple[str, ...],
    format: Format | None,
    initial: str | None,
    welfare: str | None,
    criterion: str | None,
    over: str | None,
    method: str,
    candidates: tuple[str, ...],
    tolerance: float | None,
    seconds: float | None,
    rotate: int | None,
    draws: int | None,
    robust: float | None,
    backend: str | None,
    out: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solve and print the certificate."""
    arms = opened_model(model, backend, budgets, criterion, over, initial, out)
    if arms is not None and arms.over == "arms" and not arms.has_floors:
        memory = {"--candidate": candidates or None, "--seconds": seconds, "--rotate": rotate, "--draws": draws}
        for option, given in (memory | {"--robust": robust}).items():
            if given is not None:
                raise InvalidInput(f"{option}: not for a large model in Parquet")
        run_solve(arms, welfare, method, tolerance, backend, out, as_json, quiet)
        return
    tolerance = DEFAULT_TOLERANCE if tolerance is None else tolerance
    check_target(out, "--out")
    by_name = [name for name in candidates if not is_file(name)] or None  # with several budgets plans compete
    refuse_with_several(
        budgets, {"--out": out, "--candidate": by_name, "--draws": draws, "--robust": robust, "--backend": backend}
    )
    posterior = posterior_of(model, draws is not None or robust is not None)
    first, *others = (
        one.under(criterion, over) for one in read_problems(model, parameters, format, budgets, criterion, initial)
    )
    if others:
        every = [problem.budget for problem in (first, *others)]
        with progress(quiet) as tell:
            from evenhand.planning.plans import load_plan
            from evenhand.planning.what_if import what_if  # after what may be refused at once

            plans = [load_plan(name) for name in candidates]
            how = (welfare, method, tolerance, tell, seed)
            rows = what_if(first, every, *how, seconds=seconds, rotate=rotate, plans=plans)
        print_json(solutions_as_dict(rows, as_dict)) if as_json else show_solutions(rows, called(model))
        return
    with progress(quiet) as tell:
        from evenhand.planning.saved import save_solution
        from evenhand.planning.solve import solve as find_best

        tried = {name: read_policy(name, first, welfare) for name in candidates}
        solution = find_best(
            first,
            welfare,
            method,
            tolerance,
            tell,
            seed,
            tried,
            seconds=seconds,
            rotate=rotate,
            draws=draws,
            posterior=posterior,
            robust=robust,
            backend=backend,
        )
        if tell is not None:
            tell("what one unit more is worth", 1.0)
        _ = solution.prices  # computed once, here where progress is told
        if tell is not None and first.has_floors:
            tell("how often each arm is served", 1.0)
        _ = solution.unit_served
    named = welfare or solution.objective.welfare.name
    asked = asked_words(model, parameters, format, named, criterion, over)
    asked += [word for budget in budgets for word in ("--budget", budget)]
    if out:
        save_solution(solution, out, asked)
    if as_json:
        print_json(as_dict(solution, out))
        return
    _show(solution, called(model), budget_words(first, budgets))
    _warn_of_haste(solution)
    _show_draws(solution)
    if out:
        played = [asked[0], out, *asked[1:], *(["--initial", initial] if initial else [])]
        shown, acted = (shlex.join(["evenhand", *words]) for words in (["show", out], ["act", out, "STATES"]))
        click.echo(f"in words: {shown}   what to do now: {acted}")
        click.echo(f"policy: {out}   (play it: {shlex.join(['evenhand', 'evaluate', *played])})")


def _warn_of_haste(solution: "Solution") -> None:
    """Say plainly that a search was cut short where much may be left to gain."""
    if solution.stopped and solution.gap > LARGE_GAP:
        say(
            f"warning: --seconds ended the search early; the best plan may be up to {percent(solution.gap)} better "
            "than this one. More seconds may find a better one"
        )


def _show_draws(solution: "Solution") -> None:
    """What is known of the plan where draws were asked for."""
    if solution.robust is not None:
        show_robust(solution.robust)
    if solution.draws is not None:
        show_draws(solution.draws)
    if solution.worth_knowing is not None:
        show_knowing(solution.worth_knowing)


def asked_words(
    model: str,
    parameters: tuple[str, ...],
    format: str | None,
    welfare: str,
    criterion: str | None,
    over: str | None,
) -> list[str]:
    """MODEL and what was asked of it, as words of a command line; without what changes from day to day."""
    words = [model, *(word for parameter in parameters for word in ("-p", parameter))]
    for option, value in (("--welfare", welfare), ("--format", format), ("--criterion", criterion), ("--over", over)):
        words += [option, value] if value is not None else []
    return words


def as_dict(solution: "Solution", out: str | None) -> dict[str, Any]:
    """The JSON form."""
    worst = weight_of_worst(solution.objective.welfare, 0.1, num_members(solution.problem))
    return {
        "method": solution.method,
        "reason": solution.reason,
        "welfare": {
            "name": solution.objective.welfare.name,
            "value": solution.welfare,
            "upper_bound": solution.upper_bound,
            "gap": solution.gap,
            "stderr": solution.welfare_stderr,
            "interval": list(solution.welfare_interval),
        },
        "criterion": solution.problem.criterion.name,
        "over": solution.problem.over,
        "weight_of_worst_tenth": worst[1] if worst is not None else None,
        "budget": solution.problem.named_budget,
        "prices": solution.prices,
        **_group_facts(solution),
        "gini_coefficient": solution.gini_coefficient,
        **_mixture_facts(solution),
        **per_arm(solution.problem, solution.by_type, _units(solution)),
        **_draws_facts(solution),
        "seconds": solution.seconds,
        "policy": out,
    }


def _draws_facts(solution: "Solution") -> dict[str, Any]:
    """What is known of the plan where draws were asked for; else nothing."""
    found = {"draws": solution.draws, "worth_knowing": solution.worth_knowing, "robust": solution.robust}
    return {name: told.as_dict() for name, told in found.items() if told is not None}


def _group_facts(solution: "Solution") -> dict[str, Any]:
    """The values of groups, and their errors where they are estimates."""
    if not solution.groups:
        return {}
    errors = solution.group_stderr
    told = {} if errors is None else {"groups_stderr": dict(zip(solution.groups, errors.tolist(), strict=True))}
    return {"groups": solution.groups, **told}


def _units(solution: "Solution") -> "dict[str, Floats]":
    """Figures of types or arms: values, their errors where they are estimates, and shares of time served by floors."""
    units = {"values": solution.unit_values, "values_stderr": solution.unit_stderr, "served": solution.unit_served}
    return {name: figures for name, figures in units.items() if figures is not None}


def _mixture_facts(solution: "Solution") -> dict[str, Any]:
    """What is known of a plan that was chosen by playing."""
    from evenhand.model.composite import Mixture

    if not solution.parts:
        return {}
    rotate = solution.policy.rotate if isinstance(solution.policy, Mixture) else None
    return {
        "realised_gini_coefficient": solution.realised_gini,
        "realised_gini_stderr": solution.realised_gini_stderr,
        "parts": [{"policy": part.name, "share": part.share} for part in solution.parts],
        "optimism": solution.optimism,
        "rotate": rotate,
        **({"kept_welfare": solution.kept_welfare} if rotate else {}),
    }


def _mixture_words(solution: "Solution") -> list[tuple[str, str]]:
    """How a plan that was chosen by playing fares, and equal arms within an episode."""
    if not solution.parts:
        return []
    facts = []
    if solution.kept_welfare is not None:
        facts.append(("if kept", f"welfare {number(solution.kept_welfare, 6)}, were it drawn once and kept"))
    if solution.optimism is not None and solution.welfare_stderr > 0:
        facts.append(("optimism", f"{solution.optimism:+.2g} on the episodes it was chosen on, beside fresh ones"))
    realised = really_got(solution.realised_gini, solution.realised_gini_stderr, solution.problem.over)
    facts.append(("inequality", f"Gini coefficient {number(solution.gini_coefficient)} of expected values{realised}"))
    return facts


def _plan_words(solution: "Solution") -> list[tuple[str, str]]:
    """Whom the plan serves first, as `evenhand show` tells it, in short."""
    from evenhand.model.composite import BySteps, Mixture
    from evenhand.planning.plans import plan_of
    from evenhand.planning.showing import beginning_words, often_each, parts_of

    parts, common = parts_of(plan_of(solution))
    if not isinstance(solution.policy, Mixture):
        when = "; at the first step" if isinstance(solution.policy, BySteps) and parts[0].order.ranked else ""
        return [("serves first" if parts[0].order.ranked else "serves most", parts[0].words + when)]
    rotate = solution.policy.rotate
    drawn = "drawn once at the start and kept" if rotate is None else f"drawn anew every {rotate} steps"
    facts = [("plan", f"one of these, {drawn}")]
    if common:
        more = f" and {len(common) - MOST_COMMON} more" if len(common) > MOST_COMMON else ""
        facts.append(("", f"{beginning_words(parts)} {', '.join(common[:MOST_COMMON])}{more}; then"))
    what = "starts" if rotate is None else "times"
    shown, rest = parts[:MOST_PARTS], parts[MOST_PARTS:]
    others = [sum(part.share for part in rest)] if rest else []
    told = [*(part.words for part in shown), f"{len(rest)} others"]
    every = often_each([*(part.share for part in shown), *others], what)
    facts += [("", f"{times}: {words}") for times, words in zip(every, told, strict=False)]
    return facts


def _worth_of_more(solution: "Solution") -> list[tuple[str, str]]:
    """What one unit more of each resource raises the bound by at the most, since that is concave in the budget."""
    from evenhand.planning.showing import PLANS_OWN, worth_of_more

    if not solution.prices:
        return []
    if solution.problem.resources:
        told = "; ".join(worth_of_more(solution.problem, solution.prices, solution.welfare))
    else:
        named = [f"{number(worth)} for {name}" for name, worth in solution.prices.items()]
        told = f"the bound rises by at most {', '.join(named)}"
    whose = ", to the worst-off" if is_lexicographic(solution.objective.welfare) else ""
    return [("one unit more", f"{told} (a step{whose}; {PLANS_OWN})")]


def _weights_in_words(solution: "Solution") -> list[tuple[str, str]]:
    """What share of the weight the worst-off tenth has; nothing where that says nothing."""
    problem, welfare = solution.problem, solution.objective.welfare
    number_of = num_members(problem)
    worst, one = (weight_of_worst(welfare, part, number_of) for part in (0.1, 0.0))
    alike = problem.is_symmetric and problem.over == "arms"  # then every plan that treats them alike is weighed alike
    if worst is None or one is None or is_mean(welfare, number_of) or one[1] == 1 or alike:
        return []
    few, share = worst
    who = "groups" if problem.over == "groups" else "arms"
    have = f"{few} of {number_of} {who} {'has' if few == 1 else 'have'}"
    return [("weights", f"the worst-off {have} {percent(share)} of the weight")]


def _show(solution: "Solution", model: str, budget: str) -> None:
    low, high = solution.welfare_interval
    error = f"  (simulated; 95 % interval {number(low)} to {number(high)})" if solution.welfare_stderr else ""
    facts = [
        ("welfare", number(solution.welfare, 6) + error),
        ("upper bound", number(solution.upper_bound, 6)),
        ("gap", f"{solution.gap:.2g}"),
        *_weights_in_words(solution),
        *_plan_words(solution),
        *_mixture_words(solution),
        *_worth_of_more(solution),
        ("method", f"{solution.method}: {solution.reason}"),
        ("time", " + ".join(f"{seconds(value)} {stage}" for stage, value in solution.seconds.items())),
    ]
    problem = solution.problem
    print_facts(f"{model}, welfare {solution.objective.welfare.name}{objective_words(problem)}{budget}", facts)
    if solution.groups:
        print_groups(solution.groups, solution.group_stderr)
    print_values(problem, solution.by_type, solution.unit_values, solution.unit_stderr, solution.unit_served)
