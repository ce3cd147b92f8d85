"""The addresses of the page."""

from fastapi import APIRouter

router = APIRouter(include_in_schema=False)
