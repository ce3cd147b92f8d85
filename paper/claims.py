"""The claims of the paper, and findings of ours, each checked against the tables of a run.

A claim is a function of the tables that returns the numbers by place that decide it, the test that each must pass, and
the evidence as a sentence. It holds if all places pass, in part if some do, and is `not run` without numbers. Two
decimals show a welfare to 0.005: what differs by less is equal. Close to the optimum is within 2 percent.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paper.tables import Entry, Table, figure_text, row_number

Tables = Mapping[str, Mapping[str, Table]]
"""Target and name to a table."""

Numbers = dict[str, float]
"""A number per place, such as `Exponential, N = 3`."""

Verdict = tuple[Numbers, Callable[[float], bool], str]

EQUAL, CLOSE = 0.005, 2.0
WELFARE = {"table-1": "Exponential", "table-2": "Quadratic"}
ALGORITHMS = {"table-3": "Exponential", "table-4": "Quadratic"}
NBSP = "\u00a0"


@dataclass(frozen=True)
class Claim:
    """A checked claim."""

    title: str
    verdict: str
    """holds, holds in part, does not hold or not run."""
    evidence: str
    is_finding: bool
    """Ours rather than the paper's."""


_CHECKS: list[tuple[str, bool, Callable[[Tables], Verdict]]] = []


def _claim(title: str, finding: bool = False) -> Callable[[Callable[[Tables], Verdict]], Callable[[Tables], Verdict]]:
    def register(check: Callable[[Tables], Verdict]) -> Callable[[Tables], Verdict]:
        _CHECKS.append((title, finding, check))
        return check

    return register


def check_claims(tables: Tables) -> list[Claim]:
    """Every claim and finding, in order."""
    claims = []
    for title, finding, check in _CHECKS:
        try:
            numbers, passes, evidence = check(tables)
        except (KeyError, ValueError):  # the run lacks a target, or a place that the sentence names
            claims.append(Claim(title, "not run", "", finding))
            continue
        passed = sum(map(passes, numbers.values()))
        verdict = "holds" if passed == len(numbers) else "holds in part" if passed else "does not hold"
        where = (
            f"{passed} of {len(numbers)}"
            if 0 < passed < len(numbers)
            else f"{'all' if passed else 'none of'} {len(numbers)}"
        )
        claims.append(Claim(title, verdict, evidence.replace("{passed}", where), finding))
    return claims


# -- numbers from tables ---------------------------------------------------------------------------------------------


def _ours(entry: Entry) -> float | None:
    return entry.ours


def _paper(entry: Entry) -> float | None:
    return entry.paper


def _protocol(entry: Entry) -> float | None:
    return entry.by_protocol if entry.by_protocol is not None else entry.ours


def _figures(
    tables: Tables, targets: Mapping[str, str], methods: Sequence[str], whose: Callable[[Entry], float | None] = _ours
) -> Iterator[tuple[str, dict[str, float]]]:
    """Per row of the welfare tables, the known figures of the methods."""
    for target, name in targets.items():
        table = tables[target]["welfare"]
        for row in table.rows:
            entries = {method: table.entries.get((row, method), Entry()) for method in methods}
            known = {method: value for method, entry in entries.items() if (value := whose(entry)) is not None}
            yield f"{name}, {row}" if name else row, known


def _loss(tables: Tables, targets: Mapping[str, str], of: str, against: str, whose: Callable = _ours) -> Numbers:
    """Percent of `against` that `of` lacks, per row; of several methods, separated by commas, the best counts."""
    rows = _figures(tables, targets, [*of.split(","), against], whose)
    found = {row: (known.pop(against, None), max(known.values(), default=None)) for row, known in rows}
    return {
        row: 100 * (base - value) / abs(base)
        for row, (base, value) in found.items()
        if base is not None and value is not None
    }


