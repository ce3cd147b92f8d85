"""The addresses of the page. Each is one call into the library; forms are answered by going somewhere (303)."""

from fastapi import APIRouter

from evenhand.service.page import arm_routes, door_routes, look_routes, today_routes

router = APIRouter(include_in_schema=False)
for _part in (today_routes, look_routes, arm_routes, door_routes):
    router.include_router(_part.router)
