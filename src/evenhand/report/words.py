"""Numbers, names and sentences: what the page says, before it is HTML. Nothing here is escaped yet."""

import math
from collections.abc import Sequence

import numpy as np

from evenhand.display import counted as counted
from evenhand.evaluation.evaluate import Evaluation
from evenhand.evaluation.kinks import CONFIDENCE
from evenhand.model.naming import base_names as base_names
from evenhand.model.naming import type_names as type_names
from evenhand.model.simulator import Problem, Simulator
from evenhand.model.welfare import Welfare
from evenhand.planning.compare import Comparison, Row
from evenhand.planning.policy_registry import REGISTRY
from evenhand.typing import Floats

UNKNOWN = "–"
"""Stands for a number that does not exist."""

SAME = 1e-9
"""Relative difference below which two figures are one."""

_SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# Numbers


def decimals_of(numbers: Sequence[float], digits: int = 4) -> int | None:
    """Decimals that give the largest number `digits` digits; None where only powers of ten can tell it."""
    # Of what exists; a column of infinities has no decimals to go by.
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    if largest == 0:
        return 0
    exponent = math.floor(math.log10(largest))
    # Beyond these sizes only powers of ten are short.
    return max(0, digits - 1 - exponent) if -4 <= exponent <= 8 else None


def number_text(number: float, decimals: int | None) -> str:
    """A number with fixed decimals, or as a power of ten where there are none that suit it."""
    if not math.isfinite(number):
        return UNKNOWN
    if decimals is None:
        # 1.234e+05 becomes 1.234 × 10⁵.
        mantissa, _, exponent = f"{number:.3e}".partition("e")
        return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}".replace("-", "−")
    text = f"{number:,.{decimals}f}"
    # A rounded zero has no sign; a minus is a minus, not a hyphen.
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def number(value: float, digits: int = 4) -> str:
    """A number with about four digits."""
    return number_text(value, decimals_of([value], digits))


def amount(value: float) -> str:
    """A number that a person wrote down: no digits that were not there."""
    return f"{value:,.6g}".replace("-", "−")


def percent(share: float, decimals: int = 1) -> str:
    """A share as a percentage."""
    return f"{number_text(100 * share, decimals)}\u00a0%" if math.isfinite(share) else UNKNOWN


def duration(seconds: float) -> str:
    """How long something took, in the unit that suits it."""
    if not math.isfinite(seconds):
        return UNKNOWN
    # The limits are where two digits would round up to the next unit.
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f}\u00a0ms" if seconds >= 0.0005 else "<\u00a01\u00a0ms"
    return f"{seconds:.2g}\u00a0s" if seconds < 9.95 else _longer(round(seconds))


def _longer(seconds: int) -> str:
    if seconds < 100:
        return f"{seconds}\u00a0s"
    return f"{round(seconds / 60)}\u00a0min" if seconds < 7200 else f"{round(seconds / 3600)}\u00a0h"


# Grammar


