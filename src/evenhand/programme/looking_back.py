"""Looking back on a programme: audits, as a part of `Programme`."""

from sqlalchemy import select

from evenhand.programme import schema
from evenhand.programme.auditing import LEVEL, Audit, Books, audit_of, check_level
from evenhand.programme.opened import Opened
from evenhand.programme.spans import read_span


class LookingBack(Opened):
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
        return Books(span, models.__getitem__, welfare, wanted)
