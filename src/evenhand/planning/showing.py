"""A plan in plain words: who comes first, in which condition, with which action; and what one unit more is worth.

A *condition* is a type and a state. Policies that serve by rank have an order of conditions, which is told as it is.
Tables, networks and turns have none: they are played a little from the plan's own start, and conditions are told by how
often they are served,

    share(t, s, a) = visits of (t, s) in which a is given / visits of (t, s),

weighed over time as the criterion weighs rewards. A mixture is told by what its parts have in common, and where they
part: their names are whom they serve next.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenhand.display import counted
from evenhand.evaluation.kinks import CONFIDENCE
from evenhand.model.composite import BySteps, Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import Finite
from evenhand.model.policy import Policy, Starting, plays_by_counts
from evenhand.planning.labels import Labels, amount_of, listed, one_more, quantity
from evenhand.policies.fluid import OccupancyPriority, Resolving
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy
from evenhand.policies.other_numbers import Seated
from evenhand.policies.priority import ExchangeablePriority, PriorityPolicy
from evenhand.policies.round_robin import RoundRobin
from evenhand.reductions.counts import CountChoices, CountTable, TypedChoices
from evenhand.reductions.joint import JointTable
from evenhand.simulation import simulate, simulate_counts
from evenhand.typing import Floats, Indices

if TYPE_CHECKING:
    from evenhand.planning.plans import Plan

PLAYED, STEPS = 2e4, 60
"""Steps of arms, and steps of an episode, for which a policy without ranks is played."""

MOST_PLAYED = 2_000
"""Arms up to which it is played arm by arm; beyond, by counts if it can be."""

MOST_RANKED = 20_000
"""Types up to which an order is told."""

SELDOM = 1e-3
"""Conditions in which arms are for less of the time than this are not told of what was played."""

NOTABLE = 0.02
"""How much more often a part must serve a condition than the others for that to be told."""

LEAST_SHARE = 5e-3
"""Those that are served more seldom than this when arms are in them are not told, either."""

SHORT, LONG = 3, 12
"""Conditions that are told, in the short form and in the long one."""

MOST_TYPES, MOST_STATES = 30, 8
"""Rows and columns of the picture."""

SHADES = "█▓▒░"
"""From the first to the last in the order."""

WIDTH = 110
"""Letters of a line."""

PLANS_OWN = "what a plan gains may be more or less: solve with several budgets"
"""What is said beside the slope of a bound."""

NO_WORTH = 1e-6
"""A unit that is worth less than this share of the welfare is worth nothing: that is where the relaxation stops."""


class Served(NamedTuple):
    """One condition in the order of a policy."""

    level: int
    """From 1; those of one level are equal. Where the policy has ranks it is the rank, as `act` tells it: those that
    are left out here are of actions that do not come first in their condition."""

    kind: int
    """The type."""

    state: int
    """The state."""

    action: int
    """What comes first there."""

    share: float | None
    """How often it is given; None where it always is, if there is budget."""


@dataclass(frozen=True, eq=False)
class Order:
    """Whom a policy serves, the first first."""

    rows: tuple[Served, ...]
    """Conditions that are served."""

    how: str
    """What kind of order it is, in words."""

    ranked: bool
    """Whether it is the policy's own order; else it was seen in play."""

    of: int = 0
    """How many ranks the policy has, those of actions that do not come first in their condition among them."""

    drawn: int = 0
    """How many of them, the first ones, are of what is drawn; the others are of what is left of the budget."""

    def place(self, row: Served) -> int:
        """The number of a row's priority, as `act` tells it: for what is left of the budget it begins again."""
        return row.level - self.drawn if self.drawn and row.level > self.drawn else row.level

    def place_words(self, row: Served) -> str:
        """The same as it is written: with a star for what is left of the budget."""
        return f"{self.place(row)}{'*' if self.drawn and row.level > self.drawn else ''}"


# Whom a policy serves first


