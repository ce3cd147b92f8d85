"""What the paper says, and whether it holds here: every verdict is computed from the sheets.

A claim is checked place by place (a size, a cost). It holds where every place that was run bears it out, holds in part
where some do, and does not hold where none does or where it is one statement on all places together.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from evenhand.report.reproduction_figures import loss
from evenhand.report.reproduction_tables import Entry, Sheet
from evenhand.report.words import duration, listed, number, number_text, percent, spelled

Verdict: TypeAlias = Literal["holds", "holds in part", "does not hold", "not run"]
Sheets: TypeAlias = Mapping[str, Sequence[Sheet]]
"""The sheets of each target."""

CLOSE = 2.0
"""Per cent of the optimum: what is called close."""
SAME = 0.005
"""Welfare: what two decimals do not show."""
NEAR = 0.1
"""Welfare: what is called the same where both figures are simulated and a rule is not told in full."""
PROPORTIONAL = 0.7
"""The exponent of growth from which we say that time grows with the number of arms as in proportion."""
LITTLE = 1.5
"""The factor up to which we say that something has little impact on times."""

WELFARE_TABLES = ("table-1", "table-2")
COSTS = {"table-1": "Exponential", "table-2": "Quadratic", "table-3": "Exponential", "table-4": "Quadratic"}


@dataclass(frozen=True)
class Claim:
    """A statement, what became of it, and the figures."""

    title: str
    verdict: Verdict
    evidence: str
    targets: tuple[str, ...]
    """Where it is shown."""


@dataclass(frozen=True)
class Place:
    """A row of a welfare table: what each method has there."""

    target: str
    row: str
    entries: Mapping[str, Entry]

    def ours(self, method: str) -> float | None:
        """Our figure of a method; None where there is none."""
        entry = self.entries.get(method)
        return None if entry is None else entry.ours

    def paper(self, method: str) -> float | None:
        """The published figure of a method."""
        entry = self.entries.get(method)
        return None if entry is None else entry.paper

    @property
    def name(self) -> str:
        """`Exponential, N = 3`; the row alone where the target has one kind of cost."""
        return f"{COSTS[self.target]}, {self.row}" if self.target in COSTS else self.row


def paper_claims(sheets: Sheets) -> list[Claim]:
    """The paper's claims, in the order of the paper."""
    return [check(sheets) for check in PAPER]


def own_claims(sheets: Sheets) -> list[Claim]:
    """What this run says beyond the paper's own statements."""
    return [check(sheets) for check in OWN]


# Places


def places(sheets: Sheets, *targets: str) -> list[Place]:
    """The rows of the first sheet of each target."""
    return [place for target in targets for sheet in sheets.get(target, ())[:1] for place in _rows(target, sheet)]


def _rows(target: str, sheet: Sheet) -> Iterator[Place]:
    for row in sheet.rows:
        yield Place(target, row, {entry.column: entry for entry in sheet.visible if entry.row == row})


def _with(found: Sequence[Place], *methods: str) -> list[Place]:
    """The places at which all these methods have a figure of ours."""
    return [place for place in found if all(place.ours(method) is not None for method in methods)]


def _value(place: Place, method: str) -> float:
    found = place.ours(method)
    return math.nan if found is None else found


def _counted_verdict(good: int, total: int) -> Verdict:
    if total == 0:
        return "not run"
    return "holds" if good == total else "holds in part" if good else "does not hold"


def _cells(good: int, total: int, of: int | None = None) -> str:
    """`in all eight cells`, `in 3 of 8 cells`; and how many there would be in a whole run."""
    if total == 1:
        told = "in the one cell" if good else "not in the one cell"
    elif good in (0, total):
        told = f"in {'all' if good else 'none of'} {spelled(total)} cells"
    else:
        told = f"in {good} of {total} cells"
    return told if of is None or of == total else f"{told} that {'was' if total == 1 else 'were'} run (of {of})"


def _not_run(title: str, targets: Sequence[str]) -> Claim:
    return Claim(title, "not run", f"This needs {listed(list(targets))}.", tuple(targets))


# Experiment 1: optimality


