"""Text forms of welfare functions: `gini:2`, `maximin`, `alpha:1`, and registered ones."""

import re
from collections.abc import Callable
from typing import NamedTuple

from evenhand.checks import check_positive_int
from evenhand.errors import InvalidInputError, UnknownNameError, nearest
from evenhand.model.welfare.base import Welfare
from evenhand.model.welfare.power_mean import AlphaFair
from evenhand.model.welfare.rank_weighted import Gini, Leximin, Maximin, RankWeighted, Utilitarian

DEFAULT = "gini:half=0.75"
"""Default welfare: its emphasis on the worse-off is the same for any number of arms."""


class _Kind(NamedTuple):
    """Text form of one kind of welfare."""

    build: Callable[[list[float], int], Welfare]
    """Function of the numbers behind the colon and the number of arms."""

    example: str
    """Example of the text."""


def _build_gini(numbers: list[float], num_arms: int) -> Welfare:
    if not numbers:
        raise InvalidInputError("needs the ratio of the weights, or the weights themselves")
    # A single number can only be a ratio: with one arm, whose only weight is 1, any ratio means the same.
    welfare = Gini.geometric(num_arms, numbers[0]) if len(numbers) == 1 else Gini(numbers)
    welfare.check_num_arms(num_arms)
    return welfare


def _build_half(text: str) -> Welfare:
    word, _, number = text.partition("=")
    if word.strip() != "half":
        raise InvalidInputError(
            f"'{word.strip()}=' is not known, only half=: the share of the weight that the worse half has"
        )
    numbers = _read_text(number)
    if len(numbers) != 1:
        raise InvalidInputError(f"half= takes one number, with a point and no comma, got {len(numbers)}")
    return Gini.bottom_half(*numbers)


def _build_maximin(numbers: list[float], num_arms: int) -> Welfare:
    if len(numbers) > 1:
        raise InvalidInputError(f"takes at most one number, got {len(numbers)}")
    return Maximin(*numbers)


def _build_alpha(numbers: list[float], num_arms: int) -> Welfare:
    if len(numbers) != 1:
        raise InvalidInputError(f"needs exactly one number, got {len(numbers)}")
    return AlphaFair(numbers[0])


def _without_numbers(welfare: Welfare) -> Callable[[list[float], int], Welfare]:
    def build(numbers: list[float], num_arms: int) -> Welfare:
        if numbers:
            raise InvalidInputError("takes no number")
        return welfare

    return build


_KINDS = {
    "gini": _Kind(_build_gini, "gini:2, gini:half=0.75 or gini:0.5,0.3,0.2"),
    "utilitarian": _Kind(_without_numbers(Utilitarian()), "utilitarian"),
    "maximin": _Kind(_build_maximin, "maximin or maximin:0.01"),
    "leximin": _Kind(_without_numbers(Leximin()), "leximin"),
    "alpha": _Kind(_build_alpha, "alpha:2"),
    "nash": _Kind(_without_numbers(AlphaFair(1.0)), "nash"),
}


_registered: dict[str, _Kind] = {}
"""User-defined kinds, in this process."""

_WORD = re.compile(r"[a-z][a-z0-9-]*")


def register_welfare(name: str, build: Callable[[list[float], int], Welfare], example: str = "") -> None:
    """Register the text form of a user-defined welfare, with numbers behind a colon, in this process.

    A registered name may be registered again; those of the library may not.

    Args:
        name: text before the colon: lower-case letters, digits and hyphens.
        build: function of the numbers behind the colon and the number of arms (or groups); it raises
            InvalidInputError with the reason if the numbers are invalid. The `name` of its result is the text.
        example: example of the text, for messages.

    Example:
        >>> import evenhand as eh
        >>> from evenhand.model.welfare import RankWeighted
        >>> class Tail(RankWeighted):
        ...     "The mean of the worst-off share of the arms."
        ...     def __init__(self, share):
        ...         self.share, self.name = share, f"tail:{share:g}"
        ...     name = ""
        ...     def rank_mass(self, first, last, num_arms):
        ...         part = self.share * num_arms
        ...         return (np.minimum(last, part) - np.minimum(first, part)) / part
        >>> eh.register_welfare("tail", lambda numbers, num_arms: Tail(*numbers), example="tail:0.5")
        >>> eh.parse_welfare("tail:0.5", num_arms=4)([8, 10, 10, 12])
        9.0
    """
    if not isinstance(name, str) or not _WORD.fullmatch(name):
        raise InvalidInputError(f"name: expected small letters, digits and hyphens, such as 'tail', got {name!r}")
    if name in _KINDS:
        raise InvalidInputError(f"name: '{name}' is a welfare of the library; choose another name")
    if not callable(build):
        raise InvalidInputError(f"build: expected a function of the numbers and the number of arms, got {build!r}")
    _registered[name] = _Kind(_checked(name, build), example or name)