def _lead(tables: Tables, targets: Mapping[str, str], of: str, over: str) -> Numbers:
    """Welfare of `of` less the best of `over`, per row; the place names the best of several."""
    rivals, numbers = over.split(","), {}
    for row, known in _figures(tables, targets, [of, *rivals]):
        value, others = known.get(of), {name: known[name] for name in rivals if name in known}
        if value is not None and others:
            best = max(others, key=lambda name: others[name])
            numbers[f"over {best}, {row}" if len(rivals) > 1 else row] = value - others[best]
    return numbers


def _above_published(
    tables: Tables, targets: Mapping[str, str], columns: str, whose: Callable = _ours, table: str = "welfare"
) -> Numbers:
    """Our figures less the published ones."""
    numbers, wanted = {}, columns.split(",") if columns else []
    for target, name in targets.items():
        for (row, column), entry in tables[target][table].entries.items():
            value = whose(entry)
            known = value is not None and entry.ours is not None and entry.paper is not None
            if known and (not wanted or column in wanted):
                place = f"{name}, {row}" if len(wanted) == 1 else f"{column}, {name}, {row}"
                numbers[place] = value - entry.paper
    return numbers


# -- words -----------------------------------------------------------------------------------------------------------


def _largest(numbers: Numbers) -> tuple[float, str]:
    return max((value, place) for place, value in numbers.items())


def _smallest(numbers: Numbers) -> tuple[float, str]:
    return min((value, place) for place, value in numbers.items())


