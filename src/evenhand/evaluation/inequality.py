"""Inequality of values, and the price of fairness.

For N values v_(1) <= ... <= v_(N) with mean m:

    Gini coefficient    G = sum_i sum_j |v_i - v_j| / (2 N^2 |m|) = sum_n (2n - N - 1) v_(n) / (N^2 |m|)
    Lorenz curve        L(n/N) = (v_(1) + ... + v_(n)) / (v_(1) + ... + v_(N)), with L(0) = 0
    price of fairness   (m_reference - m) / |m_reference|

For non-negative values, G is twice the area between the Lorenz curve and the diagonal.
"""

import math

import numpy as np

from evenhand.errors import InvalidInputError
from evenhand.model.welfare import Population
from evenhand.typing import ArrayLike, Floats


def gini_coefficient(values: ArrayLike, counts: ArrayLike | None = None) -> Floats | float:
    """The mean absolute difference of two arms over twice the mean's magnitude; 0 when all are equal.

    For non-negative values it is from 0 to 1 - 1/N (one arm has everything). Values of both signs can give
    more than 1, and values that are all negative give what their magnitudes would. Where the mean is zero it
    is 0 if all values are, and nan, that is undefined, if they differ.

    Args:
        values: (..., arm) values; with counts, (..., type).
        counts: (type,) number of arms that share each value.

    Returns:
        (...) coefficients, a float when `values` has one axis.

    Example:
        >>> from evenhand import evaluation
        >>> evaluation.gini_coefficient([2.0, 2.0, 2.0])
        0.0
        >>> round(evaluation.gini_coefficient([0.0, 0.0, 3.0]), 4)
        0.6667
    """
    arms = Population.read(values, counts)
    order, ascending, first, last = arms.ranks()
    # The weights sum to zero, so all may be measured from the worst arm: equal values give exactly 0.
    above = ascending - ascending[..., :1]
    rank_weights = (first + last - arms.num_arms) / arms.num_arms * arms.shares[order]
    half_difference = (above * rank_weights).sum(axis=-1)
    mean = np.abs((arms.values * arms.shares).sum(axis=-1))
    undefined = np.where(half_difference == 0, 0.0, np.nan)
    coefficient = np.divide(half_difference, mean, out=undefined, where=mean > 0)
    return float(coefficient) if coefficient.ndim == 0 else coefficient


def lorenz_curve(values: ArrayLike, counts: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """The share of the total value that the worst-off arms hold, against their share of the arms.

    With negative values the curve dips below zero; with a negative total the worst arms hold most of it, and
    the curve is above the diagonal. Where the total is zero it is the diagonal if all values are, and nan
    between the ends if not.

    Args:
        values: (arm,) values; with counts, (type,).
        counts: (type,) number of arms that share each value.

    Returns:
        (arm + 1,) shares of arms and (arm + 1,) shares of value, both from 0 at the first point to 1 at the
        last; with counts there is one point for each type that has arms.

    Example:
        >>> from evenhand import evaluation
        >>> arms, value = evaluation.lorenz_curve([3.0, 1.0])
        >>> arms.tolist(), value.tolist()
        ([0.0, 0.5, 1.0], [0.0, 0.25, 1.0])
    """
    arms = Population.read(values, counts)
    if arms.values.ndim != 1:
        raise InvalidInputError(f"values: expected shape (arm,), got {arms.values.shape}")
    order, ascending, _, last = arms.ranks()
    shares_of_arms = np.append(0.0, last / arms.num_arms)
    held = np.append(0.0, np.cumsum(ascending * arms.shares[order]))
    if held[-1] != 0:
        return shares_of_arms, held / held[-1]
    shares_of_value = shares_of_arms.copy()
    if ascending[0] != ascending[-1]:
        shares_of_value[1:-1] = np.nan
    return shares_of_arms, shares_of_value


def relative_loss(mean_value: float, reference_mean: float) -> float:
    """Return the price of fairness, (reference - mean) / |reference|; negative for a gain.

    Args:
        mean_value: the mean value of the arms under the fair policy.
        reference_mean: the mean under the reference, most often the utilitarian optimum. If it is zero, the
            price is 0 when the means are equal, and else nan.

    Example:
        >>> relative_loss(9.5, 10.0)
        0.05
    """
    for name, mean in (("mean_value", mean_value), ("reference_mean", reference_mean)):
        if not math.isfinite(mean):
            raise InvalidInputError(f"{name}: expected a finite number, got {mean}")
    if reference_mean == 0:
        return 0.0 if mean_value == 0 else math.nan
    return (reference_mean - mean_value) / abs(reference_mean)
