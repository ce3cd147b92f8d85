"""The application: one object with all that a server has, and the routes that speak for it.

create_app(programme, settings)  →  FastAPI
    app.state.service            Service (state.py): the programme, the jobs, the decider, the metrics
    routes/                      the API
    page/routes.py               the page
    guards                       what every request passes before
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from evenhand._version import __version__
from evenhand.programme.programme import Programme
from evenhand.service import guards, refusals
from evenhand.service.page.routes import router as page
from evenhand.service.routes import decide, health, jobs, past, plans
from evenhand.service.routes import programme as programme_routes
from evenhand.service.settings import Settings
from evenhand.service.state import Service


def create_app(programme: Programme, settings: Settings | None = None) -> FastAPI:
    """An application that serves a programme.

    Args:
        programme: an open one; who opened it closes it.
        settings: how it behaves; by default for one planner on this machine.
    """
    settings = settings or Settings()
    service = Service(programme, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="evenhand",
        version=__version__,
        summary="A programme that shares scarce resources fairly: plans, decisions and audits.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    for module in (health, decide, programme_routes, plans, past, jobs):
        app.include_router(module.router)
    app.include_router(page)
    refusals.install(app)
    app.add_middleware(guards.Bodies, settings=settings)
    app.add_middleware(guards.Doors, settings=settings, metrics=service.metrics, sessions=service.sessions)
    app.add_middleware(guards.Telling, metrics=service.metrics)
    return app
