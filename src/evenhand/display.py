"""Results that show themselves: in a notebook, as a frame, as a figure, as a page; and work that shows how far it is.

What is said and drawn of a result is in `report`, which stands above all that it tells of. So results do not import
it: it is found by its name when something is to be shown, as the package finds its public names. `told_by` is the only
place in the library where a lower layer asks a higher one, and it asks for nothing but pictures and words.

    Shown       gives a class its HTML in notebooks; ShownPolicy also a line of text
    told_by     the function of `report` that tells
    as_frame    named columns as a frame of pandas or polars
    telling     something to tell progress to; with `progress=True` a bar, in a terminal and in a notebook
    shows_bar   lets a function take `progress=True`
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from html import escape
from importlib import import_module
from importlib.util import find_spec
from time import monotonic
from typing import Any, Literal, ParamSpec, TypeVar

from evenhand.errors import InvalidInput, MissingExtra
from evenhand.typing import Progress

FrameLibrary = Literal["pandas", "polars"]
"""Who makes a frame."""

SECONDS_BETWEEN_LINES = 2.0
"""How often progress is told where there is neither a terminal nor a notebook."""

SECONDS_BETWEEN_UPDATES = 0.1
"""How often the bar of a notebook moves."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class Shown:
    """Has an HTML form for notebooks."""

    def _repr_html_(self) -> str:
        html: str = told_by("notebook", "html_of")(self)
        return html


class ShownPolicy(Shown):
    """A policy in one line, and as HTML."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._in_short()})"

    def _in_short(self) -> str:
        """For whom it was made, where it knows."""
        problem = getattr(self, "problem", None) or getattr(getattr(self, "reduction", None), "problem", None)
        return "" if problem is None else f"for {counted(problem.num_arms, 'arm')}"


def told_by(room: str, name: str) -> Callable[..., Any]:
    """A function of `report`, loaded when it is needed.

    Args:
        room: the file of it.
        name: what it is called there.
    """
    function: Callable[..., Any] = getattr(import_module(f"evenhand.report.{room}"), name)
    return function


def counted(count: int, singular: str, plural: str = "") -> str:
    """`1 arm`, `5 arms`; thousands are set apart."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


# Frames


def as_frame(columns: Mapping[str, Sequence[Any]], library: FrameLibrary | None = None) -> Any:
    """Named columns as a frame.

    Args:
        columns: what is in each; all of one length.
        library: `pandas` or `polars`; when absent pandas if it is installed, else polars.

    Raises:
        MissingExtra: it is not installed; says what to type.
    """
    if library not in (None, "pandas", "polars"):
        raise InvalidInput(f"library: expected 'pandas' or 'polars', got {library!r}")
    wanted: tuple[FrameLibrary, ...] = ("pandas", "polars") if library is None else (library,)
    for name in wanted:
        if find_spec(name) is not None:
            return import_module(name).DataFrame(dict(columns))
    if library == "pandas":
        raise MissingExtra("to_frame", package="pandas")
    raise MissingExtra("to_frame", "data")


# Progress


def shows_bar(function: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """Let a function be called with `progress=True`: it gets the callback of a bar that goes when it is done."""
    place = list(inspect.signature(function).parameters).index("progress")

    @wraps(function)
    def called(*arguments: Asked.args, **keywords: Asked.kwargs) -> Answer:
        given = keywords.get("progress", arguments[place] if len(arguments) > place else None)
        if not isinstance(given, bool):
            return function(*arguments, **keywords)
        with telling(given) as tell:
            changed: list[Any] = list(arguments)
            if len(arguments) > place:
                changed[place] = tell
            else:
                keywords["progress"] = tell
            return function(*changed, **keywords)

    return called


def heard(progress: Progress | bool | None) -> Progress | None:
    """The callback alone, inside a function that `shows_bar`: True and False have been replaced before."""
    return None if isinstance(progress, bool) else progress


@contextmanager
def telling(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Something to tell progress to: what was given, nothing, or for True a bar.

    Args:
        progress: a callback; True for a bar in a notebook or a terminal and plain lines elsewhere; None or False.
    """
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    elif _in_notebook():
        yield from _cell_bar()
    elif sys.stderr is not None and sys.stderr.isatty():
        yield from _terminal_bar()
    else:
        yield _lines()


def _in_notebook() -> bool:
    """Whether a kernel runs this: then there is a cell to show a bar in."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None) is not None


class _Bar:
    """How far it is, as HTML."""

    def __init__(self, what: str = "", share: float = 0.0, over: bool = False) -> None:
        self.what, self.share, self.over = what, min(max(share, 0.0), 1.0), over

    def __repr__(self) -> str:
        return "" if self.over else f"{self.what}: {100 * self.share:.0f} %"

    def _repr_html_(self) -> str:
        if self.over:
            return ""
        bar = f'<progress value="{self.share:.4f}" max="1" style="width: 16em; vertical-align: middle"></progress>'
        return f"<div>{bar} {100 * self.share:.0f}&nbsp;% {escape(self.what)}</div>"


def _cell_bar() -> Iterator[Progress]:
    from IPython.display import display  # type: ignore[import-not-found]  # a notebook brings it

    handle, last = display(_Bar(), display_id=True), [0.0]

    def tell(what: str, share: float) -> None:
        if (now := monotonic()) - last[0] >= SECONDS_BETWEEN_UPDATES:
            last[0] = now
            handle.update(_Bar(what, share))

    try:
        yield tell
    finally:
        handle.update(_Bar(over=True))


def _terminal_bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    words = TextColumn("{task.description:24}", markup=False)
    columns = (words, BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeRemainingColumn())
    with Bar(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def _lines() -> Progress:
    last = [monotonic()]

    def tell(what: str, share: float) -> None:
        if (now := monotonic()) - last[0] >= SECONDS_BETWEEN_LINES:
            last[0] = now
            sys.stderr.write(f"{what}: {100 * share:.0f} %\n")

    return tell
