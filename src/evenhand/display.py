"""Display of results and progress.

`report` renders results and `cli` has the progress bar of a terminal; both are higher layers. Results therefore find
them by name when something is displayed. This is the only place in the library where a lower layer calls higher ones.

    Shown               gives a class its HTML in notebooks, and lists its fields in `help`
    ShownPolicy         the same for a policy, with a line of text
    from_report         a function of `report`, loaded on demand
    as_frame            named columns as a frame of pandas or polars
    progress_callback   with `progress=True` that of a bar, in a terminal and in a notebook
    with_progress_bar           lets a function take `progress=True`
"""

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from html import escape
from importlib import import_module
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from evenhand.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:  # it imports numpy
    from evenhand.typing import Progress

FrameLibrary = Literal["pandas", "polars"]
"""Libraries of data frames."""


Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


class Shown:
    """Has an HTML form for notebooks; `help` lists the fields of a dataclass."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if isinstance(text := cls.__dict__.get("__doc__"), str):
            type.__setattr__(cls, "__doc__", FieldDocs(text))

    def _repr_html_(self) -> str:
        html: str = from_report("html", "cell")(self)
        return html


class FieldDocs:
    """Docstring with a line per field of its dataclass: the sentence below the field in the source.

    Python does not store these sentences, and `help` would not show them. They are read on first access only.
    """

    def __init__(self, text: str) -> None:
        """Store the docstring of the class.

        Args:
            text: its docstring.
        """
        self.text = text
        self.whole: str | None = None

    def __get__(self, instance: object, owner: type) -> str:
        if "__match_args__" not in owner.__dict__:  # no dataclass, or not one yet: it looks for a docstring on the way
            return self.text
        if self.whole is None:
            source = ""
            with suppress(OSError, TypeError):  # no source
                source = inspect.getsource(owner)
            fields = re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
            lines = "".join(f"\n    {name}: {' '.join(text.split())}" for name, text in fields)
            self.whole = f"{inspect.cleandoc(self.text)}\n\nAttributes:{lines}" if fields else self.text
        return self.whole


def argument_helps(documented: Callable[..., Any]) -> dict[str, str]:
    """Return the Args of a Google-style docstring by name, each as one line."""
    section = re.search(r"^Args:\n((?:(?: .*)?\n?)*)", inspect.getdoc(documented) or "", re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", "" if section is None else section[1], re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


class ShownPolicy(Shown):
    """A policy in one line, and as HTML."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._in_short()})"

    def _in_short(self) -> str:
        """Number of arms that it was made for, if known."""
        problem = getattr(self, "problem", None) or getattr(getattr(self, "reduction", None), "problem", None)
        return "" if problem is None else f"for {counted(problem.num_arms, 'arm')}"


def from_report(module: str, name: str) -> Callable[..., Any]:
    """Return a function of `report`, loaded on demand.

    Args:
        module: module of `report`.
        name: name of the function.
    """
    function: Callable[..., Any] = getattr(_higher(f"report.{module}"), name)
    return function


def counted(count: int, singular: str, plural: str = "") -> str:
    """`1 arm`, `5 arms`; thousands are set apart."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def size_in_words(number: float) -> str:
    """A number of states: `27`, or from a million on its order of magnitude, `about 10^19`."""
    if number < 1e6:
        return f"{number:.0f}"
    # Sizes are cut near the end of the doubles.
    return f"about 10^{math.log10(number):.0f}" if number < 1e300 else "over 10^300"


# Frames


def as_frame(columns: Mapping[str, Sequence[Any]], library: FrameLibrary | None = None) -> Any:
    """Return named columns as a frame.

    Args:
        columns: entries of each column; all of one length.
        library: `pandas` or `polars`; by default pandas if it is installed, else polars.

    Raises:
        MissingExtraError: it is not installed; states the pip command.
    """
    if library not in (None, "pandas", "polars"):
        raise InvalidInputError(f"library: expected 'pandas' or 'polars', got {library!r}")
    wanted: tuple[FrameLibrary, ...] = ("pandas", "polars") if library is None else (library,)
    for name in wanted:
        if find_spec(name) is not None:
            return import_module(name).DataFrame(dict(columns))
    raise MissingExtraError("to_frame", **({"package": "pandas"} if library == "pandas" else {"extra": "data"}))


# Progress


def with_progress_bar(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Let a function be called with `progress=True`: it gets the callback of a bar that is removed at the end."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Answer:
        bound = signature.bind_partial(*arguments, **keywords)
        with progress_callback(bound.arguments.get("progress")) as report:
            bound.arguments["progress"] = report
            return function(*bound.args, **bound.kwargs)

    return called


def progress_or_none(progress: "Progress | bool | None") -> "Progress | None":
    """Return the callback alone, inside a function under `with_progress_bar`, which replaces True and False."""
    return None if isinstance(progress, bool) else progress


def task_progress(progress: "Progress | None", name: str, turn: int, total: int) -> "Progress | None":
    """Return the callback of one of several tasks, reported under its name.

    Args:
        progress: callback for all of them, or None.
        name: name of the task; empty for parts of one task.
        turn: number of tasks before it.
        total: number of tasks.
    """
    if progress is None:
        return None
    return lambda doing, share: progress(f"{name}: {doing}" if name else doing, (turn + share) / total)


@contextmanager
def progress_callback(progress: "Progress | bool | None") -> "Iterator[Progress | None]":
    """Yield a progress callback: the one given, None, or that of a progress bar for True.

    Args:
        progress: a callback; True for a bar in a notebook or a terminal and plain lines elsewhere; None or False.
    """
    if progress is None or progress is False:
        yield None
    elif progress is not True:
        if not callable(progress):
            expected = "True, or a function of the current work and its completed share"
            raise InvalidInputError(f"progress: expected {expected}, got {progress!r}")
        yield progress
    elif "IPython" in sys.modules and getattr(sys.modules["IPython"].get_ipython(), "kernel", None) is not None:
        yield from _cell_bar()
    else:
        with _higher("cli.progress").progress(False) as report:
            yield report


def _cell_bar() -> "Iterator[Progress]":
    from IPython.display import HTML, display  # a notebook brings it

    def bar(what: str, share: float) -> Any:
        html = f'<progress value="{share:.4f}" max="1" style="width: 16em; vertical-align: middle"></progress>'
        return HTML(f"<div>{html} {100 * share:.0f}&nbsp;% {escape(what)}</div>")

    current, last = ("loading", 0.0), 0.0
    handle = display(bar(*current), display_id=True)

    def report(what: str, share: float) -> None:
        nonlocal current, last
        current = what, min(max(share, 0.0), 1.0)
        if (now := monotonic()) - last >= 0.1:  # seconds
            last = now
            handle.update(bar(*current))

    def hear(begins: bool) -> None:
        handle.update(bar("compiling, once on this machine", current[1]) if begins else bar(*current))

    try:
        with _higher("kernels.compilation").hearing(hear):
            yield report
    finally:
        handle.update(HTML(""))


def _higher(module: str) -> Any:
    """Import a module of a higher layer by its name."""
    return import_module(f"evenhand.{module}")
