"""Statements on transition rows: structural zeros, and rows of pairs without records.

Structural zeros. `only_worse`: under the idle action no earlier state in the order of states comes next. `allowed`: the
only transitions beside staying, those to neighbours in the order of states or of a table with the columns `state`,
`next_state` and optionally `action`. `impossible`: a table of the same columns. `absorbing`: states that are never
left, with known rows under every action. Records that contradict them are faults, reported with their rows. A gap
contradicts if no path through it is possible.

State-action pairs without records are stated by the user, never filled in silently:

    idle     the pair moves as the idle action does in the same state, in every draw, and keeps its own usage
    forbid   the pair is never chosen: it uses FORBIDDEN of every resource, more than any budget
    a table  columns state, action, next_state, probability and optionally type: known rows; those of a type override
             those of all types

The idle action itself can be neither idle nor forbidden: if it has no records, a table must state its rows, or the
state must be absorbing. Structural zeros must hold.
"""

from pathlib import Path
from typing import Any

import numpy as np

from evenhand.checks import LARGEST, NEARLY_ONE, Faults, plain
from evenhand.display import counted
from evenhand.errors import InvalidInputError
from evenhand.fitting.log import Log
from evenhand.fitting.missing_steps import Missed, with_paths
from evenhand.fitting.options import ModelOptions, listed
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.stated_values import KEYS, read_statements
from evenhand.fitting.transition_counts import Gaps
from evenhand.model.io.text_table import raise_faults
from evenhand.model.labels import quoted
from evenhand.typing import Bools

LONGEST_GAP = 1000
"""Steps of the longest gap that is summed out; longer ones carry almost no information on a step."""

FORBIDDEN = LARGEST
"""Usage of a forbidden pair; no budget is as large."""


def possible_transitions(log: Log, stated: ModelOptions) -> Bools:
    """(state, action, next_state) possible transitions.

    Args:
        log: names and their order.
        stated: `only_worse`, `allowed`, `impossible` and `absorbing`.

    Raises:
        InvalidInputError: an order is needed, or a name is unknown; with every fault.
    """
    number = len(log.states)
    possible = np.ones((*log.shape[1:], number), dtype=bool)
    is_near = stated.allowed == "neighbours"
    for name, needs_order in (("only_worse", stated.only_worse), ("allowed", is_near)):
        if needs_order and not log.is_ordered:
            raise InvalidInputError(f"{name}: states must be given in their order", argument=name)
    if is_near:
        possible &= (np.abs(np.subtract.outer(np.arange(number), np.arange(number))) <= 1)[:, None]
    elif stated.allowed is not None:
        possible &= np.eye(number, dtype=bool)[:, None]
        _state_transitions(possible, log, stated.allowed, "allowed", True)
    if stated.only_worse:
        possible[:, 0] = np.triu(possible[:, 0])
    if stated.impossible is not None:
        _state_transitions(possible, log, stated.impossible, "impossible", False)
    for state in log.find_states(listed(stated.absorbing)):
        possible[state] = False
        possible[state, :, state] = True
    faults = Faults()
    for s, a in np.argwhere(~possible.any(axis=-1)).tolist():
        faults.add("", f"state {quoted(log.states[s])}, action {quoted(log.actions[a])}: no next state is possible")
    raise_faults(faults.found, "impossible")
    return possible


def _state_transitions(possible: Bools, log: Log, source: Any, name: str, value: bool) -> None:
    """Set the entries of a table of transitions."""
    for row in read_statements(source, log, name, (), KEYS[1:], ("state", "next_state")).statements:
        possible[row.cell[1:]] = value


def refuse_contradictions(log: Log, possible: Bools, carry_action: bool = False) -> None:
    """Raise TableError if an arm is absent for longer than can be summed out, or makes an impossible transition.

    Args:
        log: records whose times are whole steps apart.
        possible: (state, action, next_state) possible transitions.
        carry_action: whether an action goes on through missing steps.
    """
    first = np.flatnonzero(log.has_next)
    steps = np.rint(log.time[first + 1] - log.time[first]).astype(np.int64)

    def absence(i: int) -> str:
        """Describe a gap that is too long."""
        steps = f"{log.time[i] - log.time[i - 1]:,.0f} steps of {log.step_in_words}, more than {LONGEST_GAP:,}"
        hint = "Check its time, give the arm another name from there on, or give a longer step"
        return f"arm {quoted(log.arms[log.arm[i]])} reappears after {steps}. {hint}"

    def contradiction(i: int) -> str:
        """Describe an impossible transition."""
        arm, before, after = log.arms[log.arm[i]], log.states[log.state[i - 1]], log.states[log.state[i]]
        duration = np.rint(log.time[i] - log.time[i - 1])
        over = f"{quoted(log.actions[log.action[i - 1]])}{'' if duration == 1 else f' in {duration:.0f} steps'}"
        return f"arm {quoted(arm)} moved from {quoted(before)} to {quoted(after)} under {over}: impossible"

    # A move is reported at the row it ends in.
    faults = log.faults("gaps that are too long")
    faults.flag(first[steps > LONGEST_GAP] + 1, absence)
    faults.raise_if_any()
    if possible.all():
        return
    fine = possible[log.state[first], log.action[first], log.state[first + 1]]
    if (gap := np.flatnonzero(steps > 1)).size:  # equal moves together: there are far fewer of them than rows
        rows = first[gap]
        codes = np.stack([0 * rows, log.state[rows], log.action[rows], log.state[rows + 1], steps[gap]])
        kinds, back = np.unique(codes, axis=1, return_inverse=True)
        kind, state, action, after = kinds[:4].astype(np.int32)
        gaps = Gaps(kind, state, action, after, kinds[4].astype(np.float64), np.ones_like(kinds[4]))
        missed = Missed(gaps, possible.shape[1] if carry_action else 1)
        fine[gap] = with_paths(missed, np.zeros((1, *possible.shape)), possible)[back.ravel()]
    faults = log.faults("the records contradict the structural zeros")
    faults.flag(first[~fine] + 1, contradiction)
    faults.raise_if_any()