def optimum_is_met(sheets: Sheets) -> Claim:
    """The OPT columns, to two decimals."""
    title = "The optimal welfare (column OPT) is as published, to two decimals"
    every = places(sheets, *WELFARE_TABLES)
    found = [place for place in _with(every, "OPT") if place.paper("OPT") is not None]
    if not found:
        return _not_run(title, WELFARE_TABLES)
    apart = {place.name: _value(place, "OPT") - (place.paper("OPT") or 0.0) for place in found}
    met = [name for name, difference in apart.items() if abs(difference) <= SAME + 1e-9]
    evidence = f"It is met {_cells(len(met), len(found), len(every))}"
    worst = max(apart, key=lambda name: abs(apart[name]))
    evidence += f"; the largest difference is {number(abs(apart[worst]), 2)} ({worst})."
    return Claim(title, _counted_verdict(len(met), len(found)), evidence, WELFARE_TABLES)


def _close_to_optimum(sheets: Sheets, method: str, title: str) -> Claim:
    every = places(sheets, *WELFARE_TABLES)
    found = _with(every, "OPT", method)
    if not found:
        return _not_run(title, WELFARE_TABLES)
    losses = {place.name: loss(_value(place, method), _value(place, "OPT")) for place in found}
    good = sum(each <= CLOSE for each in losses.values())
    worst = max(losses, key=lambda name: losses[name])
    evidence = (
        f"It is within {CLOSE:g}\u00a0% of the optimum {_cells(good, len(found), len(every))}; the largest loss is "
        f"{_percent(losses[worst])} ({worst}){_paper_loss(found, method)}."
    )
    return Claim(title, _counted_verdict(good, len(found)), evidence, WELFARE_TABLES)


def _paper_loss(found: Sequence[Place], method: str) -> str:
    """The paper's largest loss at the same places, as the end of a sentence."""
    losses = [
        loss(paper, optimum)
        for place in found
        if (paper := place.paper(method)) is not None and (optimum := place.paper("OPT")) is not None
    ]
    return f", in the paper's own figures {_percent(max(losses))}" if losses else ""


def _percent(value: float) -> str:
    if value < 0.001:
        return "less than 0.001\u00a0%"
    return percent(value / 100, 1 if value >= 0.095 else 2 if value >= 0.0095 else 3)


def learner_is_close(sheets: Sheets) -> Claim:
    """CP-DRL against OPT."""
    return _close_to_optimum(sheets, "CP-DRL", "CP-DRL comes close to the optimum")


def _beats(sheets: Sheets, method: str, rivals: Sequence[str], title: str, *targets: str, strictly: bool) -> Claim:
    """A method has more than each rival, at two decimals, place by place."""
    every = places(sheets, *targets)
    found = [place for place in _with(every, method) if any(place.ours(rival) is not None for rival in rivals)]
    if not found:
        return _not_run(title, targets)
    leads = {place.name: _lead(place, method, rivals) for place in found}
    good = sum(lead > SAME if strictly else lead >= -SAME for lead, _ in leads.values())
    low, high = (pick(leads, key=lambda name: leads[name][0]) for pick in (min, max))
    what = "more" if strictly else "at least as much"
    ends = [(*leads[name], name) for name in dict.fromkeys((low, high))]
    evidence = f"{method} has {what} {_cells(good, len(found), len(every))}; {_leads_words(ends)}."
    return Claim(title, _counted_verdict(good, len(found)), evidence, tuple(targets))


def _lead(place: Place, method: str, rivals: Sequence[str]) -> tuple[float, str]:
    """How much more a method has than the best rival, and who that is."""
    known = [rival for rival in rivals if place.ours(rival) is not None]
    best = max(known, key=lambda rival: _value(place, rival))
    return _value(place, method) - _value(place, best), best


def _leads_words(ends: Sequence[tuple[float, str, str]]) -> str:
    """`its lead over WIP is +0.11 (N = 2) to +1.17 (N = 5)`."""
    rivals = list(dict.fromkeys(rival for _, rival, _ in ends))
    if len(rivals) == 1:
        told = [f"{_signed(lead)} ({name})" for lead, _, name in ends]
        return f"its lead over {rivals[0]} is {' to '.join(told)}"
    told = [f"{_signed(lead)} (over {rival}, {name})" for lead, rival, name in ends]
    return f"its lead over the best of them is {' to '.join(told)}"


