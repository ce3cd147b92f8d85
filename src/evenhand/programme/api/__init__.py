"""HTTP interface of a programme (FastAPI): each endpoint is one call into the library.

Needs the extra `service`. Nothing is imported here, so that `--help` does not wait for a web framework.
"""

from importlib.util import find_spec

from evenhand.errors import MissingExtraError

if any(find_spec(name) is None for name in ("fastapi", "prometheus_client", "python_multipart", "uvicorn")):
    raise MissingExtraError("evenhand serve", "service")
