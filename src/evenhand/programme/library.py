"""Models and policies of a programme, by digest, with a cache of those read last."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from evenhand.errors import InvalidInputError
from evenhand.model.coupled import CoupledMDP
from evenhand.planning.plan import Plan
from evenhand.programme import roster, schema
from evenhand.programme.certificates import plan_from_bytes
from evenhand.programme.ledger import answered
from evenhand.programme.named_model import Words, from_bytes, of_roster
from evenhand.programme.roster import RosterArm, present_step
from evenhand.programme.store import Store

T = TypeVar("T")

CACHED = 8
"""Entries per cache."""


class Library:
    """Store of a programme, with its models and policies."""

    def __init__(self, store: Store) -> None:
        """Use an open store."""
        self.store = store
        self._models: OrderedDict[str, tuple[CoupledMDP, Words]] = OrderedDict()
        self._policies: OrderedDict[str, Plan] = OrderedDict()

    def model(self, tx: Connection, digest: str | None = None) -> tuple[CoupledMDP, Words]:
        """Return a model with its names; by default the one in use."""
        wanted = digest or str(tx.execute(select(schema.programme.c.model)).scalar_one())
        known = self._models.get(wanted)  # another thread may drop it at any time
        if known is None:
            body = tx.execute(select(schema.models.c.body).where(schema.models.c.digest == wanted)).scalar_one()
            model = from_bytes(body)
            known = model, Words(model)
            remember(self._models, wanted, known)
        return known

    def policy(self, tx: Connection, digest: str) -> Plan:
        """Return a policy with the problem it was solved for."""
        known = self._policies.get(digest)
        if known is None:
            body = tx.execute(select(schema.policies.c.body).where(schema.policies.c.digest == digest)).scalar()
            if body is None:
                raise InvalidInputError(f"{self.store.address}: policy {digest} does not exist")
            known = plan_from_bytes(body)
            remember(self._policies, digest, known)
        return known

    def present(self, tx: Connection) -> list[RosterArm]:
        """Return the arms that take part at the present step.

        Raises:
            InvalidInputError: there are none.
        """
        step = present_step(tx)
        arms = roster.taking_part(tx, step)
        if not arms:
            raise InvalidInputError(f"no arm takes part at step {step}")
        return arms

    def problem(self, tx: Connection, arms: Sequence[RosterArm], model: str | None = None) -> CoupledMDP:
        """Return the problem of some arms."""
        settled, words = self.model(tx, model)
        welfare = tx.execute(select(schema.programme.c.welfare)).scalar()
        return of_roster(settled, [words.blocks[arm.type, arm.group] for arm in arms], welfare)

    def check_first(self, key: str | None, kind: str, request: Any, check: Callable[[Connection], object]) -> None:
        """Check a change before its lock is taken, so that an invalid table does not hold up others.

        Args:
            key: idempotency key; a request that was answered under it is not checked.
            kind: kind of the change.
            request: the whole request as JSON values.
            check: raises all faults.
        """
        with self.store.reading() as tx:
            if answered(tx, key, kind, request) is None:
                check(tx)


def remember(cache: "OrderedDict[str, T]", key: str, value: T) -> None:
    """Add an entry to a cache and drop the oldest ones."""
    cache[key] = value
    while len(cache) > CACHED:
        cache.popitem(last=False)