def _digits(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"


def _percent(value: float) -> str:
    if abs(value) < 0.001:
        return f"less than 0.001{NBSP}%"
    return f"{value:.1f}{NBSP}%" if abs(value) >= 0.1 else f"{value:.1g}{NBSP}%"


def _signed(value: float) -> str:
    text = f"{value:+.2f}" if abs(value) >= 0.1 else f"{value:+.3f}"
    return text.replace("-", "−") if text.strip("+-0.") else text.lstrip("+-")


def _span(numbers: Numbers) -> str:
    """`+0.11 (N = 2) to +1.17 (N = 5)`."""
    (low, first), (high, last) = _smallest(numbers), _largest(numbers)
    if _signed(low) == _signed(high):
        return f"{_signed(low)} throughout"
    return f"{_signed(low)} ({first}) to {_signed(high)} ({last})"


# -- experiment 1: optimality ----------------------------------------------------------------------------------------


@_claim("The optimal welfare (column OPT) is as published, to two decimals")
def _published_optimum(tables: Tables) -> Verdict:
    numbers = {place: abs(value) for place, value in _above_published(tables, WELFARE, "OPT").items()}
    value, place = _largest(numbers)
    evidence = f"It agrees in {{passed}} cells; the largest difference is {_digits(value)} ({place})."
    return numbers, lambda difference: difference <= EQUAL, evidence


def _close_to_optimum(tables: Tables, method: str) -> Verdict:
    numbers, paper = _loss(tables, WELFARE, method, "OPT"), _loss(tables, WELFARE, method, "OPT", _paper)
    (value, place), (published, _) = _largest(numbers), _largest(paper)
    evidence = (
        f"It is within {CLOSE:g}{NBSP}% of the optimum in {{passed}} cells; the largest loss is {_percent(value)} "
        f"({place}), in the paper's own figures {_percent(published)}."
    )
    return numbers, lambda loss: loss <= CLOSE, evidence


@_claim("CP-DRL comes close to the optimum")
def _network_close(tables: Tables) -> Verdict:
    return _close_to_optimum(tables, "CP-DRL")


def _beats(tables: Tables, targets: Mapping[str, str], over: str, whom: str | None = None) -> Verdict:
    numbers = _lead(tables, targets, "CP-DRL", over)
    evidence = f"CP-DRL has more in {{passed}} cells; its lead over {whom or over} is {_span(numbers)}."
    return numbers, lambda lead: lead > EQUAL, evidence


@_claim("CP-DRL beats the Whittle index policy on Exponential-RCCC: with indices as the paper computed them")
def _beats_searched_indices(tables: Tables) -> Verdict:
    return _beats(tables, {"table-1": "Exponential"}, "WIP")


@_claim("CP-DRL beats the Whittle index policy on Exponential-RCCC: with exact indices")
def _beats_exact_indices(tables: Tables) -> Verdict:
    return _beats(tables, {"table-1": "Exponential"}, "WIP exact")


@_claim("The Whittle index policy does not reach the optimum on Exponential-RCCC")
def _whittle_below_optimum(tables: Tables) -> Verdict:
    exponential = {"table-1": "Exponential"}
    exact, _ = _largest(_loss(tables, exponential, "WIP exact", "OPT"))
    searched, _ = _largest(_loss(tables, exponential, "WIP", "OPT"))
    evidence = (
        f"With exact indices it loses at most {_percent(exact)}; with indices searched between −2 and 2 only, as the "
        f"paper did, up to {_percent(searched)}."
    ).replace("at most less", "less")
    return _lead(tables, exponential, "OPT", "WIP exact"), lambda lead: lead > EQUAL, evidence


# -- experiment 2: flexibility, and the other methods ----------------------------------------------------------------


@_claim("One network, CP-DRL(MT), serves every number of machines, close to the optimum")
def _multi_task_close(tables: Tables) -> Verdict:
    return _close_to_optimum(tables, "CP-DRL(MT)")


@_claim("CP-DRL beats Vanilla-DRL that always replaces a machine, as in the paper")
def _beats_vanilla(tables: Tables) -> Verdict:
    return _beats(tables, WELFARE, "V-DRL")


@_claim("CP-DRL beats Vanilla-DRL that may also replace none")
def _beats_idle_vanilla(tables: Tables) -> Verdict:
    return _beats(tables, WELFARE, "V-DRL(idle)")


@_claim("CP-DRL beats the simple rules and the random agent (OFT, MYP, EQR, RDM)")
def _beats_rules(tables: Tables) -> Verdict:
    return _beats(tables, WELFARE, "OFT,MYP,EQR,RDM", "the best of them")


# -- experiment 3: scale ---------------------------------------------------------------------------------------------


@_claim("A network trained on 10 machines, CP-DRL(SC), does as well on up to 100 as networks trained there")
def _scales(tables: Tables) -> Verdict:
    by_size = {"figure-2a": ""}
    numbers = _loss(tables, by_size, "CP-DRL(SC)", "CP-DRL")
    (value, place), (optimum, _) = _largest(numbers), _largest(_loss(tables, by_size, "CP-DRL(SC)", "OPT"))
    evidence = (
        f"It is at most 1{NBSP}% behind in {{passed}} sizes; at worst {_percent(value)} behind ({place}). "
        f"Against the exact optimum it loses at most {_percent(optimum)}."
    ).replace("at most less", "less")
    return numbers, lambda loss: loss <= 1.0, evidence


@_claim("CP-DRL stays above the Whittle index policy up to 100 machines: with indices as the paper computed them")
def _above_searched_indices(tables: Tables) -> Verdict:
    return _beats(tables, {"figure-2a": ""}, "WIP")


@_claim("CP-DRL stays above the Whittle index policy up to 100 machines: with exact indices")
def _above_exact_indices(tables: Tables) -> Verdict:
    return _beats(tables, {"figure-2a": ""}, "WIP exact")


# -- experiment 4: time ----------------------------------------------------------------------------------------------


@_claim("The time of an episode grows linearly with the number of machines, because drawing actions is the bottleneck")
def _linear_time(tables: Tables) -> Verdict:
    table, powers, parts = tables["figure-2b"]["seconds"], {}, []
    sizes = {row: row_number(row) or math.nan for row in table.rows}
    (first, few), (last, many) = (
        min(sizes.items(), key=lambda item: item[1]),
        max(sizes.items(), key=lambda item: item[1]),
    )
    for column in table.columns:
        start, end = table.at(first, column).ours, table.at(last, column).ours
        if start and end:
            powers[column] = math.log(end / start) / math.log(many / few)
            parts.append(f"{column} takes {_digits(end / start)} times as long")
    evidence = (
        f"From {few:g} to {many:g} machines, {', '.join(parts[:-1])} and {parts[-1]}. Linear growth would be "
        f"{many / few:g} times. Ours draws nothing machine by machine: counts are served and moved at once, many "
        "episodes together."
    )
    return powers, lambda power: power >= 0.7, evidence


@_claim("The share of machines that can be replaced has little impact on times")
def _budget_hardly_matters(tables: Tables) -> Verdict:
    times: dict[str, list[float]] = {}
    for target in ("figure-2b", "figure-2c"):
        for table in tables[target].values():
            for (row, column), entry in table.entries.items():
                if entry.ours is not None:
                    times.setdefault(f"{column}, {row if row.startswith('N') else 'all budgets'}", []).append(
                        entry.ours
                    )
    numbers = {place: max(own) / min(own) for place, own in times.items() if len(own) > 1}
    value, place = _largest(numbers)
    evidence = (
        "Times at the same number of machines differ by a factor of at most 1.5 in {passed} cells; "
        f"the largest factor is {_digits(value)} ({place})."
    )
    return numbers, lambda factor: factor <= 1.5, evidence


# -- appendix: algorithms and linear programs ------------------------------------------------------------------------


@_claim("PPO reaches more than SAC and TD3, or as much")
def _best_algorithm(tables: Tables) -> Verdict:
    numbers = _lead(tables, ALGORITHMS, "PPO", "SAC,TD3")
    evidence = f"PPO has at least as much in {{passed}} cells; its lead over the best of them is {_span(numbers)}."
    return numbers, lambda lead: lead >= -EQUAL, evidence


@_claim("PPO is more stable over seeds than SAC and TD3")
def _stable_algorithm(tables: Tables) -> Verdict:
    deviations = {}
    for method in ("PPO", "SAC", "TD3"):
        rows = _figures(tables, ALGORITHMS, [method], lambda entry: entry.deviation)
        known = [value for _, figures in rows for value in figures.values()]
        deviations[method] = sum(known) / len(known) if known else math.nan
    listed = ", ".join(f"{method} {value:.3f}" for method, value in deviations.items())
    evidence = f"The standard deviation over seeds is on average {listed}; SAC and TD3 had half the steps."
    rivals = {method: value for method, value in deviations.items() if method != "PPO"}
    return rivals, lambda deviation: deviations["PPO"] <= deviation, evidence


@_claim("The linear programs have the published numbers of constraints and variables")
def _program_sizes(tables: Tables) -> Verdict:
    programs = {"table-5": "table-5", "table-6": "table-6"}
    numbers = _above_published(tables, programs, "", table="sizes")
    return numbers, lambda difference: difference == 0, "Counted as the paper counts, they are equal in {passed} cells."


@_claim("The count LP is far smaller than the GGF-LP, and faster")
def _count_program_faster(tables: Tables) -> Verdict:
    joint, count = tables["table-5"], tables["table-6"]
    seconds = {
        column: (joint["times"].at("Total", column).ours, count["times"].at("Total", column).ours)
        for column in joint["times"].columns
    }
    numbers = {column: slow / fast for column, (slow, fast) in seconds.items() if slow and fast}
    last = list(numbers)[-1]
    slow, fast = seconds[last]
    sizes = [figure_text(one["sizes"].at("Variables", last).ours, one["sizes"]) for one in (count, joint)]
    evidence = (
        f"It is faster at {{passed}} sizes. At {last} it takes {1000 * (fast or 0):.0f}{NBSP}ms, not {slow:.0f}{NBSP}s"
        f": {numbers[last]:,.0f} times faster, with {sizes[0]} variables, not {sizes[1]}."
    )
    return numbers, lambda ratio: ratio > 1, evidence


# -- findings --------------------------------------------------------------------------------------------------------


def _reach_published(tables: Tables, columns: str) -> Verdict:
    numbers = _above_published(tables, WELFARE, columns)
    protocol = _above_published(tables, WELFARE, columns, _protocol)
    (value, place), (simulated, where) = _smallest(numbers), _smallest(protocol)
    count = sum(difference >= -EQUAL for difference in protocol.values())
    evidence = (
        f"They do in {{passed}} cells; the smallest lead over the paper is {_signed(value)} ({place}). Measured as the "
        f"paper does, by simulation and biased downwards, in {count} of {len(protocol)} cells; at the least "
        f"{_signed(simulated)} ({where})."
    )
    return numbers, lambda difference: difference >= -EQUAL, evidence


@_claim("Our trained networks reach at least the published welfare", finding=True)
def _networks_reach_published(tables: Tables) -> Verdict:
    return _reach_published(tables, "CP-DRL,CP-DRL(MT)")


@_claim("They do so with the paper's own allocation, drawing by priority (Algorithm 1), too", finding=True)
def _sampling_reaches_published(tables: Tables) -> Verdict:
    return _reach_published(tables, "CP-DRL(PS)")


@_claim("The published WIP column is what a search for indices between −2 and 2 gives", finding=True)
def _searched_indices_explain(tables: Tables) -> Verdict:
    numbers = {place: abs(value) for place, value in _above_published(tables, WELFARE, "WIP", _protocol).items()}
    exact = {place: abs(value) for place, value in _above_published(tables, WELFARE, "WIP exact", _protocol).items()}
    (value, place), (other, _) = _largest(numbers), _largest(exact)
    evidence = (
        "With such indices, measured as the paper does, we are within 0.1 of it in {passed} cells "
        f"(at most {value:.2f} off, {place}); with exact indices we are up to {other:.2f} off."
    )
    return numbers, lambda difference: difference <= 0.1, evidence


@_claim("With more machines the optimum approaches the fluid bound", finding=True)
def _optimum_approaches_bound(tables: Tables) -> Verdict:
    excess = {row: -loss for row, loss in _loss(tables, {"beyond-exact": ""}, "fluid bound", "OPT").items()}
    rows, gaps = list(excess), list(excess.values())
    evidence = f"The bound is {_percent(gaps[0])} above the optimum at {rows[0]}, {_percent(gaps[-1])} at {rows[-1]}."
    falls = {row: before - after for row, before, after in zip(rows[1:], gaps, gaps[1:], strict=False)}
    return falls, lambda fall: fall > 0, evidence


@_claim("If arms differ, fairness has a price: the worst-off gain, and the mean falls", finding=True)
def _price_of_fairness(tables: Tables) -> Verdict:
    numbers, parts = {}, []
    for name, table in tables["beyond-fairness"].items():
        if name.startswith("outcomes"):
            worst, mean = (
                [table.entries[row, column].ours or math.nan for row in ("utilitarian", "maximin")]
                for column in ("worst-off arm", "mean")
            )
            title = table.caption.partition(":")[0]
            numbers[title] = min(worst[1] - worst[0], mean[0] - mean[1])
            parts.append(f"{title}: worst-off {worst[0]:.4g} to {worst[1]:.4g}, mean {mean[0]:.4g} to {mean[1]:.4g}")
    return numbers, lambda change: change > 0, f"From the best mean to maximin. {'. '.join(parts)}."


@_claim("CP-DRL is close to the optimum where no Whittle index exists", finding=True)
def _beyond_indexability(tables: Tables) -> Verdict:
    problems = {"beyond-indexability": ""}
    numbers = _loss(tables, problems, "CP-DRL", "OPT")
    (value, place), (index, _) = (
        _largest(numbers),
        _largest(_loss(tables, problems, "fair-index,occupancy-priority,re-solving", "OPT")),
    )
    evidence = (
        f"It is within {CLOSE:g}{NBSP}% in {{passed}} problems; at most {_percent(value)} is lost ({place}). "
        f"The best fluid policy of each problem loses at most {_percent(index)}."
    )
    return numbers, lambda loss: loss <= CLOSE, evidence