def _signed(lead: float) -> str:
    size = number_text(abs(lead), 2 if abs(lead) >= 0.095 else 3)
    return size if not size.strip("0.") else f"{'+' if lead > 0 else '−'}{size}"


def learner_beats_truncated_index(sheets: Sheets) -> Claim:
    """CP-DRL against WIP as the paper computed it."""
    title = "CP-DRL beats the Whittle index policy on Exponential-RCCC: with indices as the paper computed them"
    return _beats(sheets, "CP-DRL", ["WIP"], title, "table-1", strictly=True)


def learner_beats_exact_index(sheets: Sheets) -> Claim:
    """CP-DRL against WIP with exact indices."""
    title = "CP-DRL beats the Whittle index policy on Exponential-RCCC: with exact indices"
    return _beats(sheets, "CP-DRL", ["WIP exact"], title, "table-1", strictly=True)


def index_falls_behind(sheets: Sheets) -> Claim:
    """WIP does not reach OPT."""
    title = "The Whittle index policy does not reach the optimum on Exponential-RCCC"
    found = _with(places(sheets, "table-1"), "OPT", "WIP exact")
    if not found:
        return _not_run(title, ["table-1"])
    exact = [loss(_value(place, "WIP exact"), _value(place, "OPT")) for place in found]
    cut = [loss(_value(place, "WIP"), _value(place, "OPT")) for place in _with(found, "WIP")]
    good = sum(each > 100 * SAME / _value(place, "OPT") for each, place in zip(exact, found, strict=True))
    most = _percent(max(exact))
    evidence = f"With exact indices it loses {most if most.startswith('less') else f'at most {most}'}"
    if cut:
        evidence += f"; with indices searched between −2 and 2 only, as the paper did, up to {_percent(max(cut))}"
    return Claim(title, _counted_verdict(good, len(found)), evidence + ".", ("table-1",))


# Experiment 2: flexibility, and the other methods


def one_network_serves_all(sheets: Sheets) -> Claim:
    """CP-DRL(MT) against OPT."""
    title = "One network, CP-DRL(MT), serves every number of machines, close to the optimum"
    return _close_to_optimum(sheets, "CP-DRL(MT)", title)


def learner_beats_vanilla(sheets: Sheets) -> Claim:
    """V-DRL below CP-DRL."""
    title = "CP-DRL beats Vanilla-DRL: that always replaces a machine, as the paper's"
    return _beats(sheets, "CP-DRL", ["V-DRL"], title, *WELFARE_TABLES, strictly=True)


def learner_beats_idling_vanilla(sheets: Sheets) -> Claim:
    """V-DRL that may idle below CP-DRL."""
    title = "CP-DRL beats Vanilla-DRL: that may also replace none"
    return _beats(sheets, "CP-DRL", ["V-DRL(idle)"], title, *WELFARE_TABLES, strictly=True)


def learner_beats_heuristics(sheets: Sheets) -> Claim:
    """OFT, MYP, EQR and RDM below CP-DRL."""
    title = "CP-DRL beats the simple rules and the random agent (OFT, MYP, EQR, RDM)"
    return _beats(sheets, "CP-DRL", ["OFT", "MYP", "EQR", "RDM"], title, *WELFARE_TABLES, strictly=True)


# Experiment 3: scale


def scaled_network_keeps_up(sheets: Sheets) -> Claim:
    """CP-DRL(SC) against separately trained networks."""
    title = "A network trained on 10 machines, CP-DRL(SC), does as well on up to 100 as networks trained there"
    found = _with(places(sheets, "figure-2a"), "CP-DRL(SC)", "CP-DRL")
    if not found:
        return _not_run(title, ["figure-2a"])
    behind = {p.row: 100 * (_value(p, "CP-DRL") - _value(p, "CP-DRL(SC)")) / abs(_value(p, "CP-DRL")) for p in found}
    good, worst = sum(each <= 1.0 for each in behind.values()), max(behind, key=lambda row: behind[row])
    evidence = f"It is at most 1\u00a0% behind {_sizes(good, len(found))}"
    evidence += (
        f"; at worst {_percent(behind[worst])} behind ({worst})." if behind[worst] > 0 else "; it never is behind."
    )
    if known := _with(found, "OPT"):
        losses = [loss(_value(place, "CP-DRL(SC)"), _value(place, "OPT")) for place in known]
        evidence += f" Against the exact optimum it loses at most {_percent(max(losses))}."
    return Claim(title, _counted_verdict(good, len(found)), evidence, ("figure-2a",))