def order_of(policy: Policy | Starting, problem: CoupledMDP, step: int = 0) -> Order:
    """Whom a policy serves first; at a step, where it has steps.

    Args:
        policy: not a mixture.
        problem: what it was made for.
        step: from 0.
    """
    whole = policy
    # Ranks belong to one step; play is of the whole.
    if isinstance(policy, BySteps):
        policy = policy.parts[step % len(policy.parts)]
    if isinstance(policy, ExchangeablePriority):
        if policy.stop:
            return Order((), "whoever is drawn at random", ranked=True)
        return _by_ranks(problem, policy.ranks, "by fixed ranks")
    if isinstance(policy, Resolving):
        # Re-solving follows the arms: told is what it does from the plan's own start, the expected counts.
        start = np.round(problem.type_counts[:, None] * problem.types.initial).astype(np.int64)
        place = int(policy.best_prices(start[None], step)[0])
        return _by_ranks(problem, policy.policy_at(place, step).ranks, "by ranks that follow where the arms are")
    if isinstance(policy, OccupancyPriority):
        return _by_draws(problem, policy)
    if isinstance(policy, RoundRobin):
        return Order((), "every arm in turn, whatever its state", ranked=True)
    how = _how(policy)
    how += " for each step" if whole is not policy else ""
    if problem.num_arms > MOST_PLAYED and not plays_by_counts(whole):
        return Order((), f"{how}; there are too many arms to play it here", ranked=False)
    return _by_play(problem, whole, how)


def _how(policy: Policy | Starting) -> str:
    """What decides, where there are no ranks to tell."""
    if isinstance(policy, Seated):
        return _how(policy.policy)
    if isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy)):
        return "by a trained network"
    if isinstance(policy, (CountTable, CountChoices, TypedChoices, JointTable)):
        return "by a table"
    if isinstance(policy, PriorityPolicy):
        return "by fixed ranks, of equals the first arm"
    return f"by the rule of {type(policy).__name__}"


def _by_ranks(problem: CoupledMDP, ranks: Indices, how: str, laws: Floats | None = None, drawn: int = 0) -> Order:
    """Conditions by the rank of what comes first in them; equal ranks are one level."""
    types = problem.types
    if len(types) > MOST_RANKED:
        return Order((), f"{how}; there are too many types to tell", ranked=True)
    kinds, states = np.indices(types.idle.shape)
    own = ranks.copy()
    # Idling is no service: it must not come first.
    own[kinds, states, types.idle] = -1
    first = np.where(own >= 0, own, np.iinfo(np.int32).max)
    action = first.argmin(axis=2)
    best = first.min(axis=2)
    # Padding has no valid action.
    cells = [
        cell for cell in np.argwhere(best < np.iinfo(np.int32).max).tolist() if types.valid[cell[0], cell[1]].any()
    ]
    # By rank, and within a rank by type and state, so that the text is the same on every machine.
    cells.sort(key=lambda cell: (int(best[tuple(cell)]), cell))
    rows = []
    for kind, state in cells:
        given = int(action[kind, state])
        share = None if laws is None else float(laws[kind, state, given])
        rows.append(Served(int(best[kind, state]) + 1, kind, state, given, share))
    return Order(tuple(rows), how if rows else "nobody", ranked=True, of=int(ranks.max()) + 1, drawn=drawn)


def _by_draws(problem: CoupledMDP, policy: OccupancyPriority) -> Order:
    """What may be drawn comes by its rank, then what the rest of the budget is filled with."""
    # What may be drawn has its drawn rank; what is never drawn can still fill up the budget.
    ranks = np.where(policy.laws > 0, policy.drawn_ranks, policy.fill_ranks)
    drawn = int(policy.drawn_ranks.max()) + 1
    return _by_ranks(problem, ranks.astype(np.int32), "by ranks, with draws", policy.laws, drawn)


