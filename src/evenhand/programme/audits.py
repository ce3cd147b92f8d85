"""Audits of a programme, waiting times, the price of fairness and what-if plans of the present roster."""

import contextlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import takewhile

import numpy as np
from sqlalchemy import Connection, select

from evenhand.errors import NotConvergedError
from evenhand.planning.budget_sweep import Budget
from evenhand.planning.plan import Plan
from evenhand.programme import roster, schema
from evenhand.programme.audit import LEVEL, Audit, Books, audit_of, check_level
from evenhand.programme.audit_window import Span, read_span
from evenhand.programme.belief import decided_between
from evenhand.programme.certificates import numbers_of, plan_in_use
from evenhand.programme.counterfactuals import FAMILY, Prices, Supposed, price_of_fairness, suppose
from evenhand.programme.cycle import Cycle
from evenhand.programme.decisions import PlanRow
from evenhand.programme.expectations import continue_by
from evenhand.programme.ledger import digest_of
from evenhand.programme.library import Library, remember
from evenhand.programme.named_model import Words
from evenhand.programme.roster import present_step
from evenhand.typing import Bools, Progress


def _steps_in_need(needs: Bools, state: int | str, past: Sequence[tuple[int, bool]]) -> int:
    """Steps in need up to now.

    Args:
        needs: (state,) whether an arm is in need there.
        state: of now; a text where it is none of the model.
        past: (state, whether it was served), the last step first.
    """
    if isinstance(state, str) or not needs[state]:
        return 0
    before = takewhile(lambda one: needs[one[0]] and not one[1], past)
    return 1 + sum(1 for _ in before)


class Audits:
    """Audits of a span of steps, waiting times, and counterfactual plans of the present roster."""

    def __init__(self, library: Library, cycle: Cycle) -> None:
        """Use the store, models and policies of a programme, and its plans."""
        self._library, self._store, self._cycle = library, library.store, cycle
        self._needs: OrderedDict[str, Bools | None] = OrderedDict()

    def audit(
        self, first: int | None = None, last: int | None = None, *, event: int | None = None, level: float = LEVEL
    ) -> Audit:
        """Audit a window of steps: service and waiting times, promised and realised rewards.

        Args:
            first: the first step; by default the first that was accepted.
            last: the last step; by default the last that was accepted.
            event: as it was known at this event; by default now.
            level: the probability of intervals; warnings are wrong with at most the rest.

        Raises:
            InvalidInputError: no such steps were accepted.
        """
        return audit_of(self.books(first, last, event=event, level=level))

    def books(
        self, first: int | None = None, last: int | None = None, *, event: int | None = None, level: float = LEVEL
    ) -> Books:
        """Return the accounts of a window; see `audit`.

        Args:
            first: the first step.
            last: the last step.
            event: as it was known at this event.
            level: the probability of intervals.
        """
        wanted = check_level(level)
        with self._store.reading() as tx:
            span = read_span(tx, first, last, event)
            welfare = tx.execute(select(schema.programme.c.welfare)).scalar_one()
            models = {digest: self._library.model(tx, digest) for digest in set(span.digests) if digest}
            _look_up(span, {digest: words for digest, (_, words) in models.items()})
        return Books(span, models.__getitem__, welfare, wanted)

    def in_need(self, rows: Sequence[PlanRow], step: int, most: int = 100) -> dict[int, int] | None:
        """For how many steps arms of a plan have been in need and not served, this one included, by their numbers.

        What need is, `programme.waiting` says; here the conditions are those that each plan knew. Who is in no need is
        left out. None if the roster has no fair relaxation, since its floors are infeasible.

        Args:
            rows: of the plan.
            step: of the plan.
            most: maximum number of steps.
        """
        with self._store.reading() as tx:
            words = self._library.model(tx)[1]
            blocks = {row.arm_id: words.blocks[row.type, row.group] for row in rows}
            needs = self._needs_of(tx, words)
            if needs is None:
                return None
            past = decided_between(tx, words, blocks, max(step - most, 0), step)
        now = {row.arm_id: words.state(blocks[row.arm_id], row.state) for row in rows}
        found = {arm: _steps_in_need(needs[blocks[arm]], state, past[arm]) for arm, state in now.items()}
        return {arm: steps for arm, steps in found.items() if steps}

    def _needs_of(self, tx: Connection, words: Words) -> Bools | None:
        """(block, state) who is in need, by the fair relaxation of the arms that take part now, if any; remembered."""
        row = tx.execute(select(schema.programme.c.model, schema.programme.c.welfare)).one()
        arms = roster.taking_part(tx, present_step(tx))
        if not arms:
            return np.zeros(words.model.tables.rewards.shape[:2], dtype=bool)
        taken = [words.blocks[arm.type, arm.group] for arm in arms]
        counts = np.bincount(taken, minlength=len(words.model.tables))
        key = digest_of([row.model, counts.tolist()])
        with contextlib.suppress(KeyError):
            return self._needs[key]
        try:
            found = continue_by(words.model, counts, row.welfare).needs
        except NotConvergedError:
            found = None
        remember(self._needs, key, found)
        return found

    def price_of_fairness(
        self, family: Sequence[str] = FAMILY, *, seconds: float | None = None, progress: Progress | bool | None = None
    ) -> Prices:
        """The best plan of the present roster for each of several ideas of welfare, the programme's own marked.

        Args:
            family: ideas of welfare, as text; the programme's own is among them in any case.
            seconds: approximate time limit.
            progress: called with phase and share completed.
        """
        problem, _, seed = self._cycle.present_problem()
        return price_of_fairness(problem, problem.welfare, family, progress, seconds, seed)

    def suppose(
        self,
        budgets: Sequence[Budget] = (),
        welfare: str | None = None,
        *,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
        earlier: Sequence[Plan] = (),
    ) -> tuple[Supposed, ...]:
        """Evaluate the best plans of the present roster under other budgets, or for another welfare.

        The plan in use competes: no budget that contains today's gets a worse one. Nothing is stored.

        Args:
            budgets: as of `evenhand.solve`; the present one alone where there are none.
            welfare: what would be fair; by default the programme's own.
            seconds: approximate time limit of each.
            progress: called with phase and share completed.
            earlier: plans of earlier suppositions, which compete, too.
        """
        problem, arms, seed = self._cycle.present_problem()
        numbers, today, plans = numbers_of(arms), self._cycle.certificate(), list(earlier)
        if today is not None:
            with self._store.reading() as tx:
                plan = self._library.policy(tx, today.policy)
            plans.insert(0, plan_in_use(plan, today, problem))
        return suppose(problem, numbers, budgets, welfare, progress, seconds, seed, plans, today)


def _look_up(span: Span, models: Mapping[str, Words]) -> None:
    """Look up all names of a window while it is read, so that unknown names are reported as damage.

    Args:
        span: what was read.
        models: the names of each model by its digest.
    """
    for words in models.values():
        words.blocks_of(span.arms)
    for one in span.overrides:
        words = models[span.digests[one.step - span.since]]
        for action in (one.planned, one.accepted):
            arm = span.arms[one.place]
            words.action_number(words.blocks[arm.type, arm.group], action)
