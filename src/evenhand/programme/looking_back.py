"""Looking back on a programme: audits, as a part of `Programme`."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select

from evenhand.planning.what_if import Budget
from evenhand.programme import schema
from evenhand.programme.auditing import LEVEL, Audit, Books, audit_of, check_level
from evenhand.programme.modelling import Words
from evenhand.programme.running import Running
from evenhand.programme.solving import Certificate, numbers_of
from evenhand.programme.spans import Span, read_span
from evenhand.programme.views import FAMILY, Prices, price_of_fairness, suppose
from evenhand.typing import Progress


class LookingBack(Running):
    """Over any span of steps: who was served, what was promised and what came of it."""

    def audit(
        self, first: int | None = None, last: int | None = None, *, event: int | None = None, level: float = LEVEL
    ) -> Audit:
        """Over a span of steps: who was served how often and how late, what was promised and what came of it.

        Args:
            first: the first step; the first that was accepted when absent.
            last: the last step; the last that was accepted when absent.
            event: as it was known at this event; now when absent.
            level: the probability of intervals; warnings are wrong with at most the rest.

        Raises:
            InvalidInput: no such steps were accepted.
        """
        return audit_of(self.books(first, last, event=event, level=level))

    def books(
        self, first: int | None = None, last: int | None = None, *, event: int | None = None, level: float = LEVEL
    ) -> Books:
        """What audits and pictures of a span are made from; see `audit`.

        Args:
            first: the first step.
            last: the last step.
            event: as it was known at this event.
            level: the probability of intervals.
        """
        wanted = check_level(level)
        with self.store.reading() as tx:
            span = read_span(tx, first, last, event)
            welfare = tx.execute(select(schema.programme.c.welfare)).scalar_one()
            models = {digest: self._model(tx, digest) for digest in set(span.digests) if digest}
            _look_up(span, {digest: words for digest, (_, words) in models.items()})
        return Books(span, models.__getitem__, welfare, wanted)

    def price_of_fairness(
        self, family: Sequence[str] = FAMILY, *, seconds: float | None = None, progress: Progress | bool | None = None
    ) -> Prices:
        """The best plan of the present roster for each of several ideas of welfare, the programme's own marked.

        Args:
            family: ideas of welfare, as text; the programme's own is among them in any case.
            seconds: how long all of it may take, about.
            progress: called now and then with what is being done and the share done.
        """
        problem, _, seed = self.present_problem()
        return price_of_fairness(problem, problem.welfare, family, progress, seconds, seed)

    def suppose(
        self,
        budgets: Sequence[Budget] = (),
        welfare: str | None = None,
        *,
        seconds: float | None = None,
        progress: Progress | bool | None = None,
    ) -> tuple[Certificate, ...]:
        """What the best plans of the present roster would be worth under other budgets, or for another welfare.

        Nothing is kept of it.

        Args:
            budgets: as of `evenhand.what_if`; the present one alone where there are none.
            welfare: what would be fair; the programme's own when absent.
            seconds: how long each may take, about.
            progress: called now and then with what is being done and the share done.
        """
        problem, arms, seed = self.present_problem()
        return suppose(problem, numbers_of(arms), budgets, welfare, progress, seconds, seed)


def _look_up(span: Span, models: Mapping[str, Words]) -> None:
    """Ask for all names of a span where it was read: those that no model has are told there, as damage.

    Args:
        span: what was read.
        models: the names of each model by its digest.
    """
    for words in models.values():
        words.blocks_of(span.arms)
    for one in span.overrides:
        words = models[span.digests[one.step - span.since]]
        for action in (one.planned, one.accepted):
            words.action_number(words.blocks[one.type, one.group], action)