def _by_play(problem: CoupledMDP, policy: Policy | Starting, how: str) -> Order:
    types = problem.types
    _, S, A = types.valid.shape
    criterion = problem.criterion
    # A long horizon is cut: what is wanted is an impression.
    if isinstance(criterion, Finite) and criterion.steps > STEPS:
        criterion, how = replace(criterion, steps=STEPS), f"{how}, in its first {STEPS} steps"
    steps = criterion.num_steps or STEPS
    episodes = int(np.clip(PLAYED / (problem.num_arms * steps), 4, 50))
    # One reward function a cell, 1 there and 0 elsewhere: returns are then visits, weighed as the criterion weighs
    # time.
    cells = np.zeros((S * A, *types.valid.shape))
    for number, (state, action) in enumerate(np.ndindex(S, A)):
        cells[number, :, state, action] = 1.0
    if problem.num_arms > MOST_PLAYED:
        crowds = simulate_counts(problem, policy, episodes, steps, 0, criterion=criterion, rewards=cells)
        # (cell, episode, type or arm) over episodes, then by type.
        visits = crowds.returns.mean(axis=1).T
    else:
        played = simulate(problem, policy, episodes, steps, 0, criterion=criterion, rewards=cells).returns.mean(axis=1)
        visits = np.stack([played[:, problem.type_of_arm == kind].mean(axis=1) for kind in range(problem.num_types)])
    visits = visits.reshape(problem.num_types, S, A)
    present = visits.sum(axis=2)
    served = np.where(types.served, visits, 0.0)
    # Where nobody ever is, the share is 0 of 1.
    shares = served / np.where(present > 0, present, 1.0)[:, :, None]
    # What was hardly ever met was seen by chance alone, and is left out.
    met = present > SELDOM * present.sum(axis=1, keepdims=True)
    rows = [
        Served(0, kind, state, int(shares[kind, state].argmax()), float(shares[kind, state].max()))
        for kind, state in np.argwhere(met & (shares.max(axis=2) > LEAST_SHARE)).tolist()
    ]
    # Two digits decide the order: more were not seen.
    rows.sort(key=lambda row: (-round(row.share or 0.0, 2), row.kind, row.state))
    return Order(tuple(row._replace(level=i) for i, row in enumerate(rows, start=1)), how, ranked=False)


# In words


def often(share: float, what: str = "times") -> str:
    """`always`, or `86 of 100 times`; what is drawn once and kept is counted in `starts`."""
    # A share of exactly 0 is never drawn, but serves to fill up the budget.
    if share == 0:
        return "if budget is left"
    if share < 0.005:
        return "hardly ever"
    return "always" if share > 0.995 else f"{100 * share:.0f} of 100 {what}"


def often_each(shares: Sequence[float], what: str = "times") -> list[str]:
    """The same of shares that sum to 1: whole hundredths that sum to 100, by the largest remainders."""
    hundredths = [100 * share for share in shares]
    # Rounded down, but for rounding; then the largest remainders get one more, until all sum to 100.
    whole = [math.floor(share + 1e-9) for share in hundredths]
    rest = sorted(range(len(whole)), key=lambda i: (round(whole[i] - hundredths[i], 9), i))
    for i in rest[: round(sum(hundredths)) - sum(whole)]:
        whole[i] += 1
    return [often(share if part == 0 else part / 100, what) for share, part in zip(shares, whole, strict=True)]


def levels_of(order: Order, words: Labels, shares: bool = True) -> list[tuple[str, ...]]:
    """For each level its conditions, as `Ford and Opel in poor (overhaul)`: those that read alike stand together.

    Args:
        order: of a policy.
        words: of its problem.
        shares: whether to tell how often, where that is known.
    """
    told: dict[int, dict[str, list[int]]] = {}
    # Conditions of one level that read alike but for the type are one text.
    for row in order.rows:
        share = "" if row.share is None or not shares else f", {often(row.share)}"
        doing = f"{words.being(row.kind, row.state)} ({words.doing(row.kind, row.action)}{share})"
        told.setdefault(row.level, {}).setdefault(doing, []).append(row.kind)
    return [tuple(f"{words.types(kinds)} {doing}" for doing, kinds in own.items()) for own in told.values()]


def level_words(conditions: Sequence[str]) -> str:
    """The conditions of one level in a line: two by name, of more the first."""
    first, *rest = conditions
    return first if not rest else f"{first} and {rest[0]} alike" if len(rest) == 1 else f"{first} and {len(rest)} alike"


def short_words(order: Order, words: Labels, skip: int = 0) -> str:
    """The first few conditions in one line.

    Args:
        order: of a policy.
        words: of its problem.
        skip: levels that are told elsewhere.
    """
    if not order.rows:
        return order.how
    levels = levels_of(order, words, shares=not order.ranked)[skip:]
    more = f", then {len(levels) - SHORT} more" if len(levels) > SHORT else ""
    return listed(map(level_words, levels[:SHORT])) + more if levels else "nobody else, in just this order"