def _sizes(good: int, total: int) -> str:
    return _cells(good, total).replace("cell", "size")


def scaled_beats_index(sheets: Sheets) -> Claim:
    """CP-DRL against WIP as the number of machines grows, as the paper computed it."""
    title = "CP-DRL stays above the Whittle index policy up to 100 machines: with indices as the paper computed them"
    return _beats(sheets, "CP-DRL", ["WIP"], title, "figure-2a", strictly=True)


def scaled_beats_exact_index(sheets: Sheets) -> Claim:
    """CP-DRL against WIP as the number of machines grows, with exact indices."""
    title = "CP-DRL stays above the Whittle index policy up to 100 machines: with exact indices"
    return _beats(sheets, "CP-DRL", ["WIP exact"], title, "figure-2a", strictly=True)


# Experiment 4: time


def time_grows_in_proportion(sheets: Sheets) -> Claim:
    """Time per episode against N."""
    title = (
        "The time of an episode grows linearly with the number of machines, because drawing actions is the bottleneck"
    )
    growth = _growths(sheets)
    if not growth:
        return _not_run(title, ["figure-2b", "figure-2c"])
    good = sum(power >= PROPORTIONAL for power, _ in growth.values())
    told = [f"{name} takes {number(factor, 2)} times as long" for name, (_, factor) in growth.items()]
    span = _span(sheets)
    evidence = f"{span}, {listed(told)}. Linear growth would be {_linear(sheets)} times. Ours draws nothing machine by "
    evidence += "machine: crowds are served and moved at once, many episodes together."
    return Claim(title, _counted_verdict(good, len(growth)), evidence, ("figure-2b", "figure-2c"))


def _time_entries(sheets: Sheets, target: str) -> list[Entry]:
    return [e for sheet in sheets.get(target, ()) if sheet.name == "seconds" for e in sheet.entries if e.ours]


def _arms(entry: Entry) -> float:
    return float(dict(entry.at)["num_arms"])


def _growths(sheets: Sheets) -> dict[str, tuple[float, float]]:
    """The exponent and the factor of growth of each curve of figure 2b, or 2c if there is no 2b."""
    entries = _time_entries(sheets, "figure-2b") or _time_entries(sheets, "figure-2c")
    found = {}
    for column in dict.fromkeys(entry.column for entry in entries):
        line = sorted((_arms(e), e.ours or math.nan) for e in entries if e.column == column)
        (first, start), (last, end) = line[0], line[-1]
        if last > first:
            found[column] = (math.log(end / start) / math.log(last / first), end / start)
    return found


def _ends(sheets: Sheets) -> tuple[float, float]:
    entries = _time_entries(sheets, "figure-2b") or _time_entries(sheets, "figure-2c")
    return min(map(_arms, entries)), max(map(_arms, entries))


def _span(sheets: Sheets) -> str:
    first, last = _ends(sheets)
    return f"From {first:g} to {last:g} machines"


def _linear(sheets: Sheets) -> str:
    first, last = _ends(sheets)
    return f"{last / first:g}"


def budget_costs_no_time(sheets: Sheets) -> Claim:
    """Time against the budget share."""
    title = "The share of machines that can be replaced has little impact on times"
    factors = {place: max(times) / min(times) for place, times in _times_by_place(sheets).items() if len(times) > 1}
    if not factors:
        return _not_run(title, ["figure-2b", "figure-2c"])
    good = sum(factor <= LITTLE for factor in factors.values())
    column, where = max(factors, key=lambda place: factors[place])
    evidence = (
        f"Times at the same number of machines differ by a factor of at most {LITTLE:g} {_cells(good, len(factors))}; "
        f"the largest factor is {number(factors[column, where], 2)} ({column}, {where})."
    )
    return Claim(title, _counted_verdict(good, len(factors)), evidence, ("figure-2b", "figure-2c"))


