"""Labels of types, states, actions and resources; their numbers if they have none."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from evenhand.model.coupled import CoupledMDP
from evenhand.model.naming import base_names, type_names

ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
    "nineteenth", "twentieth",
)  # fmt: skip

MOST_NAMED = 6
"""Types that are named one by one where they are together."""


class Labels:
    """The words of one problem."""

    def __init__(self, problem: CoupledMDP) -> None:
        self.problem = problem
        types = problem.types
        self._labels = types.labels or (("", (), ()),) * len(types)
        self._bases, self._types = base_names(problem), type_names(problem)
        self._times = Counter(self._bases)

    def type(self, kind: int) -> str:
        """`Ford`, or `type 2`."""
        return self._types[kind]

    def base(self, kind: int) -> str:
        """`Ford`, also where several types are called so."""
        return self._bases[kind] or self.type(kind)

    def types(self, kinds: Sequence[int]) -> str:
        """`Ford and Opel`; `Ford from new, fair` where only some of a name are meant, by where they start."""
        by_base: dict[str, list[int]] = {}
        for kind in kinds:
            by_base.setdefault(self.base(kind), []).append(kind)
        names = []
        for base, own in by_base.items():
            whole = len(own) == self._times[base] or len(own) == 1
            start = f"{base} from "
            if len(own) > 1 and whole:
                names.append(base)
            elif whole or not all(self.type(kind).startswith(start) for kind in own):
                names += [self.type(kind) for kind in own]
            else:
                names.append(start + ", ".join(self.type(kind).removeprefix(start) for kind in own))
        if len(names) > MOST_NAMED:
            return f"{len(kinds)} types ({names[0]}, ...)"
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def state(self, kind: int, state: int) -> str:
        """`poor`, or `2`."""
        states = self._labels[kind][1]
        return states[state] if states else str(state)

    def action(self, kind: int, action: int) -> str:
        """`overhaul`, or `2`."""
        actions = self._labels[kind][2]
        return actions[action] if actions else str(action)

    def doing(self, kind: int, action: int) -> str:
        """`overhaul`, or `action 2`, as it stands in a sentence."""
        return self.action(kind, action) if self._labels[kind][2] else f"action {action}"

    def being(self, kind: int, state: int) -> str:
        """`in poor`, or `in state 2`."""
        return f"in {self.state(kind, state)}" if self._labels[kind][1] else f"in state {state}"

    def resources(self, which: list[int]) -> str:
        """`bays and technicians`."""
        names = [self.problem.resource_names[number] for number in which]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def one_more(name: str, amount: float) -> str:
    """`a fourth bay`: one unit more of a resource of which there is some amount."""
    single = _singular(name)
    if single is None or amount != int(amount) or not 0 <= amount < len(ORDINALS):
        return f"one unit more of {name}"
    word = ORDINALS[int(amount)]
    return f"{'an' if word[0] == 'e' else 'a'} {word} {single}"


def _singular(name: str) -> str | None:
    """The name of one of many; None where it is not the plural of an English word."""
    if not name.replace(" ", "").isalpha() or not name.endswith("s") or name.endswith(("ss", "us", "is")):
        return None
    if name.endswith("ies") and len(name) > 4:
        return name[:-3] + "y"
    return name[:-2] if name.endswith(("ches", "shes", "xes", "sses")) else name[:-1]


def amount_of(name: str, amount: float) -> str:
    """`3 bays`, `1 bay`; `2 units of resource 0` where the name is not of things that are counted."""
    single = _singular(name)
    if single is None:
        return f"{quantity(amount)} {'unit' if amount == 1 else 'units'} of {name}"
    return f"{quantity(amount)} {single if amount == 1 else name}"


def listed(texts: Iterable[str]) -> str:
    """`Ford, Opel`; parted by semicolons where a comma stands in one of them, outside of brackets."""
    items = list(texts)
    return ("; " if any("," in re.sub(r"\([^)]*\)", "", text) for text in items) else ", ").join(items)


def quantity(amount: float) -> float | int:
    """A whole number as such."""
    return int(amount) if float(amount).is_integer() else float(amount)


def as_key(name: str) -> str:
    """The name of a resource as parameters of built-in problems are written."""
    return name.lower().replace(" ", "_").replace("-", "_")
