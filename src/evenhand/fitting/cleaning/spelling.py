"""Spelling variants of names, and the names they stand for.

Two names are one if they differ only in case, spaces, accents or punctuation. A rare name is a misspelling of a common
one if it begins with the same letter, has the same digits, and one letter (two in names of eight or more) was left out,
added, replaced or swapped with the next (optimal string alignment).
"""

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache

from evenhand.fitting.table_reader import MISSING

NOT_OBSERVED = {
    *MISSING, "?", "??", "-", "--", ".", "n.a.", "#n/a", "#ref!", "#value!", "unknown", "missing", "not seen",
    "not observed",
}  # fmt: skip
"""Entries that usually mean that a state, type or group was not observed, in lower case."""


def spelling(counts: Mapping[str, int], most: float = 0.02, ratio: float = 0.1) -> dict[str, str]:
    """Return the proper name of each variant.

    Args:
        counts: number of rows by name.
        most: largest share of all rows of a misspelling.
        ratio: largest ratio to the rows of the name it stands for.
    """
    if 2 * sum(rows for name, rows in counts.items() if folded(name).isdigit()) > sum(counts.values()):
        return {}  # numbers
    by_key: dict[str, list[str]] = {}
    for name in counts:
        by_key.setdefault(folded(name), []).append(name)
    # Of equally frequent spellings the first in the records.
    proper = {key: max(names, key=lambda name: counts[name]) for key, names in by_key.items()}
    totals = {key: sum(counts[name] for name in names) for key, names in by_key.items()}
    found = {name: proper[key] for key, names in by_key.items() for name in names if name != proper[key]}
    everything = sum(totals.values())
    for key, total in sorted(totals.items(), key=lambda item: item[1]):
        common = [other for other in totals if total <= ratio * totals[other] and is_misspelling(key, other)]
        if common and total <= max(most * everything, 3):
            target = max(common, key=lambda other: totals[other])
            found |= dict.fromkeys(by_key[key], proper[target])
    return found


def not_observed(names: Iterable[str]) -> dict[str, str]:
    """Return an empty text for each name that means that nothing was observed."""
    return {name: "" for name in names if name.lower() in NOT_OBSERVED}


def case_variants(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the most frequent spelling of each name that differs from it only in case or spaces.

    Args:
        counts: number of rows by name.
    """
    by_key: dict[str, list[str]] = {}
    for name in counts:
        by_key.setdefault(" ".join(name.split()).casefold(), []).append(name)
    proper = {name: max(names, key=lambda each: counts[each]) for names in by_key.values() for name in names}
    return {name: new for name, new in proper.items() if name != new}


def odd_names(counts: Mapping[str, int], ends: Container[str], fewest: int = 3) -> dict[str, str]:
    """Return an empty text for each name of very few rows among names of many that does not begin with a word.

    Args:
        counts: number of rows by name.
        ends: names that end the records of an arm, which are rare for a reason.
        fewest: rows from which on a name is not odd.
    """
    common = [name for name, count in counts.items() if count >= fewest]
    if len(common) < 2 or sum(counts.values()) < 50 * len(counts):
        return {}
    is_word = re.compile(r"[^\W\d_]{3}")
    return {name: "" for name in counts if name not in common and name not in ends and not is_word.match(name)}


def folded(name: str) -> str:
    """Return a name in lower case, without accents, punctuation and repeated spaces."""
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss")).encode("ascii", "ignore").decode() or name
    return re.sub(r"[\W_]+", " ", plain).strip().casefold() or name


def is_misspelling(name: str, other: str, shortest: int = 4) -> bool:
    """Test if one name is likely a misspelling of the other.

    Args:
        name: the rare name, folded.
        other: the common name, folded.
        shortest: letters of the shortest name that has misspellings.
    """
    if len(other) < shortest or len(name) < shortest - 1 or name[0] != other[0]:
        return False
    if re.findall(r"\d+", name) != re.findall(r"\d+", other):
        return False
    allowed = 2 if len(other) >= 8 else 1
    return abs(len(name) - len(other)) <= allowed and edit_distance(name, other) <= allowed


@lru_cache(maxsize=100_000)
def edit_distance(one: str, other: str) -> int:
    """Number of letters inserted, deleted, replaced, or swapped with the next.

    Args:
        one: a text.
        other: a text.
    """
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, opposite in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != opposite))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == opposite:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]
