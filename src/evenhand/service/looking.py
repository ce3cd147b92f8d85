"""Looking at a programme again and again, and soon after it has changed."""

import asyncio
import logging
from contextlib import suppress

from evenhand.errors import EvenhandError
from evenhand.service.jobs import Job
from evenhand.service.refusals import Refused, unforeseen_details

log = logging.getLogger("evenhand.service")


class Looker:
    """Looks, in the background of a server, from `start` to `stop`."""

    what = ""
    """What it looks for, as the log says it."""

    def __init__(self, every: float, first: float = 0.0) -> None:
        """Nothing is looked at yet.

        Args:
            every: seconds between two looks.
            first: seconds before the first.
        """
        self._every, self._first = every, first
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no longer."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def look(self) -> None:
        """Look soon: something has changed."""
        self._wake.set()

    async def _run(self) -> None:
        await asyncio.sleep(self._first)
        while True:
            self._wake.clear()  # before the look: what changes while it lasts is looked at, too
            try:
                await self._look()
            except (EvenhandError, Refused):  # it will be tried again
                log.warning("could not look whether %s", self.what)
            except Exception as error:  # noqa: BLE001  # a server that no longer looks would go on by what is old
                unforeseen_details(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._every)

    async def _look(self) -> None:
        raise NotImplementedError


def is_final(job: Job) -> bool:
    """Whether a job that was not done would end the same way again, or somebody does not want it."""
    if job.status == "failed":
        return job.failed is None or job.failed["status"] != 503
    return job.status == "cancelled" and job.message == "cancelled"
