"""All that a server has, in one object that requests find."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import Request

from evenhand.programme.programme import Programme
from evenhand.service.board import Board
from evenhand.service.deciding import Decider
from evenhand.service.jobs import Jobs
from evenhand.service.judging import Judge
from evenhand.service.metrics import Metrics
from evenhand.service.sessions import Sessions
from evenhand.service.settings import Settings
from evenhand.service.solving import Solver

THREADS = 12
"""Requests that speak to the database at a time: there are 15 connections to it, and some are for work behind them."""


class Service:
    """All that a server has."""

    def __init__(self, programme: Programme, settings: Settings) -> None:
        """Nothing runs yet.

        Args:
            programme: which it serves.
            settings: how it behaves.
        """
        self.programme, self.settings = programme, settings
        self.metrics = Metrics()
        self.sessions = Sessions(settings.session)
        self.stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.jobs = Jobs(settings, self.metrics)
        self.decider = Decider(self.jobs, settings.kept_models, self.metrics)
        self.board = Board(programme.store, self.jobs)
        self.solver = Solver(programme, self.board, settings.look_every)
        self.judge = Judge(programme, self.board, settings.judge_every)

    def look(self) -> None:
        """Look soon whether to solve anew; called by any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.solver.look)

    def stop_soon(self) -> None:
        """Let streams end, so that nobody waits for them; called by the handler of a signal."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stopping.set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last."""
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        self._loop = asyncio.get_running_loop()
        self.jobs.start()
        self.solver.start()
        self.judge.start()
        try:
            yield
        finally:
            self.stopping.set()
            await self.solver.stop()
            await self.judge.stop()
            await self.board.stop()
            await self.jobs.stop()


def service_of(request: Request) -> Service:
    """The service that answers a request."""
    service: Service = request.app.state.service
    return service
