"""Numbers as the sentences of a diagnosis have them."""

import math

import numpy as np

from evenhand.typing import Floats

MINUS = "−"


def signed(value: float, decimals: int = 2) -> str:
    """`+0.42`, `−0.07`; what is rounded to nothing has no sign."""
    text = f"{abs(value):.{decimals}f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else MINUS}{text}"


def decimals_for(error: float) -> int:
    """Decimals that show an error, or the width of an interval, by its first two digits; from 2 to 4."""
    return 2 if not 0 < error < 1 else min(4, max(2, 1 - math.floor(math.log10(error))))


def interval(mean: float, lower: float, upper: float) -> str:
    """`+0.42 [0.31, 0.52]`."""
    decimals = decimals_for((upper - lower) / 2)
    low, high = (f"{value:.{decimals}f}".replace("-", MINUS) for value in (lower, upper))
    return f"{signed(mean, decimals)} [{low}, {high}]"


def probability(value: float, decimals: int = 2) -> str:
    """`0.94`; near 0 and near 1 with as many more decimals as it takes to see that it is neither, up to four."""
    for more in range(decimals, 5):
        text = f"{value:.{more}f}"
        if 0 < float(text) < 1:
            return text
    return "0" if value < 0.5 else "1"


def probability_texts(mean: float, lower: float, upper: float) -> tuple[str, str, str]:
    """`0.900`, `0.85`, `0.94`; with as many more decimals as it takes for the interval to hold the estimate."""
    for decimals in range(2, 6):
        middle = probability(mean, max(decimals, 3))
        low, high = (probability(end, decimals) for end in (lower, upper))
        if float(low) <= float(middle) <= float(high):
            break
    return middle, low, high


def with_error(mean: float, error: float) -> str:
    """`+0.030 nats per step ± 0.010`."""
    decimals = decimals_for(error) if error > 0 else 4
    known = f"{error:.{decimals}f}" if error >= 0.00005 else "less than 0.0001"
    return f"{signed(mean, decimals)} nats per step ± {known}"


def chance(p_value: float) -> str:
    """`p = 0.03`, `p < 0.001`."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.{3 if p_value < 0.01 else 2}f}"


def percent(share: float) -> str:
    """`61 %`; small shares with a decimal."""
    return f"{100 * share:.{1 if share < 0.0995 else 0}f} %"


def first_largest(values: Floats) -> int:
    """Return the index of the largest value; of those that differ by rounding alone, the first."""
    most = float(np.max(values))
    return int(np.flatnonzero(values >= most - 1e-9 * max(1.0, abs(most)))[0])