def _checked(name: str, build: Callable[[list[float], int], Welfare]) -> Callable[[list[float], int], Welfare]:
    """Return a function that checks that the result is a welfare."""

    def checked(numbers: list[float], num_arms: int) -> Welfare:
        try:
            made = build(numbers, num_arms)
        except TypeError as error:  # such as a class that takes one number, and got two
            raise InvalidInputError(f"cannot be made of the numbers {numbers}: {error}") from error
        if isinstance(made, type) or not isinstance(made, Welfare):
            raise InvalidInputError(f"what was registered as '{name}' made {made!r}, which is not a welfare")
        if isinstance(made, RankWeighted):
            made.check_num_arms(num_arms)
        return made

    return checked


def parse_welfare(text: str, num_arms: int) -> Welfare:
    """Read a welfare from its text form.

    Args:
        text: `gini:2` (a single number is a ratio), `gini:half=0.75` (the share of the worse-off half),
            `gini:0.5,0.3,0.2` (several are weights), `utilitarian`, `maximin`, `maximin:0.01`, `leximin`, `alpha:2`, or
            `nash`, which is `alpha:1`; or one that was registered (`register_welfare`).
        num_arms: number of arms.

    Example:
        >>> import evenhand as eh
        >>> round(eh.parse_welfare("gini:2", 3)([1.0, 2.0, 4.0]), 4)
        1.7143
        >>> eh.parse_welfare("maximin", 3)([1.0, 2.0, 4.0])
        1.0
    """
    num_arms = check_positive_int(num_arms, "num_arms")
    kind, colon, rest = text.strip().lower().partition(":")
    kinds = _KINDS | _registered
    if kind not in kinds:
        hint = "" if nearest(kind, kinds) else " Register your own with register_welfare."
        raise UnknownNameError("welfare", kind, kinds, hint)
    try:
        if kind == "gini" and "=" in rest:
            return _build_half(rest)
        return kinds[kind].build(_read_text(rest) if colon else [], num_arms)
    except InvalidInputError as error:
        example = kinds[kind].example
        raise InvalidInputError(f"welfare '{text}': {error}\nRight is, for example, {example}") from None


def _read_text(text: str) -> list[float]:
    numbers = []
    for part in text.split(","):
        try:
            numbers.append(float(part))
        except ValueError:
            raise InvalidInputError(f"'{part.strip()}' is not a number") from None
    return numbers


WELFARE_MEMBERS = {
    "name": "name",
    "__call__": "__call__(values, counts=None)",
    "supergradient": "supergradient(values, counts=None)",
    "check_domain": "check_domain(values)",
}
"""Members of `Welfare`, with their signatures."""


def as_welfare(welfare: str | Welfare, num_arms: int) -> Welfare:
    """Return a welfare given as text or as an object, checked for the number of arms.

    Args:
        welfare: a text form or a welfare.
        num_arms: number of arms.
    """
    if isinstance(welfare, str):
        return parse_welfare(welfare, num_arms)
    if isinstance(welfare, type) or not isinstance(welfare, Welfare):
        lacking = [shown for member, shown in WELFARE_MEMBERS.items() if not hasattr(welfare, member)]
        if len(lacking) < len(WELFARE_MEMBERS) and not hasattr(welfare, "__name__"):  # a function or a class is none
            kind = type(welfare).__name__
            raise InvalidInputError(f"welfare: {kind} does not implement Welfare: missing {' and '.join(lacking)}")
        raise InvalidInputError(
            f"welfare: expected text such as 'gini:2', or Utilitarian() or another, got {welfare!r}"
        )
    if isinstance(welfare, RankWeighted):
        welfare.check_num_arms(num_arms)
    return welfare


def is_named(welfare: Welfare) -> bool:
    """Return whether a welfare is of a class of the library, which needs no check."""
    return type(welfare).__module__.startswith("evenhand.")
