"""What commands say of draws: where the posterior is, the spread of values, what is worth knowing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenhand.cli.console import SHOWN_UNITS, number, percent, print_facts, print_table, say
from evenhand.cli.refusals import OptionError
from evenhand.cli.standard_input import DASH
from evenhand.fitting.posterior_files import HOW_TO_FIT, posterior_path
from evenhand.problems import catalog

if TYPE_CHECKING:
    from evenhand.evaluation.draws import UnderDraws
    from evenhand.planning.knowing import WorthKnowing
    from evenhand.planning.robust import Robust

MOST_ROWS = 10
"""Rows of transitions whose worth is shown; --json has all of them."""

HEADS = ("5 %", "50 %", "95 %", "worst tenth")


def posterior_of(model: str, asked: bool) -> str | None:
    """The model file whose posterior stands beside it, where draws are asked for; refused at once if there is none.

    Args:
        model: as it was typed.
        asked: whether draws are.
    """
    if not asked:
        return None
    if model in catalog.names():
        raise OptionError("--draws", f"{model} is a built-in problem, and known for sure; draws are of a fitted model")
    if model == DASH:
        raise OptionError("--draws", "what is known of a model stands in a file beside it, and this is standard input")
    if not (beside := posterior_path(model)).exists():
        raise OptionError("--draws", f"there is no {beside}, which says how sure the transitions are. {HOW_TO_FIT}")
    return model


def show_draws(found: "UnderDraws", policy: str | None = None) -> None:
    """The spread of one policy's welfare and values over draws.

    Args:
        found: the draws.
        policy: which; the first when absent.
    """
    from evenhand.evaluation.draws import member_names, spread_of

    row = found.rows[0] if policy is None else found[policy]
    names = ("welfare", *member_names(found.problem, row.found.by_type))
    lines = [
        (name, *(number(figure) for figure in list(spread_of(draws).values())[1:]))
        for name, draws in list(zip(names, (row.welfare, *row.members.T), strict=True))[: SHOWN_UNITS + 1]
    ]
    print_table(f"{row.policy}: {_how(found, row.policy)}", [("of", "left"), *_right(HEADS)], lines)
    if len(names) > SHOWN_UNITS + 1:
        say(f"... {len(names) - SHOWN_UNITS - 1} more; --json has all of them")


def show_rivals(found: "UnderDraws") -> None:
    """Policies side by side over draws, each with the chance that it beats the first."""
    first = found.rows[0].policy
    lines = []
    for row in found.rows:
        spread = [number(figure) for figure in (*_quantiles(found, row.policy), row.tail(0.1))]
        better = "" if row.policy == first else percent(found.chance_better(row.policy, first))
        lines.append((row.policy, *spread, better))
    heads = [("policy", "left"), *_right((*HEADS, f"better than {first}"))]
    print_table(f"welfare over {found.num_draws} draws of what the records allow", heads, lines)


def _quantiles(found: "UnderDraws", policy: str) -> list[float]:
    return [found[policy].quantile(share) for share in (0.05, 0.5, 0.95)]


def _right(heads: Sequence[str]) -> list[tuple[str, str]]:
    return [(head, "right") for head in heads]


def _how(found: "UnderDraws", policy: str) -> str:
    row = found[policy]
    how = (
        "weighed exactly" if row.exact else f"played {row.num_episodes} times in each, noise {row.noise:.2g} taken out"
    )
    return f"over {found.num_draws} draws of what the records allow, {how}"


def show_knowing(found: "WorthKnowing") -> None:
    """What is worth knowing."""
    sure = found.sure[:MOST_ROWS]
    if sure:
        lines = [(row.type, row.state, row.action, number(row.worth), number(row.stderr)) for row in sure]
        heads = [("type", "left"), ("state", "left"), ("action", "left"), ("worth", "right"), ("±", "right")]
        print_table("worth knowing: welfare that knowing a row would add, by choosing another plan", heads, lines)
    say(f"worth knowing: {found.words}")


def show_robust(found: "Robust") -> None:
    """What the robust plan gains, and what it costs."""
    facts = []
    for name, trade in (("draws chosen on", found.seen), ("draws held out", found.held_out)):
        if trade is not None:
            worst = f"worst {percent(found.share)}: {number(trade.plain_tail)} -> {number(trade.robust_tail)}"
            facts.append((name, f"{worst}; mean: {number(trade.plain_mean)} -> {number(trade.robust_mean)}"))
    if found.bound is not None:
        facts.append(
            ("at most", f"{number(found.bound)} in the worst {percent(found.share)}, by the draws' own bounds")
        )
    facts.append(("in words", found.words))
    print_facts(f"the plan for the worst {percent(found.share)} of {found.num_draws} draws", facts)
