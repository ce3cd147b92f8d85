"""The model held against what is seen, in the background; where it no longer fits, a fit is offered.

Whenever as many reports came as the programme's bounds say, a job tests the model (`programme.drifting`), and fits it
anew if it fails the test. The job is named after the model and how many reports came, so that servers of the same
programme do it once, and one that is started again finds what was done. Nothing is adopted.
"""

import asyncio

from evenhand.programme.programme import Programme
from evenhand.service.board import Board
from evenhand.service.jobs import Job, name_of
from evenhand.service.looking import Looker, is_final

SECONDS = 45.0
"""How long a policy for an offered model may take, about."""


class Judge(Looker):
    """Sees to it that somebody is told when the model no longer fits."""

    what = "the model still fits"

    def __init__(self, programme: Programme, board: Board, look_every: float) -> None:
        """Nothing is looked at yet.

        Args:
            programme: which.
            board: where jobs are begun.
            look_every: seconds between two looks, and before the first.
        """
        super().__init__(look_every, first=look_every)
        self._programme, self._board = programme, board
        self._answered: set[str] = set()

    async def _look(self) -> None:
        question = await asyncio.to_thread(self._programme.question)
        if question is None:
            return
        asked = {"seconds": SECONDS}
        name = name_of("drift", question.model, question.since, question.number, question.bounds.as_dict())
        if name in self._answered:
            return
        secret = {"address": self._programme.store.full_address, "who": "server"}
        job = await self._board.submit(Job(name, "drift", asked, secret))
        await job.ended()
        if job.status == "done" or is_final(job):
            self._answered.add(name)
