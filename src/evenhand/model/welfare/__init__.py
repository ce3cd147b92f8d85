"""Welfare: one number, in units of value, for the values of all arms.

Every welfare W here is concave, monotone, symmetric, and leaves a constant vector unchanged: the conditions of the
paper's utilitarian reduction. There are two families, of N arms with values v_(1) <= ... <= v_(N):

    rank-weighted    W(v) = sum_n w_n v_(n),  w_1 >= ... >= w_N >= 0,  sum_n w_n = 1       (the paper's GGF_w)
        Gini                  any such w; Gini.geometric: w_n proportional to ratio^-(n-1)
        Gini.bottom_half      geometric, the ratio such that the worse-off half has a given share of the weight
        Utilitarian           w = (1, ..., 1) / N
        Maximin               w proportional to (1, eps, ..., eps), by default eps = 0
        Leximin               maximin, with ties broken by the second worst arm, then by the third, ...
    alpha-fair       W(v) = u^-1(1/N sum_n u(v_n)),  u(x) = x^(1-alpha) / (1-alpha),  u = log for alpha = 1

Many arms are described by types: `counts[type]` arms share `values[type]`. A rank-weighted welfare then needs
only the mass of the ranks a+1, ..., b. For geometric weights, with decay L = log(ratio), that is

    w_{a+1} + ... + w_b = (ratio^-a - ratio^-b) / (1 - ratio^-N) = exp(-L a) expm1(-L (b-a)) / expm1(-L N),

so a billion arms cost as much as there are types.

A fixed ratio is harsher the more arms there are: with ratio 2 the worst four of 40 have 94 % of the weight. To mean the
same at any size, the decay must go with 1/N. The worse-off half has, with L = c/N,

    (1 - e^(-c/2)) / (1 - e^-c) = 1 / (1 + e^(-c/2)) = h,    so    c = 2 log(h / (1 - h)),    ratio = (h / (1-h))^(2/N),

and the mass of the arms from the fraction x to the fraction y is (e^(-c x) - e^(-c y)) / (1 - e^-c), whatever N is: a
population in which everyone is there twice has the same welfare. With h = 3/4 the ratio is 9^(1/N), the worst tenth has
22 % of the weight, and the worst-off arm of many counts at most 9 times as much as the best-off one.

Supergradients g satisfy W(u) <= W(v) + g.(u - v). For a
rank-weighted welfare each arm gets the weight of its rank, and tied arms share theirs; for alpha-fairness
g_n = (W(v) / v_n)^alpha / N.

Any other object that satisfies `Welfare` can be optimised and evaluated too. Solvers take a shorter way if they know
its structure: `structure(welfare, num_members)` says whether it is the mean, weights by rank, a power mean, or
lexicographic. Reports use `in_short(who)` and `meaning(who)`, a clause and a sentence about an `arm` or a `group`.
"""

from evenhand.model.welfare.base import MOST_RANKS, Population, Ranks, Welfare
from evenhand.model.welfare.power_mean import AlphaFair, PowerMean, Structure, is_lexicographic, is_mean, structure
from evenhand.model.welfare.rank_weighted import (
    Gini,
    Leximin,
    Maximin,
    RankWeighted,
    Utilitarian,
    weight_of_worst,
)
from evenhand.model.welfare.sampled_check import MOST_APART, WelfareCheck, Witness, check_welfare
from evenhand.model.welfare.text_form import DEFAULT, as_welfare, is_named, parse_welfare, register_welfare