def _times_by_place(sheets: Sheets) -> dict[tuple[str, str], list[float]]:
    """Times that differ in the budget only: at the same N in both figures, and over all shares at one N."""
    found: dict[tuple[str, str], list[float]] = {}
    for target in ("figure-2b", "figure-2c"):
        for sheet in sheets.get(target, ()):
            for entry in sheet.entries:
                if entry.ours:
                    where = entry.row if "num_arms" in dict(entry.at) else "all budgets"
                    found.setdefault((entry.column, where), []).append(entry.ours)
    return found


# The appendix: algorithms and linear programs


def ppo_is_best(sheets: Sheets) -> Claim:
    """PPO above SAC and TD3."""
    title = "PPO reaches more than SAC and TD3, or as much"
    return _beats(sheets, "PPO", ["SAC", "TD3"], title, "table-3", "table-4", strictly=False)


def ppo_is_stable(sheets: Sheets) -> Claim:
    """The spread of PPO over seeds."""
    title = "PPO is more stable over seeds than SAC and TD3"
    spreads: dict[str, list[float]] = {}
    for place in places(sheets, "table-3", "table-4"):
        known = {name: entry.spread for name, entry in place.entries.items() if entry.spread is not None}
        if {"PPO", "SAC", "TD3"} <= known.keys():
            for name, spread in known.items():
                spreads.setdefault(name, []).append(spread)
    if not spreads:
        return _not_run(title, ["table-3", "table-4"])
    means = {name: sum(found) / len(found) for name, found in spreads.items()}
    told = listed([f"{name} {number_text(means[name], 3)}" for name in ("PPO", "SAC", "TD3")])
    best = means["PPO"] <= min(means["SAC"], means["TD3"])
    evidence = f"The standard deviation over seeds is on average {told}; SAC and TD3 had half the steps."
    return Claim(title, "holds" if best else "does not hold", evidence, ("table-3", "table-4"))


def sizes_are_met(sheets: Sheets) -> Claim:
    """Numbers of constraints and variables."""
    title = "The linear programs have the published numbers of constraints and variables"
    compared = [
        (target, entry)
        for target in ("table-5", "table-6")
        for sheet in sheets.get(target, ())
        for entry in sheet.entries
        if sheet.style == "count" and entry.difference is not None
    ]
    if not compared:
        return _not_run(title, ["table-5", "table-6"])
    good = [entry for _, entry in compared if entry.difference == 0]
    evidence = f"Counted as the paper counts, they are equal {_cells(len(good), len(compared))}"
    wrong = [f"{target}, {e.row}, {e.column}" for target, e in compared if e.difference != 0]
    evidence += f"; not in {listed(wrong[:4])}." if wrong else "."
    return Claim(title, _counted_verdict(len(good), len(compared)), evidence, ("table-5", "table-6"))


def count_program_is_faster(sheets: Sheets) -> Claim:
    """The count LP against the GGF-LP."""
    title = "The count LP is far smaller than the GGF-LP, and faster"
    joint, count = (_totals(sheets, target) for target in ("table-5", "table-6"))
    both = [arms for arms in joint if arms in count]
    if not both:
        return _not_run(title, ["table-5", "table-6"])
    good, largest = sum(count[arms] < joint[arms] for arms in both), max(both, key=float)
    evidence = f"It is faster {_sizes(good, len(both))}. At N = {largest} it takes {duration(count[largest])}, not "
    evidence += f"{duration(joint[largest])}: {number(joint[largest] / count[largest], 2)} times faster"
    sizes = [_variables(sheets, target, largest) for target in ("table-5", "table-6")]
    if sizes[0] and sizes[1]:
        evidence += f", with {sizes[1]:,.0f} variables, not {sizes[0]:,.0f}"
    return Claim(title, _counted_verdict(good, len(both)), evidence + ".", ("table-5", "table-6"))


