"""`evenhand solve`."""

import shlex
from dataclasses import dataclass, replace
from typing import Any

import click

from evenhand.cli.arguments import ModelSource, read_policy, refuse_options
from evenhand.cli.options import (
    RunOptions,
    backend_option,
    draws_option,
    gathered,
    model_options,
    option,
    run_options,
    welfare_option,
)


@dataclass(frozen=True)
class SearchOptions:
    """Options of the method."""

    method: str
    candidates: tuple[str, ...]
    tolerance: float | None
    seconds: float | None
    redraw_every: int | None

    def settings(self, **known: Any) -> Any:
        """Return the `SolveMethod`, with candidates or plans by name."""
        from evenhand.planning.task import SolveMethod

        given: dict[str, Any] = {} if self.tolerance is None else {"tolerance": self.tolerance}
        return SolveMethod(self.method, seconds=self.seconds, redraw_every=self.redraw_every, **given, **known)


_METHOD = "counts, joint, count-lp, joint-lp, whittle, fluid, or auto: the exact method that fits, else fluid."
_CANDIDATE = "Let this policy (saved or named) compete with those of the method fluid; repeatable."
_TOLERANCE = "Relative gap to stop at; by default 1e-8, for a large model in Parquet 1e-4."
_REDRAW = "Draw the policy of a mixture again every K steps, not once at the start; both are reported."
_SEARCH = (
    option("--method", "M", _METHOD, default="auto"),
    option("--candidate candidates", "POLICY", _CANDIDATE, multiple=True),
    option("--tolerance", None, _TOLERANCE, type=float),
    option(
        "--seconds",
        "S",
        "Time limit of the method fluid; by default until nothing is gained, or 60 with --draws.",
        type=float,
    ),
    option("--redraw-every", "K", _REDRAW, type=int),
)
search_options = gathered(SearchOptions, "search", _SEARCH)


@click.command("solve")
@model_options(several=True)
@welfare_option
@search_options
@draws_option
@option(
    "--robust",
    "Q",
    "Of a fitted model: maximise the mean of the worst share Q of the scenarios (0.1), and report its cost. "
    "Takes the time of many plans, at most half of --seconds.",
    type=float,
)
@backend_option("policies are simulated, draws evaluated, and blocks of a large model in Parquet solved")
@option("--out", "POLICY", "Save the policy; `evenhand evaluate MODEL POLICY` plays it.")
@run_options()
def command(source: ModelSource, run: RunOptions, search: SearchOptions, robust: float | None) -> None:
    """Find the best policy for MODEL, with a certificate: welfare, upper bound, gap.

    MODEL is a model file (.toml, .json, .npz, .parquet) or a built-in problem (see `evenhand problems`). With several
    --budget, a table: the welfare under each, and the gain from each to the next. Of a model in
    Parquet with more than 100,000 rows, or with --out FILE.parquet, the fair relaxation is solved: its bound, and a
    plan in Parquet.
    """
    arms, out = source.opened(run.out), run.out
    scenario_options = {"--draws": run.draws, "--robust": robust}
    if arms is not None and arms.over == "arms" and not arms.has_floors:
        method = None if search.method in ("auto", "fluid") else search.method
        given = {"--method": method, "--candidate": search.candidates or None, "--seconds": search.seconds}
        given |= {"--redraw-every": search.redraw_every, **scenario_options}
        refuse_options("not for a large model in Parquet, which is solved by fluid", given)
        run.check_targets(folders=True)
        with run.progress() as tell:
            from evenhand.planning.stored_models import solve_stored

            found = solve_stored(arms, run.welfare, search.settings(), tell, run.backend)
            if out is not None:
                found.save(out)
        title = f"{arms.path}, {arms.num_arms:,} arms, welfare {found.objective.welfare.name}{source.setting(arms)}"
        use = f"written to {out}; evenhand evaluate {arms.path} {out} simulates it"
        hint = "--out FILE.parquet writes the value and weight of every row, a plan for act"
        run.show(found, title, [use if out else hint], policy=out)
        return
    run.check_targets()
    from evenhand.planning.policy_registry import is_file

    by_name = [name for name in search.candidates if not is_file(name)] or None  # with several budgets plans compete
    source.refuse_several({"--out": out, "--candidate": by_name, **scenario_options, "--backend": run.backend})
    posterior = source.posterior() if run.draws is not None or robust is not None else None
    problem, *others = source.read_all()
    from evenhand.planning.plan import load_plan, save_solution  # after what may be refused at once
    from evenhand.planning.solve import solve

    with run.progress() as tell:
        if others:
            settings = search.settings(plans=[load_plan(name) for name in search.candidates])
            budgets = [one.budget for one in (problem, *others)]
            show_sweep(solve(problem, run.welfare, settings, budgets=budgets, progress=tell, rng=run.seed), source, run)
            return
        candidates = {name: read_policy(name, problem, run.welfare) for name in search.candidates}
        scenarios = plan = None
        if posterior is not None:
            from evenhand.uncertainty import draw_scenarios, plan_scenarios
            from evenhand.uncertainty.robust_plan import PlanSearch, check_tail
            from evenhand.uncertainty.scenarios import DEFAULT_DRAWS

            check_tail(problem, robust)
            number = run.draws or DEFAULT_DRAWS
            scenarios = draw_scenarios(problem, posterior, number, run.seed, held_out=robust is not None)
            search = replace(search, seconds=(search.seconds or 60.0) / 2)  # the other half is for the scenarios
        where = None if posterior is not None and search.method != "fluid" else run.backend
        settings = search.settings(candidates=candidates)
        solution = solve(problem, run.welfare, settings, progress=tell, rng=run.seed, backend=where)
        if scenarios is not None:
            plan = plan_scenarios(scenarios, solution, robust, tell, run.backend, PlanSearch(seconds=search.seconds))
            solution = plan.solution
        tell("prices and service", 1.0)
        _ = solution.prices, solution.unit_served  # computed while progress is shown: a summary computes nothing
    words = source.words(run.welfare or solution.objective.welfare.name)
    if out:
        save_solution(solution, out, words)
    title = f"{source.title}, welfare {solution.objective.welfare.name}{source.setting(problem)}"
    run.show(plan if plan is not None and run.as_json else solution, title, policy=out)
    if run.as_json:
        return
    for part in () if plan is None else (plan.robust, plan.scenarios, plan.information):
        if part is not None:
            run.show(part)
    if out:
        played = [words[0], out, *words[1:], *(["--initial", source.initial] if source.initial else [])]
        shown, acted = (shlex.join(["evenhand", *typed]) for typed in (["show", out], ["act", out, "STATES"]))
        click.echo(f"in words: {shown}   what to do now: {acted}")
        click.echo(f"policy: {out}   (play it: {shlex.join(['evenhand', 'evaluate', *played])})")


def show_sweep(sweep: Any, source: ModelSource, run: RunOptions) -> None:
    """Print the plans or comparisons of several budgets.

    Args:
        sweep: the `BudgetSweep`.
        source: the model.
        run: options of the output.
    """
    from evenhand.report.summary import summarise

    title = summarise(sweep).title
    run.show(sweep, f"{source.title}: {title[0].lower()}{title[1:]}")