def listed(items: Sequence[str], joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    # No comma before the last.
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {joint} {items[-1]}" if items else ""


def spelled(count: int) -> str:
    """`five`; in digits above twelve."""
    return _SMALL[count] if count < len(_SMALL) else f"{count:,}"


def shortened(text: str, most: int) -> str:
    """The text on one line, or its beginning with an ellipsis."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def capitalised(text: str) -> str:
    """With a capital first letter, the others as they are."""
    return text[:1].upper() + text[1:]


# Names


def abbreviation_and_summary(policy: str) -> tuple[str, str]:
    """What the roster says of a policy; empty for one that is not in it."""
    for entry in REGISTRY:
        if entry.name == policy:
            return entry.abbreviation, entry.summary
    return "", ""


def alike_but_for_starts(problem: Problem) -> dict[str, list[int]]:
    """Types by what they are called, those together that differ in nothing but the state that they start in."""
    bases, names = base_names(problem), type_names(problem)
    # Names such as `Ford from poor` were made by cutting a type at its starts.
    split = [bool(base) and name.startswith(f"{base} from ") for base, name in zip(bases, names, strict=True)]
    moves: dict[str, set[tuple[bytes, ...]]] = {}
    for kind in np.flatnonzero(split).tolist():
        moves.setdefault(bases[kind], set()).add(_moves_of(problem, kind))
    found: dict[str, list[int]] = {}
    for kind, (base, name) in enumerate(zip(bases, names, strict=True)):
        # Together only if they are alike in all but that.
        found.setdefault(base if split[kind] and len(moves[base]) == 1 else name, []).append(kind)
    return found


def _moves_of(problem: Problem, kind: int) -> tuple[bytes, ...]:
    """All that makes a type but for its start, to be compared."""
    if isinstance(problem, Simulator):
        return ()
    types = problem.types
    return tuple(table[kind].tobytes() for table in (types.transitions, types.rewards, types.usage))


def starts_words(problem: Problem, name: str, kinds: Sequence[int]) -> str:
    """`4 from sound, 2 from poor`; empty where a type has but one start.

    Args:
        problem: whose types they are.
        name: what they are called, as `alike_but_for_starts` has it.
        kinds: the types of this name.
    """
    names = type_names(problem)
    starts = [f"{problem.type_counts[kind]:,} {names[kind].removeprefix(name).strip()}" for kind in kinds]
    return ", ".join(_few(starts)) if len(kinds) > 1 else ""


def is_nameless(problem: Problem) -> bool:
    """Whether every arm is a type of its own and none has a name: then there is nothing to say of types."""
    return problem.num_types == problem.num_arms and not any(name for name, _, _ in problem.types.labels)


def member(problem: Problem) -> str:
    """`arm` or `group`: whom welfare is over."""
    return "group" if problem.over == "groups" else "arm"


def bound_title(comparison: Comparison) -> str:
    """`optimum` or `upper bound`."""
    return "optimum" if comparison.bound_name == "optimum" else "upper bound"


# Figures drawn from an evaluation


def gap_to(bound: float, welfare: float) -> float:
    """How far the welfare is below the bound, as a share of it; nan for a bound of zero."""
    return (bound - welfare) / abs(bound) if bound else math.nan


def values_by_type(evaluation: Evaluation, problem: Problem) -> Floats:
    """(type,) mean value of the arms of each type."""
    if evaluation.by_type:
        return evaluation.unit_values
    sums = np.bincount(problem.type_of_arm, weights=evaluation.unit_values, minlength=problem.num_types)
    return np.asarray(sums / problem.type_counts)


def is_level(evaluation: Evaluation) -> bool:
    """Whether every arm has the same value, and so every group, but for rounding."""
    values = evaluation.unit_values
    # Relative to the largest value, but no finer than for values around 1.
    return float(np.ptp(values)) <= SAME * max(1.0, float(np.abs(values).max()))


def most_unequal(rows: Sequence[Row]) -> Row | None:
    """The row of the largest Gini coefficient; None where none is defined."""
    known = [row for row in rows if math.isfinite(row.evaluation.gini_coefficient)]
    return max(known, key=lambda row: row.evaluation.gini_coefficient, default=None)


def most_equal(rows: Sequence[Row]) -> Row | None:
    """The row of the smallest Gini coefficient; of several the one of most welfare."""
    known = [row for row in rows if math.isfinite(row.evaluation.gini_coefficient)]
    return min(known, key=lambda row: row.evaluation.gini_coefficient, default=None)


# Sentences: what came out


def summary(comparison: Comparison, problem: Problem) -> list[list[str]]:
    """What was compared and what came out: a few sentences in one paragraph on welfare and one on fairness."""
    if not comparison.rows:
        return [[f"No policy was compared on this problem of {counted(problem.num_arms, 'arm')}."]]
    welfare = [_compared(comparison, problem), _best(comparison), _rivals(comparison.rows)]
    fairness = [_worst_off(comparison.rows[0], problem), _inequality(comparison.rows)]
    # A sentence that has nothing to say is empty, and a paragraph of such is left out.
    paragraphs = [[sentence for sentence in part if sentence] for part in (welfare, fairness)]
    return [part for part in paragraphs if part]


def _compared(comparison: Comparison, problem: Problem) -> str:
    rows = comparison.rows
    what = f"{capitalised(spelled(len(rows)))} {'policy was' if len(rows) == 1 else 'policies were'} compared on"
    crowd = "one arm that uses" if problem.num_arms == 1 else f"{spelled(problem.num_arms)} arms that share"
    resources = f"{spelled(problem.num_resources)} resource{'s' if problem.num_resources > 1 else ''}"
    ranked = f"They are ranked by the welfare “{shortened(comparison.welfare.name, 40)}”" if len(rows) > 1 else ""
    meaning = _in_short(comparison.welfare, member(problem)) if ranked and problem.num_arms > 1 else ""
    return f"{what} {crowd} {resources}. {ranked}{meaning}{'.' if ranked else ''}".rstrip()


def _in_short(welfare: Welfare, who: str) -> str:
    say = getattr(welfare, "in_short", None)
    return f", which {say(who)}" if say is not None else ""


def _best(comparison: Comparison) -> str:
    best = comparison.rows[0]
    whose = f"The best is {best.policy}, with" if len(comparison.rows) > 1 else f"The policy {best.policy} has"
    sentence = f"{whose} a welfare of {number(best.evaluation.welfare)}"
    return f"{sentence}{_distance(comparison, best.evaluation)}."


def _distance(comparison: Comparison, found: Evaluation) -> str:
    """How far a welfare is from the bound, as the end of a sentence."""
    bound = comparison.upper_bound
    if bound is None:
        return ""
    gap, optimum = gap_to(bound, found.welfare), comparison.bound_name == "optimum"
    name = f"the optimum of {number(bound)}" if optimum else f"an upper bound of {number(bound)}"
    # Exact figures are as close as solvers get; simulated ones must be at the bound to be called so.
    if bound - found.welfare <= max(SAME * abs(bound), 1e-6 * abs(bound) if found.exact else 0.0):
        certain = "" if found.exact else ", as far as the simulation can tell"
        return f", which is {'the optimum' if optimum else 'as much as any policy can have'}{certain}"
    if bound <= 0:  # a percentage of a loss misleads
        return f", {number(bound - found.welfare)} below {name}"
    return f", {percent(gap, 2 if gap >= 5e-5 else 4)} below {name}"


def _rivals(rows: Sequence[Row]) -> str:
    best, others = rows[0].evaluation, rows[1:]
    equal = [
        row.policy
        for row in others
        if _difference(best, row) <= SAME * max(1.0, abs(best.welfare))
        and row.evaluation.welfare_stderr == best.welfare_stderr  # else chance has made them equal
    ]
    # Within the error, but not exactly equal.
    close = [row.policy for row in others if row.policy not in equal and _difference(best, row) <= _error(best, row)]
    sentences = []
    if equal:
        sentences.append(f"{_policies(equal)} {'is' if len(equal) == 1 else 'are'} exactly as good.")
    if close:
        apart = "the difference is" if len(close) == 1 else "the differences are"
        sentences.append(
            f"{_policies(close)} cannot be told apart from it: {apart} smaller than the error of the simulation."
        )
    return " ".join(sentences)


def _policies(names: list[str]) -> str:
    return f"The {'policy' if len(names) == 1 else 'policies'} {listed(names)}"


def _difference(best: Evaluation, row: Row) -> float:
    return best.welfare - row.evaluation.welfare


def _error(best: Evaluation, row: Row) -> float:
    """What chance and cut-off may do to the difference of two welfares; an unknown cut-off is left out."""
    other = row.evaluation
    # Errors of two simulations, as if they were independent; common chance makes the difference surer than this.
    chance = CONFIDENCE * math.hypot(best.welfare_stderr, other.welfare_stderr)
    return chance + (best.truncation_bound or 0.0) + (other.truncation_bound or 0.0)


def _worst_off(best: Row, problem: Problem) -> str:
    found = best.evaluation
    if problem.num_arms == 1:
        return ""
    if is_level(found):
        return f"Under {best.policy} nobody is worse off than others: every arm has the same value."
    who = worst_off_unit(found, problem)
    return f"Worst off under {best.policy} {who}, with {number(found.worst)} against {number(found.mean)} on average."


def worst_off_unit(found: Evaluation, problem: Problem) -> str:
    """`is arm 3`, `are the 4 arms of type 2` or `is the group north`."""
    # Over groups it is a group that is worst off, not an arm.
    if found.groups:
        return f"is the group {min(found.groups, key=found.groups.__getitem__)}"
    unit = int(found.unit_values.argmin())
    if not found.by_type:
        name = type_names(problem)[int(problem.type_of_arm[unit])]
        return f"is arm {unit}" + ("" if problem.is_symmetric or is_nameless(problem) else f" ({name})")
    name, count = type_names(problem)[unit], int(found.unit_counts[unit])
    return f"is the one arm of {name}" if count == 1 else f"are the {count:,} arms of {name}"


def _inequality(rows: Sequence[Row]) -> str:
    uneven = most_unequal(rows)
    if uneven is None or len(rows) == 1:
        return ""
    best, found = rows[0], uneven.evaluation
    # Too little to be told: all policies treat arms alike.
    if found.gini_coefficient < 5e-5:
        return _last(rows)
    gini = f"(Gini coefficient {number_text(found.gini_coefficient, 3)})"
    if uneven is best:
        return _evener(rows, gini)
    # The most unequal policy may be as good as the best one.
    lost = best.evaluation.welfare - found.welfare
    gap = gap_to(best.evaluation.welfare, found.welfare)
    less = f"{percent(gap)} less welfare" if best.evaluation.welfare > 0 else f"{number(lost)} less welfare"
    worst = f"its worst-off {member(found.problem)} has {number(found.worst)}, not {number(best.evaluation.worst)}"
    how = f"has {less} than {best.policy}" if lost > 0 else f"has the same welfare as {best.policy}"
    return f"The most unequal policy is {uneven.policy} {gini}: it {how}, and {worst}."


def _last(rows: Sequence[Row]) -> str:
    """What to say where all policies are equally fair."""
    best, last = rows[0].evaluation.welfare, rows[-1]
    level = "No policy treats the arms unequally" if last.evaluation.problem.num_arms > 1 else ""
    lost = best - last.evaluation.welfare
    if lost <= SAME * max(1.0, abs(best)):
        return f"{level}." if level else ""
    less = percent(lost / best) if best > 0 else number(lost)
    place = f"{level}; the last in the ranking" if level else "The last in the ranking"
    return f"{place}, {last.policy}, has {less} less welfare than the best."


def _evener(rows: Sequence[Row], gini: str) -> str:
    """What to say where the best policy is the most unequal one."""
    best, even = rows[0], most_equal(rows)
    sentence = f"It is also the most unequal policy {gini}"
    if even is None or even.evaluation.gini_coefficient >= best.evaluation.gini_coefficient:
        return f"{sentence}."
    fate = f"under which the worst-off {member(best.evaluation.problem)} has {number(even.evaluation.worst)}"
    return f"{sentence}; the most equal one is {even.policy}, {fate}."


# Sentences: the problem


def problem_words(problem: Problem) -> list[tuple[str, str]]:
    """The problem: terms, and what there is to say of each."""
    return [
        ("Arms", _crowd(problem)),
        ("States and actions", _choices(problem)),
        ("Budget", _limits(problem)),
        ("Discount and value" if problem.criterion.name == "discounted" else "Time and value", _time(problem)),
        *_groups(problem),
        *_floors(problem),
    ]


def _groups(problem: Problem) -> list[tuple[str, str]]:
    if problem.over != "groups":
        return []
    names = problem.group_names
    which = f": {listed(_few(names))}" if len(names) > 1 else f", {names[0]}"
    worth = "The value of a group is the mean of its arms' values, and welfare counts each group once, large or small."
    return [("Groups", f"The arms are in {counted(len(names), 'group')}{which}. {worth}")]


def _floors(problem: Problem) -> list[tuple[str, str]]:
    if not problem.has_floors:
        return []
    pairs = zip(type_names(problem), problem.type_floors, strict=True)
    asked = [f"{percent(float(floor))} for {name}" for name, floor in pairs if floor > 0]
    return [("Floors", f"Each arm is to be served in at least this share of the time: {listed(_few(asked))}.")]


def _crowd(problem: Problem) -> str:
    meaning = "An arm is whatever competes for the resources: a machine, a patient, a customer."
    if problem.num_arms == 1:
        return f"There is one arm, {type_names(problem)[0]}. {meaning}"
    if problem.is_symmetric:
        name = type_names(problem)[0]
        called = "" if name == "type 0" else f" ({name})"
        return f"There are {problem.num_arms:,} identical arms{called}. {meaning}"
    kinds = f"of {problem.num_types:,} types" if problem.num_types < problem.num_arms else "which all differ"
    makes = len(alike_but_for_starts(problem))
    if makes < problem.num_types:  # they are told apart only by where they start
        sorts = "of one type" if makes == 1 else f"of {makes:,} types"
        kinds = f"{sorts}, which start in different states"
    return f"There are {problem.num_arms:,} arms {kinds}. {meaning}"


def _choices(problem: Problem) -> str:
    """States and actions, where they are the same for all types but for the numbers."""
    if not same_choices(problem):
        return "The types differ in their states and actions; the table below tells them."
    who = "it" if problem.num_arms == 1 else "each arm"
    states, actions = states_text(problem, 0), actions_text(problem, 0)
    return f"At every step {who} is in one of {states}, and is given one of {actions}."


def same_choices(problem: Problem) -> bool:
    """Whether all types have the same states and actions, by name and by use of resources."""
    types = problem.types
    labels = {label[1:] for label in types.labels}
    alike = (types.num_states == types.num_states[0]).all() and (types.num_actions == types.num_actions[0]).all()
    return len(labels) <= 1 and bool(alike) and bool((types.usage == types.usage[0]).all())


def states_text(problem: Problem, kind: int) -> str:
    """`3 states (new, worn, failed)`."""
    size = int(problem.types.num_states[kind])
    labels = problem.types.labels[kind][1] if problem.types.labels else ()
    return counted(size, "state") + (f" ({', '.join(_few(labels))})" if labels else "")


def actions_text(problem: Problem, kind: int) -> str:
    """`2 actions: wait (uses nothing) or call (uses 1)`."""
    types = problem.types
    size = int(types.num_actions[kind])
    labels = (types.labels[kind][2] if types.labels else ()) or [f"action {index}" for index in range(size)]
    # Real states only: padding uses nothing.
    usage = types.usage[kind, : types.num_states[kind]]
    names = problem.resource_names
    told = [f"{labels[action]} (uses {_use(usage[:, action], names)})" for action in range(size)]
    return f"{counted(size, 'action')}: {listed(_few(told), 'or')}"


def _few(items: Sequence[str], most: int = 8) -> list[str]:
    # The first ones and the last, so that the end of a scale is seen.
    return list(items) if len(items) <= most else [*items[: most - 2], "…", items[-1]]


def _use(usage: Floats, names: Sequence[str]) -> str:
    """What an action uses, from its (state, resource) usage."""
    low, high = usage.min(axis=0), usage.max(axis=0)
    if not high.any():
        return "nothing"
    amounts = [
        amount(a) if a == b else f"{amount(a)} to {amount(b)}, by state," for a, b in zip(low, high, strict=True)
    ]
    if len(amounts) == 1:
        return amounts[0].rstrip(",")
    return listed([f"{text} of {name}" for text, name in zip(amounts, names, strict=True) if text != "0"])


def _limits(problem: Problem) -> str:
    budget = [amount(value) for value in problem.budget]
    shares = "In one step it may use" if problem.num_arms == 1 else "In one step all arms together may use"
    names = problem.resource_names
    if names == ("resource 0",):
        return f"{shares} at most {budget[0]} of the resource."
    return f"{shares} at most {listed([f'{text} of {name}' for text, name in zip(budget, names, strict=True)])}."


def _time(problem: Problem) -> str:
    criterion = problem.criterion
    if criterion.is_average:
        return (
            "The value of an arm is the reward that it can expect of a step in the long run; the start does not count."
        )
    worth = f"A reward one step later is worth {amount(criterion.factor)} of one today (the discount)"
    if criterion.num_steps is None:
        return f"{worth}. The value of an arm is all the reward it can expect, added up in this way."
    alike = "All steps count alike" if criterion.factor == 1 else worth
    ends = f"After {counted(criterion.num_steps, 'step')} all ends"
    return f"{ends}. {alike}. The value of an arm is all the reward it can expect until then, added up in this way."


def weights_of_time(problem: Problem) -> str:
    """How the end of a sentence says what steps count for; nothing where they count alike."""
    if problem.criterion.is_average:
        return ", in the long run"
    return "" if problem.criterion.factor == 1 else ", early steps counting for more"


def truncation_words(found: Sequence[Evaluation]) -> tuple[str, str] | None:
    """What the horizon of a simulation leaves out; None where that is nothing."""
    bounds = [each.truncation_bound for each in found]
    # A simulator has no bound on its rewards; an average has no end to be near to.
    if None in bounds and not found[0].problem.criterion.is_average:
        return (
            "Truncation",
            "A simulated play ends after a fixed number of steps, although the problem goes on for ever. What is left "
            "out cannot be bounded, because the rewards of a simulator are known by samples only.",
        )
    if None in bounds:
        return (
            "Long run",
            "A simulated play ends when the arms have forgotten their start, or after the steps that were given; the "
            "first of these do not count. What a play that is too short shows of the start is part of the errors.",
        )
    most = max((bound for bound in bounds if bound), default=0.0)
    if most == 0:
        return None
    return (
        "Truncation",
        "A simulated play ends after a fixed number of steps, although the problem goes on for ever. "
        f"What is left out changes no value by more than {number(most, 2)}.",
    )


# Sentences: how to read it


def welfare_words(welfare: Welfare, who: str = "arm", number: int | None = None) -> str:
    """A welfare explained to someone who has never met it.

    Args:
        welfare: how values are weighed.
        who: whose they are: `arm` or `group`.
        number: how many of them there are, if that is known.
    """
    unit = f"It is in the same unit as the values, and if all {who}s are equal it is simply their value."
    say, among = (getattr(welfare, name, None) for name in ("meaning", "meaning_among"))
    # With the number of members weights can be told in figures.
    if among is not None and number is not None:
        return f"{among(who, number)} {unit}"
    return f"{say(who)} {unit}" if say is not None else f"It is one number for the values of all {who}s."