def _totals(sheets: Sheets, target: str) -> dict[str, float]:
    """Our total time by column (a number of machines)."""
    found = [e for sheet in sheets.get(target, ()) if sheet.name == "times" for e in sheet.entries]
    return {e.column.removeprefix("N = "): e.ours for e in found if e.row == "Total" and e.ours is not None}


def _variables(sheets: Sheets, target: str, arms: str) -> float | None:
    found = [e for sheet in sheets.get(target, ()) if sheet.style == "count" for e in sheet.entries]
    return next((e.ours for e in found if e.row == "Variables" and e.column == f"N = {arms}"), None)


# Beyond what the paper says


def published_is_reached(sheets: Sheets) -> Claim:
    """Our CP-DRL and MT against the published ones."""
    title = "Our trained networks reach at least the published welfare"
    return _reached(sheets, title, "CP-DRL", "CP-DRL(MT)")


def sampling_reaches_published(sheets: Sheets) -> Claim:
    """CP-DRL with the paper's own allocation against the published one."""
    title = "They do so with the paper's own allocation, drawing by priority (Algorithm 1), too"
    return _reached(sheets, title, "CP-DRL(PS)")


def _reached(sheets: Sheets, title: str, *methods: str) -> Claim:
    """Our figures of some methods against the published ones; also measured as the paper does."""
    every = [
        (entry, place.name)
        for place in places(sheets, *WELFARE_TABLES)
        for entry in place.entries.values()
        if entry.column in methods
    ]
    leads = [(entry.difference, entry.column, name) for entry, name in every if entry.difference is not None]
    if not leads:
        return _not_run(title, WELFARE_TABLES)
    good, (lead, method, name) = sum(lead >= -SAME for lead, _, _ in leads), min(leads)
    evidence = (
        f"{listed(list(methods))} {'does' if len(methods) == 1 else 'do'} {_cells(good, len(leads), len(every))}; the "
        f"smallest lead over the paper is {_signed(lead)} ({method}, {name})"
    )
    plain = [
        (entry.protocol - entry.paper, entry.column, name)
        for entry, name in every
        if entry.protocol is not None and entry.paper is not None
    ]
    if plain:
        enough, (least, method, name) = sum(lead >= -SAME for lead, _, _ in plain), min(plain)
        evidence += (
            f". Measured as the paper does, by simulation and biased downwards, {_cells(enough, len(plain))}; at the "
            f"least {_signed(least)} ({method}, {name})"
        )
    return Claim(title, _counted_verdict(good, len(leads)), evidence + ".", WELFARE_TABLES)


def truncation_explains_index(sheets: Sheets) -> Claim:
    """The published WIP column against ours with truncated indices and with exact ones."""
    title = "The published WIP column is what a search for indices between −2 and 2 gives"
    found = [p for p in _with(places(sheets, *WELFARE_TABLES), "WIP") if p.paper("WIP") is not None]
    if not found:
        return _not_run(title, WELFARE_TABLES)
    apart = {place.name: abs(_measured(place, "WIP") - (place.paper("WIP") or 0.0)) for place in found}
    good, worst = sum(each <= NEAR for each in apart.values()), max(apart, key=lambda name: apart[name])
    evidence = f"With such indices, measured as the paper does, we are within {NEAR:g} of it {_cells(good, len(found))}"
    evidence += f" (at most {number_text(apart[worst], 2)} off, {worst})"
    if exact := _with(found, "WIP exact"):
        off = [abs(_measured(place, "WIP exact") - (place.paper("WIP") or 0.0)) for place in exact]
        evidence += f"; with exact indices we are up to {number_text(max(off), 2)} off"
    return Claim(title, _counted_verdict(good, len(found)), evidence + ".", WELFARE_TABLES)


def _measured(place: Place, method: str) -> float:
    """Our figure as the paper measures, where there is one."""
    protocol = place.entries[method].protocol
    return _value(place, method) if protocol is None else protocol