class PartWords(NamedTuple):
    """A part of a mixture, told by whom it serves."""

    number: int
    """From 1, the largest share first."""

    share: float
    """How often it is drawn."""

    name: str
    """What made it, such as fair-index."""

    words: str
    """Whom it serves first, after what is common to all parts."""

    order: Order
    """In full."""


def parts_of(plan: "Plan", step: int = 0) -> tuple[list[PartWords], list[str]]:
    """The parts of a plan, the largest share first, and the levels that all of them begin with."""
    words = Labels(plan.problem)
    if not isinstance(plan.policy, Mixture):
        order = order_of(plan.policy, plan.problem, step)
        return [PartWords(1, 1.0, plan.name, short_words(order, words), order)], []
    orders = [order_of(plan.policy.parts[number], plan.problem, step) for number in plan.by_size]
    shares = [float(plan.policy.shares[number]) for number in plan.by_size]
    # Orders seen in play have shares to compare; ranks have levels.
    if all(not order.ranked and order.rows for order in orders):
        said, common = _told_by_play(orders, shares, words)
    else:
        said, common = _told_by_rank(orders, words)
    named = zip(shares, [plan.part_names[number] for number in plan.by_size], said, orders, strict=True)
    return [PartWords(place, *rest) for place, rest in enumerate(named, start=1)], common


def _told_by_rank(orders: Sequence[Order], words: Labels) -> tuple[list[str], list[str]]:
    """What each part serves after the levels that all begin with, and those."""
    common, texts = 0, list[list[tuple[str, ...]]]([[]])
    if all(order.ranked and order.rows for order in orders):
        texts = [levels_of(order, words, shares=False) for order in orders]
        # Levels that all parts begin with, word for word.
        least = min(len(own) for own in texts)
        while common < least and len({own[common] for own in texts}) == 1:
            common += 1
    said = [short_words(order, words, common) for order in orders]
    told = [f"{text}; {order.how}" if order.rows else text for text, order in zip(said, orders, strict=True)]
    return told, [level_words(level) for level in texts[0][:common]]


def _told_by_play(orders: Sequence[Order], shares: Sequence[float], words: Labels) -> tuple[list[str], list[str]]:
    """What each part serves more often than all of them do on average, or less; and what that is most often."""
    # (type, state, action): how often each part serves it, 0 where it does not.
    found: dict[tuple[int, int, int], list[float]] = {}
    for place, order in enumerate(orders):
        for row in order.rows:
            found.setdefault((row.kind, row.state, row.action), [0.0] * len(orders))[place] = row.share or 0.0
    # The mixture's own share: parts weighed by how often they are drawn.
    mean = {cell: float(np.dot(own, shares)) for cell, own in found.items()}
    most = sorted(mean, key=lambda cell: (-round(mean[cell], 2), cell))
    common = [_often_served(words, cell, often(mean[cell])) for cell in most[:SHORT]]
    told: list[str] = []
    words_of: list[str] = []
    for place, order in enumerate(orders):
        how, best = _what_differs({cell: own[place] - mean[cell] for cell, own in found.items()})
        texts = [
            _often_served(words, cell, f"{often(found[cell][place])}, on average {often(mean[cell])}") for cell in best
        ]
        said = f"{how} {', '.join(texts)}".strip()
        # Two parts may differ in nothing that is told here.
        like = f", and differs from part {told.index(said) + 1} in what is rarer" if texts and said in told else ""
        told.append(said)
        words_of.append(f"{said}{like}; {order.how}")
    return words_of, common


def _what_differs(more: dict[tuple[int, int, int], float]) -> tuple[str, list[tuple[int, int, int]]]:
    """How a part differs from the average, and in which conditions: where it serves more, else less, most of all."""
    # The first of these that finds anything is told: plain differences before small ones, more before less.
    for least, sign, how in (
        (NOTABLE, 1, "more often"),
        (NOTABLE, -1, "less often"),
        (LEAST_SHARE, 1, "a little more often"),
        (LEAST_SHARE, -1, "a little less often"),
    ):
        notable = [cell for cell, by in more.items() if sign * by >= least]
        if notable:
            return how, sorted(notable, key=lambda cell: (-round(sign * more[cell], 2), cell))[:2]
    return "each condition about as often as on average, if not at the same times", []


