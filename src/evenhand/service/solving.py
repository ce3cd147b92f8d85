"""Policies of the programme, found in the background: when one is asked for, and when the numbers have drifted.

A look at the programme every few seconds, and after every change of its roster, tells whether it is to be solved anew
(`Programme.needs_solving`). What is solved is named after the model and the numbers, so that servers of the same
programme do it once.
"""

import asyncio
from typing import Any

from evenhand.programme.programme import Programme
from evenhand.programme.solving import METHOD, Certificate, Drift, numbers_of
from evenhand.service.board import Board
from evenhand.service.jobs import Job, name_of
from evenhand.service.looking import Looker, is_final


class Solver(Looker):
    """Sees to it that there is a policy that fits."""

    what = "to solve anew"

    def __init__(self, programme: Programme, board: Board, look_every: float) -> None:
        """Nothing is looked at yet.

        Args:
            programme: which.
            board: where jobs are begun.
            look_every: seconds between two looks.
        """
        super().__init__(look_every)
        self._programme, self._board = programme, board
        self._given_up: set[str] = set()

    async def solve(
        self, method: str = METHOD, seconds: float | None = None, who: str = "", key: str | None = None, owner: str = ""
    ) -> Job:
        """Find a policy for those who take part now; the job that does, here or on another server."""
        asked: dict[str, Any] = {"method": method, "seconds": seconds}
        drift = await asyncio.to_thread(self._programme.needs_solving)
        return await self._submit(asked, drift, who, key, owner)

    async def _submit(
        self, asked: dict[str, Any], drift: Drift, who: str, key: str | None = None, owner: str = ""
    ) -> Job:
        name = await asyncio.to_thread(self._name, asked, drift)
        secret = {"address": self._programme.store.full_address, "who": who, "key": key}
        return await self._board.submit(Job(name, "solve", asked, secret, owner=owner))

    def _name(self, asked: dict[str, Any], drift: Drift) -> str:
        """With the policy that serves now: what was solved before is solved again when another has taken its place."""
        arms, model = self._programme.arms(), self._programme.status().model
        return name_of("solve", model, [list(row) for row in numbers_of(arms)], drift.policy, asked)

    async def _look(self) -> None:
        drift = await asyncio.to_thread(self._programme.needs_solving)
        if not drift.needed:
            await self._certify()
            return
        asked = {"method": METHOD, "seconds": None}
        name = await asyncio.to_thread(self._name, asked, drift)
        if name in self._given_up:  # it would fail again
            return
        job = await self._submit(asked, drift, "server")
        await job.ended()
        if is_final(job):
            self._given_up.add(name)

    async def _certify(self) -> None:
        """See what the policy is worth for those who take part now, where that is not known: its gap may have drifted.

        A gap beyond its bound is found at the next look, which is soon.
        """
        wanted = await asyncio.to_thread(self._programme.uncertified)
        if wanted is None:
            return
        policy, numbers = wanted
        name = name_of("certify", policy, [list(row) for row in numbers])
        if name in self._given_up:
            return
        secret = {"address": self._programme.store.full_address}
        job = await self._board.submit(Job(name, "certify", {"policy": policy}, secret))
        await job.ended()
        if job.status == "done" and job.answer is not None:
            found = Certificate.of(job.answer)
            self._programme.learn_certificate(found)
            if (found.policy, found.numbers) == wanted:
                self.look()
                return
        if job.status == "done" or is_final(job):  # of a roster that changed meanwhile there is another question
            self._given_up.add(name)