def settle(log: Log, posterior: Posterior, stated: ModelOptions, possible: Bools) -> tuple[Posterior, Bools, list[str]]:
    """Apply the user's statements on unobserved pairs.

    Returns the posterior, in which rows without a statement are still NaN, the (type, state, action) forbidden pairs,
    and notes.

    Args:
        log: the records, with the names.
        posterior: NaN in the mean of unobserved pairs.
        stated: `unseen` and `absorbing`.
        possible: (state, action, next_state) possible transitions.

    Raises:
        TableError: a table is invalid, or states an impossible transition; with all faults.
        InvalidInputError: `unseen` is neither a known word nor a file.
    """
    notes, unseen = [], stated.unseen
    if absorbing := listed(stated.absorbing):
        known = np.zeros(posterior.mean.shape[:-1], dtype=bool)
        known[:, log.find_states(absorbing)] = True
        stay = np.broadcast_to(np.eye(len(log.states))[None, :, None], posterior.mean.shape)
        posterior = posterior.settled(stay, known)
        notes.append(f"{', '.join(map(quoted, absorbing))}: absorbing, as stated")
    unknown = np.asarray(np.isnan(posterior.mean).any(axis=-1))
    certain = unknown & (possible.sum(axis=-1) == 1)
    if certain.any():  # as of the worst state under the idle action, which never improves a state
        posterior = posterior.settled(np.broadcast_to(possible.astype(float), posterior.mean.shape), certain)
        notes.append(f"only one transition is possible: {'; '.join(log.pair_names(certain, 5))}")
        unknown &= ~certain
    forbidden = np.zeros_like(unknown)
    if unseen is None or not unknown.any():
        return posterior, forbidden, notes
    source = "unseen"
    if isinstance(unseen, str) and unseen in ("idle", "forbid"):
        like = np.broadcast_to(np.arange(unknown.shape[2], dtype=np.int32), unknown.shape).copy()
        settled = unknown & ~unknown[:, :, :1]
        like[settled] = 0
        posterior = posterior.settled(np.zeros(posterior.mean.shape), np.zeros_like(unknown), like)
        forbidden = settled if unseen == "forbid" else forbidden
        if settled.any():
            how = "as the idle action" if unseen == "idle" else "forbidden"
            named = "; ".join(log.pair_names(settled, 5))
            notes.append(f"{counted(int(settled.sum()), 'unobserved pair')} {how}, as stated: {named}")
        if unknown[:, :, 0].any():
            named = "; ".join(log.pair_names(unknown[:, :, :1], 5))
            notes.append(f"the idle action has no records: {named}. State its rows in a table, or an absorbing state")
    else:
        posterior, source = _stated_rows(log, posterior, unseen, unknown)
        notes.append(f"{counted(int(unknown.sum()), 'unobserved pair')}: as stated by {source}")
    rows = np.where((unknown & ~forbidden)[..., None], np.nan_to_num(posterior.mean), 0.0)
    faults = Faults()
    for s, a, j in np.argwhere(((rows > 0) & ~possible).any(axis=0)).tolist():
        names = (quoted(name) for name in (log.states[s], log.actions[a], log.states[j]))
        faults.add("", "from {} under {} to {}: stated to be impossible".format(*names))
    raise_faults(faults.found, source)
    return posterior, forbidden, notes


def _stated_rows(log: Log, posterior: Posterior, source: Any, unknown: Bools) -> tuple[Posterior, str]:
    """Posterior with the rows of a table, and the name of the table."""
    if isinstance(source, str) and not Path(source).suffix and not Path(source).exists():
        raise InvalidInputError(f"unseen: expected idle, forbid, or a file, got {source!r}")
    table, faults = read_statements(source, log, "unseen", ("probability",), KEYS, KEYS[1:]), Faults()
    for row in table.statements:
        if not 0 <= row.figures[0] <= 1:
            faults.add(row.where, f"expected a probability from 0 to 1, got {plain(row.figures[0])}")
        elif not unknown[row.cell[:3]].any():
            faults.add(row.where, "this pair has records; only unobserved pairs may be stated")
    raise_faults(faults.found, table.source)
    shape, of_all = posterior.mean.shape, [row for row in table.statements if row.cell[0] == slice(None)]
    of_types = [row for row in table.statements if row.cell[0] != slice(None)]
    own, common = table.values(shape, of_types)[..., 0], table.values(shape, of_all)[..., 0]
    stated = np.where(np.isfinite(own).any(axis=-1, keepdims=True), own, common)
    given = np.isfinite(stated).any(axis=-1) & unknown
    sums = np.nan_to_num(stated).sum(axis=-1)
    for t, s, a in np.argwhere(given & (np.abs(sums - 1) > NEARLY_ONE)).tolist():
        faults.add(log.pair_name(t, s, a), f"probabilities sum to {plain(sums[t, s, a])}, not 1")
    raise_faults(faults.found, table.source)
    return posterior.settled(np.nan_to_num(stated) / np.where(given, sums, 1.0)[..., None], given), table.source