def _often_served(words: Labels, cell: tuple[int, int, int], times: str) -> str:
    kind, state, action = cell
    return f"{words.type(kind)} {words.being(kind, state)} ({words.doing(kind, action)}, {times})"


def worth_of_more(problem: CoupledMDP, prices: dict[str, float] | None, scale: float) -> list[str]:
    """By how much one unit more of each resource raises the bound, as `a fourth bay: nothing`, the most first.

    That is the slope of the relaxation in the budget, and its bound bends downwards: no more than this. A plan that is
    below its bound may gain more, or less.

    Args:
        problem: with the budget.
        prices: by the relaxation, or None.
        scale: the welfare.
    """
    if not prices:
        return []
    amounts = dict(zip(problem.resource_names, problem.budget.tolist(), strict=True))
    # A price for what is no longer a resource is left out.
    told = sorted(((name, worth) for name, worth in prices.items() if name in amounts), key=lambda pair: -pair[1])
    return [f"{one_more(name, amounts[name])}: {_worth(worth, scale)}" for name, worth in told]


def _worth(worth: float, scale: float) -> str:
    if worth <= NO_WORTH * max(1.0, abs(scale)):
        return "nothing"
    return f"the bound rises by at most {worth:.4f}" if worth >= 5e-5 else "the bound rises by less than 0.0001"


# As a picture


def picture(order: Order, problem: CoupledMDP) -> list[str]:
    """A line a type and a column a state, with the place in the order and the action; empty where it would not fit."""
    words, types = Labels(problem), problem.types
    if not order.rows or problem.num_types > MOST_TYPES or types.valid.shape[1] > MOST_STATES:
        return []
    last = max(row.level for row in order.rows)
    cells = {(row.kind, row.state): _cell(row, words, last, order) for row in order.rows}
    # One heading for all rows, if all types have the same states; else each cell names its own.
    names = [[words.state(kind, state) for state in range(types.num_states[kind])] for kind in range(problem.num_types)]
    alike = all(own == names[0] for own in names)
    lines = [["", *names[0]]] if alike else []
    rows: dict[tuple[str, ...], list[int]] = {}
    for kind, own in enumerate(names):
        texts = [cells.get((kind, state), "·") for state in range(len(own))]
        if not alike:
            texts = [f"{name}: {text}" for name, text in zip(own, texts, strict=True)]
        # Types whose rows read alike share a line.
        rows.setdefault((words.base(kind), *texts), []).append(kind)
    lines += [[words.types(kinds), *texts] for (_, *texts), kinds in rows.items()]
    width = max(len(line) for line in lines)
    full = [line + [""] * (width - len(line)) for line in lines]
    # Columns are as wide as their widest text.
    widths = [max(len(line[column]) for line in full) for column in range(width)]
    return ["  ".join(text.ljust(size) for text, size in zip(line, widths, strict=True)).rstrip() for line in full]


def _cell(row: Served, words: Labels, last: int, order: Order) -> str:
    action = words.doing(row.kind, row.action)
    if not order.ranked:
        share = row.share or 0.0
        # Four shades, by the share or by the place in the order.
        return f"{SHADES[min(int(4 * (1 - share)), 3)]} {100 * share:.0f} % {action}"
    times = "" if row.share is None or row.share > 0.995 else f" {100 * row.share:.0f} %" if row.share else "*"
    return f"{SHADES[min(int(4 * (row.level - 1) / max(last, 1)), 3)]} {order.place(row)} {action}{times}"


# The whole


def show_plan(plan: "Plan", step: int = 0) -> str:
    """A plan in words and as a small picture."""
    # Title, certificate, what the parts have in common, then the parts in full, then what more budget is worth.
    parts, common = parts_of(plan, step)
    lines = [*_wrapped(_title(plan)), "", *_certificate(plan)]
    if isinstance(plan.policy, Mixture):
        lines += ["", *_mixture_lines(plan, parts, common)]
    seen: dict[tuple[str, ...], int] = {}
    for part in parts[:SHORT]:
        drawn = (part.order.how, *picture(part.order, plan.problem))
        # A picture that was drawn for an earlier part is not drawn again.
        lines += ["", *_part_lines(plan, part, len(parts) > 1, step, seen.setdefault(drawn[1:] or drawn, part.number))]
    if len(parts) > SHORT:
        lines += ["", f"... and {counted(len(parts) - SHORT, 'part')} of smaller shares"]
    if more := worth_of_more(plan.problem, _prices(plan), _number(plan.about.get("value"))):
        lines += ["", f"One unit more at every step, by the bound of the fluid relaxation ({PLANS_OWN}):"]
        lines += [f"  {text}" for text in more]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, first: str = "", then: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=then, break_long_words=False)


