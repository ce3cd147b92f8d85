"""From templates to HTML: every text is escaped, and a name that a template asks for and nobody gave is an error."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evenhand._version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("evenhand.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **facts: Any) -> str:
    """A page of one of the templates.

    Args:
        template: its file.
        **facts: what it tells; texts are escaped there.
    """
    return _environment().get_template(template).render(version=__version__, **facts)
