"""What the records say besides the model, on a terminal."""

from typing import TYPE_CHECKING

import click

from evenhand.cli.console import print_facts, print_table

if TYPE_CHECKING:
    from evenhand.fitting.diagnostics import Diagnostics
    from evenhand.fitting.diagnostics.effects import Effect, Effects

SHOWN_EFFECTS = 20
"""Effects that are shown; --json and --report have all of them."""


def show_diagnostics(found: "Diagnostics") -> None:
    """A block of sentences by topic, and a table of effects.

    Args:
        found: what was asked.
    """
    facts, last = [], ""
    for topic, said in found.words:
        facts.append(("" if topic == last else topic, said))
        last = topic
    print_facts("what the records say", facts)
    if found.effects is not None and found.effects.each:
        _show_effects(found.effects)


def _show_effects(found: "Effects") -> None:
    effects = [*found.overall, *found.each]
    typed = any(effect.type for effect in effects)
    columns = [("action", "left"), ("in", "left"), ("given", "right"), ("idle", "right")]
    if (unit := effects[0].unit) is not None:
        columns.append(("gain" if unit == "reward" else f"places towards {effects[0].ends[1]}", "right"))
    columns += [("more come to", "left"), ("in 100", "right")]
    rows = [_row(effect, typed) for effect in effects[:SHOWN_EFFECTS]]
    print_table("what an action does, one step later, beside the idle one (intervals of 95 %)", columns, rows)
    if len(effects) > SHOWN_EFFECTS:
        click.echo(f"... {len(effects) - SHOWN_EFFECTS:,} more; --json has all of them\n")


def _row(effect: "Effect", typed: bool) -> list[str]:
    where = effect.state + (f" ({effect.type})" if typed and effect.type else "")
    row = [effect.action, where or "all", f"{effect.visits:,}", f"{effect.idle_visits:,}"]
    if effect.gain is not None:
        row.append("{:+.3f} [{:.3f}, {:.3f}]".format(*effect.gain))
    return [*row, effect.to, "{:+.0f} [{:.0f}, {:.0f}]".format(*(100 * value for value in effect.rise))]