def _title(plan: "Plan") -> str:
    # Types that differ only in where they start are one kind to a person.
    problem, words = plan.problem, Labels(plan.problem)
    numbers: dict[str, int] = {}
    for kind, count in enumerate(problem.type_counts.tolist()):
        numbers[words.base(kind)] = numbers.get(words.base(kind), 0) + count
    kinds = [f"{count} {name}" for name, count in numbers.items()]
    more = f" and {counted(len(kinds) - LONG, 'more type')}" if len(kinds) > LONG else ""
    shared = ", ".join(map(amount_of, problem.resource_names, problem.budget.tolist()))
    welfare = f"; welfare {plan.about['welfare']}" if isinstance(plan.about.get("welfare"), str) else ""
    criterion = "" if problem.criterion.name == "discounted" else f", criterion {problem.criterion.name}"
    groups = f", over {counted(len(problem.group_names), 'group')}" if problem.over == "groups" else ""
    whose = f"{counted(problem.num_arms, 'arm')} ({listed(kinds[:LONG])}{more})"
    return (
        f"{plan.source}: {whose} {'shares' if problem.num_arms == 1 else 'share'} {shared}{welfare}{criterion}{groups}"
    )


def _certificate(plan: "Plan") -> list[str]:
    about, words = plan.about, Labels(plan.problem)
    lines = []
    # Facts come from a file, which may be a stranger's: only numbers are formatted.
    if all(_is_number(about.get(key)) for key in ("value", "upper_bound", "gap")):
        near = f"within {100 * about['gap']:.2g} % of the best"
        error = _number(about.get("stderr"))
        best = "the best there is" if error == 0 else "the simulation tells no difference"
        gap = near if about["gap"] > 1e-8 else best
        low, high = about["value"] - CONFIDENCE * error, about["value"] + CONFIDENCE * error
        played = f" (simulated; 95 % interval {low:.4f} to {high:.4f})" if error > 0 else ""
        bound = f"no plan has more than {about['upper_bound']:.4f} ({gap})"
        lines.append(f"  welfare {about['value']:.4f}{played}; {bound}")
    values = about.get("values")
    if about.get("by") == "type" and isinstance(values, list) and len(values) == plan.problem.num_types <= LONG:
        values = [_number(value) for value in values]
        told = [f"{words.type(kind)} {value:.4f}" for kind, value in enumerate(values)]
        lines.append(f"  value of an arm: {listed(told)}")
    if _is_number(about.get("score")):
        lines.append(f"  welfare {about['score']:.4f}, as judged in training")
    return lines or ["  (what it is worth was not saved with it)"]


def _mixture_lines(plan: "Plan", parts: Sequence[PartWords], common: Sequence[str]) -> list[str]:
    assert isinstance(plan.policy, Mixture)
    rotate = plan.policy.rotate
    drawn = "drawn once at the start and kept" if rotate is None else f"drawn anew every {rotate} steps"
    lines = [f"One of {len(parts)} ways to serve, {drawn}:"]
    if common:
        beginning = listed(common[:LONG]) + (" ..." if len(common) > LONG else "")
        lines += _wrapped(f"{beginning_words(parts)} {beginning}; then", "  ", "    ")
    every = often_each([part.share for part in parts], "starts" if rotate is None else "times")
    for part, times in zip(parts, every, strict=True):
        lines += _wrapped(f"{part.number}. {times}: {part.words}", "  ", "     ")
    return lines


def beginning_words(parts: Sequence[PartWords]) -> str:
    """How what parts have in common is told."""
    return "all of them serve first" if parts[0].order.ranked else "all of them serve most"


