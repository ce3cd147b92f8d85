"""A programme that is open: its store, and the models and policies that were read from it."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from evenhand.errors import InvalidInput
from evenhand.model.coupled import CoupledMDP
from evenhand.planning.plan import Plan
from evenhand.programme import schema
from evenhand.programme.ledger import answered
from evenhand.programme.modelling import Words, from_bytes
from evenhand.programme.solving import Certificate, plan_from_bytes
from evenhand.programme.store import Store
from evenhand.typing import Bools

T = TypeVar("T")

REMEMBERED = 8
"""Models, policies and certificates that are kept in memory, of each."""


class Opened:
    """What every part of a programme reads from."""

    def __init__(self, store: Store) -> None:
        """Run what is in a store; `Programme.create` and `Programme.open` do this from an address."""
        self.store = store
        self._models: OrderedDict[str, tuple[CoupledMDP, Words]] = OrderedDict()
        self._policies: OrderedDict[str, Plan] = OrderedDict()
        self._certificates: OrderedDict[str, Certificate] = OrderedDict()
        self._needs: OrderedDict[str, Bools | None] = OrderedDict()

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def _model(self, tx: Connection, digest: str | None = None) -> tuple[CoupledMDP, Words]:
        """A model by its digest, or the present one, with its names."""
        wanted = digest or str(tx.execute(select(schema.programme.c.model)).scalar_one())
        known = self._models.get(wanted)  # another thread may let go of it at any time
        if known is None:
            body = tx.execute(select(schema.models.c.body).where(schema.models.c.digest == wanted)).scalar_one()
            model = from_bytes(body)
            known = model, Words(model)
            remember(self._models, wanted, known)
        return known

    def _check_first(self, key: str | None, kind: str, asked: Any, check: Callable[[Connection], object]) -> None:
        """Check a change before its lock is taken, where a wrong one takes long; a right one is checked again there.

        Args:
            key: of the request; what was answered under it is answered again, and not checked.
            kind: what is asked for.
            asked: all that is asked for, as JSON can hold it.
            check: raises what is wrong.
        """
        with self.store.reading() as tx:
            if answered(tx, key, kind, asked) is None:
                check(tx)

    def _policy(self, tx: Connection, digest: str) -> Plan:
        """A policy by its digest, with the problem it was made for."""
        known = self._policies.get(digest)
        if known is None:
            body = tx.execute(select(schema.policies.c.body).where(schema.policies.c.digest == digest)).scalar()
            if body is None:
                raise InvalidInput(f"{self.store.address}: there is no policy {digest}")
            known = plan_from_bytes(body)
            remember(self._policies, digest, known)
        return known


def remember(memory: "OrderedDict[str, T]", key: str, value: T) -> None:
    """Keep something under a key, and let go of what was kept longest."""
    memory[key] = value
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