def optimum_meets_the_bound(sheets: Sheets) -> Claim:
    """The gap between the fluid bound and the optimum, as the number of arms grows."""
    title = "With more machines the optimum approaches the fluid bound"
    found = _with(places(sheets, "beyond-exact"), "OPT", "fluid bound")
    if len(found) < 2:
        return _not_run(title, ["beyond-exact"])
    gaps = [-loss(_value(place, "fluid bound"), _value(place, "OPT")) for place in found]
    falls = all(later < earlier for earlier, later in itertools.pairwise(gaps))
    evidence = (
        f"The bound is {_percent(gaps[0])} above the optimum at {found[0].row}, {_percent(gaps[-1])} at {found[-1].row}"
    )
    evidence += "; the gap falls from each size to the next." if falls else "; the gap does not fall at every step."
    return Claim(title, "holds" if falls else "does not hold", evidence, ("beyond-exact",))


def fairness_has_a_price(sheets: Sheets) -> Claim:
    """What the worst-off gain and the mean loses when fairness is all that counts."""
    title = "Where arms differ, fairness has a price: the worst-off gain, and the mean falls"
    told, good, total = [], 0, 0
    for sheet in sheets.get("beyond-fairness", ()):
        figures = {(e.row, e.column): e.ours for e in sheet.entries if e.ours is not None}
        needed = [(idea, what) for idea in ("utilitarian", "maximin") for what in ("mean", "worst-off arm")]
        if sheet.name.startswith("outcomes") and all(place in figures for place in needed):
            mean, worst, fair_mean, fair_worst = (figures[place] for place in needed)
            total, good = total + 1, good + (fair_worst > worst and fair_mean < mean)
            name = sheet.caption.partition(":")[0]
            told.append(
                f"{name}: worst-off {number(worst)} to {number(fair_worst)}, mean {number(mean)} to {number(fair_mean)}"
            )
    if not total:
        return _not_run(title, ["beyond-fairness"])
    evidence = f"From the best mean to maximin. {'. '.join(told)}."
    return Claim(title, _counted_verdict(good, total), evidence, ("beyond-fairness",))


def learner_needs_no_index(sheets: Sheets) -> Claim:
    """CP-DRL and the best fluid policy against OPT where no Whittle index exists."""
    title = "CP-DRL is close to the optimum where no Whittle index exists"
    every = places(sheets, "beyond-indexability")
    found = _with(every, "OPT", "CP-DRL")
    if not found:
        return _not_run(title, ["beyond-indexability"])
    losses = {place.row: loss(_value(place, "CP-DRL"), _value(place, "OPT")) for place in found}
    good, worst = sum(each <= CLOSE for each in losses.values()), max(losses, key=lambda row: losses[row])
    evidence = f"It is within {CLOSE:g}\u00a0% {_problems(good, len(found), len(every))}; "
    evidence += f"at most {_percent(losses[worst])} is lost ({worst})."
    rivals = [(place, [p for p in FLUID if place.ours(p) is not None]) for place in found]
    fluid = [loss(max(_value(place, p) for p in known), _value(place, "OPT")) for place, known in rivals if known]
    if fluid:
        evidence += f" The best fluid policy of each problem loses at most {_percent(max(fluid))}."
    return Claim(title, _counted_verdict(good, len(found)), evidence, ("beyond-indexability",))


def _problems(good: int, total: int, of: int) -> str:
    return _cells(good, total, of).replace("cell", "problem")


FLUID = ("fair-index", "occupancy-priority", "re-solving")
"""Policies made from the fluid relaxation."""


Check: TypeAlias = Callable[[Sheets], Claim]

PAPER: tuple[Check, ...] = (
    optimum_is_met,
    learner_is_close,
    learner_beats_truncated_index,
    learner_beats_exact_index,
    index_falls_behind,
    one_network_serves_all,
    learner_beats_vanilla,
    learner_beats_idling_vanilla,
    learner_beats_heuristics,
    scaled_network_keeps_up,
    scaled_beats_index,
    scaled_beats_exact_index,
    time_grows_in_proportion,
    budget_costs_no_time,
    ppo_is_best,
    ppo_is_stable,
    sizes_are_met,
    count_program_is_faster,
)
OWN: tuple[Check, ...] = (
    published_is_reached,
    sampling_reaches_published,
    truncation_explains_index,
    optimum_meets_the_bound,
    fairness_has_a_price,
    learner_needs_no_index,
)