def _part_lines(plan: "Plan", part: PartWords, several: bool, step: int, like: int) -> list[str]:
    words, order = Labels(plan.problem), part.order
    whose = f", part {part.number}" if several else ""
    when = f" at step {step}" if order.ranked and _has_steps(plan) else ""
    if not order.rows:
        return [f"Who comes first{whose}{when}: {order.how}"]
    if like != part.number:
        return [f"Who comes first{whose}{when}: as in part {like} ({order.how})"]
    if order.ranked:
        left = ", * of what is left of the budget" if any(row.share == 0 for row in order.rows) else ""
        head = f"Who comes first{whose}{when} ({order.how}; 1 is served first{left}, · never):"
    else:
        head = f"Who is served how often{whose}{when} ({order.how}, as played from the plan's start; · hardly ever):"
    lines = [head, *(f"  {line}" for line in picture(order, plan.problem))]
    # Ranks of second choices are missing from the list of first ones.
    if order.ranked and order.of > len({row.level for row in order.rows}):
        lines.append("  (a number that is missing is of an action that a condition gets if the first cannot be had)")
    if several and len(lines) > 1:
        return lines
    lines += [""] if len(lines) > 1 else []
    levels = dict(zip(dict.fromkeys(map(order.place_words, order.rows)), levels_of(order, words), strict=True))
    for place, conditions in list(levels.items())[:LONG]:
        lines += _level_lines(place, conditions)
    if len(levels) > LONG:
        lines.append(f"  ... {len(levels) - LONG} more")
    return lines


def _level_lines(place: str, conditions: Sequence[str]) -> list[str]:
    """One level, a line a condition where it has several."""
    if len(conditions) == 1:
        return _wrapped(f"{place}. {conditions[0]}", "  ", "     ")
    lines = [f"  {place}. all of these alike:"]
    for text in conditions[:LONG]:
        lines += _wrapped(f"- {text}", "     ", "       ")
    return lines + ([f"     ... {len(conditions) - LONG} more"] if len(conditions) > LONG else [])


def _has_steps(plan: "Plan") -> bool:
    parts = plan.policy.parts if isinstance(plan.policy, Mixture) else [plan.policy]
    return any(isinstance(part, BySteps) for part in parts)


def _prices(plan: "Plan") -> dict[str, float] | None:
    prices = plan.about.get("prices")
    if not isinstance(prices, dict):
        return None
    return {str(name): _number(worth) for name, worth in prices.items()}


def _is_number(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return whole or (isinstance(value, float) and math.isfinite(value))


def _number(value: Any) -> float:
    """A number that a file tells; 0 for anything else, for the file may be a stranger's."""
    return float(value) if _is_number(value) else 0.0


def plan_facts(plan: "Plan", step: int = 0) -> dict[str, Any]:
    """The same for programs."""
    problem, about, words = plan.problem, plan.about, Labels(plan.problem)
    parts, common = parts_of(plan, step)
    amounts = dict(zip(problem.resource_names, problem.budget.tolist(), strict=True))
    prices = _prices(plan)
    kinds = [{"name": words.type(kind), "arms": int(count)} for kind, count in enumerate(problem.type_counts)]
    return {
        "method": about.get("method"),
        "welfare": {
            "name": about.get("welfare"),
            "value": about.get("value"),
            "upper_bound": about.get("upper_bound"),
            "gap": about.get("gap"),
            "stderr": about.get("stderr"),
        },
        "criterion": problem.criterion.name,
        "over": problem.over,
        "types": kinds,
        "budget": {name: quantity(amount) for name, amount in amounts.items()},
        "by": about.get("by"),
        "values": about.get("values"),
        "prices": prices,
        "one_unit_more": worth_of_more(problem, prices, _number(about.get("value"))),
        "step": step if _has_steps(plan) else None,
        "rotate": plan.policy.rotate if isinstance(plan.policy, Mixture) else None,
        "first": list(common),
        "parts": [_part_facts(part, words) for part in parts],
    }


def _part_facts(part: PartWords, words: Labels) -> dict[str, Any]:
    rows = [
        {
            "place": part.order.place(row),
            "type": words.type(row.kind),
            "state": words.state(row.kind, row.state),
            "action": words.action(row.kind, row.action),
            "share": row.share,
        }
        for row in part.order.rows
    ]
    told = {"number": part.number, "share": part.share, "policy": part.name, "words": part.words, "how": part.order.how}
    return told | {"order": rows}
