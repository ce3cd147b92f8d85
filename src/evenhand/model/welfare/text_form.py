"""Text forms of welfare functions: `gini:2`, `maximin`, `alpha:1`, and registered ones."""

import re
from collections.abc import Callable

from evenhand.checks import check_positive_int
from evenhand.display import counted
from evenhand.errors import InvalidInputError, UnknownNameError, nearest
from evenhand.model.welfare.base import Welfare
from evenhand.model.welfare.power_mean import AlphaFair
from evenhand.model.welfare.rank_weighted import Gini, Leximin, Maximin, RankWeighted, Utilitarian

DEFAULT = "gini:half=0.75"
"""Default welfare: its emphasis on the worse-off is the same for any number of arms."""


Build = Callable[[list[float], int], Welfare]
"""Function of the numbers behind the colon and the number of arms."""

_KINDS: dict[str, tuple[Build, str]] = {
    # A single number is a ratio: with one arm, whose only weight is 1, any ratio means the same.
    "gini": (
        lambda numbers, num_arms: Gini.geometric(num_arms, *numbers) if len(numbers) == 1 else Gini(numbers),
        "gini:2, gini:half=0.75 or gini:0.5,0.3,0.2",
    ),
    "gini:half": (lambda numbers, num_arms: Gini.bottom_half(*numbers), "gini:half=0.75"),
    "utilitarian": (lambda numbers, num_arms: Utilitarian(*numbers), "utilitarian"),
    "maximin": (lambda numbers, num_arms: Maximin(*numbers), "maximin or maximin:0.01"),
    "leximin": (lambda numbers, num_arms: Leximin(*numbers), "leximin"),
    "alpha": (lambda numbers, num_arms: AlphaFair(*numbers), "alpha:2"),
    "nash": (lambda numbers, num_arms: AlphaFair(1.0, *numbers), "nash"),
}
"""The kinds of welfare, each with an example of its text."""

_registered: dict[str, tuple[Build, str]] = {}
"""User-defined kinds, in this process."""

_WORD = re.compile(r"[a-z][a-z0-9-]*")


def register_welfare(name: str, build: Build, example: str = "") -> None:
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
    _registered[name] = build, example or name


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
    start, colon, rest = text.strip().lower().partition(":")
    kinds = _KINDS | _registered
    if start not in kinds:
        hint = "" if nearest(start, kinds) else " Register your own with register_welfare."
        raise UnknownNameError("welfare", start, [name for name in kinds if ":" not in name], hint)
    if start == "gini" and "=" in rest:
        word, _, rest = rest.partition("=")
        start = f"gini:{word.strip()}"
    try:
        return _build(start, rest.split(",") if colon else [], num_arms)
    except InvalidInputError as error:
        example = kinds.get(start, kinds["gini"])[1]
        raise InvalidInputError(f"welfare '{text}': {error}\nUse, for example, {example}") from error.__cause__


def _build(name: str, texts: list[str], num_arms: int) -> Welfare:
    """Return a welfare of a kind, checked for the number of arms; raises InvalidInputError with the reason."""
    kinds = _KINDS | _registered
    if name not in kinds:
        raise InvalidInputError(f"'{name.partition(':')[2]}=' is not known, only half=: the weight of the worse half")
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        got = ",".join(texts).strip()
        raise InvalidInputError(f"expected numbers with a decimal point, separated by commas, got '{got}'") from None
    try:
        made = kinds[name][0](numbers, num_arms)
    except TypeError as error:  # such as a class that takes one number, and got two
        raise InvalidInputError(f"cannot be made of {counted(len(numbers), 'number')}") from error
    if isinstance(made, type) or not isinstance(made, Welfare):
        raise InvalidInputError(f"what was registered as '{name}' made {made!r}, which is not a welfare")
    if isinstance(made, RankWeighted):
        made.check_num_arms(num_arms)
    return made


def as_welfare(welfare: str | Welfare, num_arms: int) -> Welfare:
    """Return a welfare given as text or as an object, checked for the number of arms.

    Args:
        welfare: a text form or a welfare.
        num_arms: number of arms.
    """
    if isinstance(welfare, str):
        return parse_welfare(welfare, num_arms)
    if isinstance(welfare, type) or not isinstance(welfare, Welfare):
        members = ("name", "__call__", "supergradient", "check_domain")
        lacking = " and ".join(member for member in members if not hasattr(welfare, member))
        raise InvalidInputError(
            f"welfare: expected text such as 'gini:2', or an object such as Utilitarian(), got {welfare!r}"
            + (f", which does not implement {lacking}" if lacking else "")
        )
    if isinstance(welfare, RankWeighted):
        welfare.check_num_arms(num_arms)
    return welfare


def is_named(welfare: Welfare) -> bool:
    """Return whether a welfare is of a class of the library, which needs no check."""
    return type(welfare).__module__.startswith("evenhand.")
