"""Results that show themselves: in a notebook, as a frame, as a figure, as a page; and work that shows how far it is.

What is said and drawn of a result is in `report`, which stands above all that it tells of, and the bar of a terminal is
the command line's. So results do not import them: they are found by name when something is to be shown, as the package
finds its public names. This is the only place in the library where a lower layer asks higher ones, and it asks for
nothing but pictures and words.

    Shown       gives a class its HTML in notebooks, and its fields a place in `help`; ShownPolicy also a line of text
    told_by     the function of `report` that tells
    as_frame    named columns as a frame of pandas or polars
    telling     something to tell progress to; with `progress=True` a bar, in a terminal and in a notebook
    shows_bar   lets a function take `progress=True`
"""

import ast
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from html import escape
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from time import monotonic
from typing import Any, Literal, ParamSpec, TypeVar

from evenhand.errors import InvalidInputError, MissingExtraError
from evenhand.typing import Progress

FrameLibrary = Literal["pandas", "polars"]
"""Libraries of data frames."""

SECONDS_BETWEEN_UPDATES = 0.1
"""Seconds between updates of a progress bar in a notebook."""

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class Shown:
    """Has an HTML form for notebooks, and where it is a dataclass, `help` tells of its fields."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if isinstance(text := cls.__dict__.get("__doc__"), str):
            type.__setattr__(cls, "__doc__", FieldDocs(text))

    def _repr_html_(self) -> str:
        html: str = told_by("html", "cell")(self)
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
            fields = "".join(f"\n    {name}: {text}" for name, text in _field_docs(owner))
            self.whole = f"{inspect.cleandoc(self.text)}\n\nAttributes:{fields}" if fields else self.text
        return self.whole


def _field_docs(owner: type) -> list[tuple[str, str]]:
    """Return the fields of a class with the sentences below them in its source; none without a source."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    assert isinstance(tree, ast.ClassDef)
    return [
        (field.target.id, " ".join(below.value.value.split()))
        for field, below in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    ]


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
    function: Callable[..., Any] = getattr(_higher(f"report.{room}"), name)
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
    """Named columns as a frame.

    Args:
        columns: what is in each; all of one length.
        library: `pandas` or `polars`; by default pandas if it is installed, else polars.

    Raises:
        MissingExtraError: it is not installed; says what to type.
    """
    if library not in (None, "pandas", "polars"):
        raise InvalidInputError(f"library: expected 'pandas' or 'polars', got {library!r}")
    wanted: tuple[FrameLibrary, ...] = ("pandas", "polars") if library is None else (library,)
    for name in wanted:
        if find_spec(name) is not None:
            return import_module(name).DataFrame(dict(columns))
    if library == "pandas":
        raise MissingExtraError("to_frame", package="pandas")
    raise MissingExtraError("to_frame", "data")


# Progress


def shows_bar(function: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """Let a function be called with `progress=True`: it gets the callback of a bar that goes when it is done."""
    place = list(inspect.signature(function).parameters).index("progress")

    @wraps(function)
    def called(*arguments: Asked.args, **keywords: Asked.kwargs) -> Answer:
        given = keywords.get("progress", arguments[place] if len(arguments) > place else None)
        check_progress(given)
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


def check_progress(progress: object) -> None:
    """Refuse what is neither True, False, None nor a function."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InvalidInputError(
            f"progress: expected True, or a function of what is done and the share, got {progress!r}"
        )


def heard(progress: Progress | bool | None) -> Progress | None:
    """The callback alone, inside a function that `shows_bar`: True and False have been replaced before."""
    return None if isinstance(progress, bool) else progress


def in_turn(progress: Progress | None, name: str, turn: int, total: int) -> Progress | None:
    """Progress of one of several tasks that alternate, reported under its name.

    Args:
        progress: callback for all of them, or None.
        name: what this one is called.
        turn: how many were before it.
        total: how many there are.
    """
    if progress is None:
        return None
    return lambda doing, share: progress(f"{name}: {doing}", (turn + share) / total)


@contextmanager
def telling(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Something to tell progress to: what was given, nothing, or for True a bar.

    Args:
        progress: a callback; True for a bar in a notebook or a terminal and plain lines elsewhere; None or False.
    """
    check_progress(progress)
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    elif _in_notebook():
        yield from _cell_bar()
    else:
        with _higher("cli.progress").progress(False) as tell:
            yield tell


def _in_notebook() -> bool:
    """Return whether a notebook kernel runs this."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None) is not None


class _Bar:
    """Progress as HTML."""

    def __init__(self, what: str = "loading", share: float = 0.0, over: bool = False) -> None:
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

    bar, last = _Bar(), [0.0]
    handle = display(bar, display_id=True)

    def tell(what: str, share: float) -> None:
        nonlocal bar
        bar = _Bar(what, share)
        if (now := monotonic()) - last[0] >= SECONDS_BETWEEN_UPDATES:
            last[0] = now
            handle.update(bar)

    def hear(begins: bool) -> None:
        handle.update(_Bar("compiling, once on this machine", bar.share) if begins else bar)

    try:
        with _higher("kernels.compilation").hearing(hear):
            yield tell
    finally:
        handle.update(_Bar(over=True))


def _higher(module: str) -> Any:
    """A module that stands above this one, found by its name."""
    return import_module(f"evenhand.{module}")
