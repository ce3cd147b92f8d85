"""The best weighted sum of a tiny problem in exact arithmetic, averages included: policy iteration on fractions.

For a welfare a min_n v_n + b sum_n v_n of two arms the optimum is the least over l in [0, 1] of the best weighted sum
by the weights b + a l and b + a (1 - l), convex and piecewise linear in l: lines are added where two of them meet until
none is new. Every double is a fraction, rows are divided by their exact sums, and nothing is rounded anywhere.
"""

from fractions import Fraction
from itertools import product

from .exact_lp import read_arms


def solve_linear(matrix, right):
    """The solution of a regular system, by Gauss and Jordan."""
    rows = [[*row, last] for row, last in zip(matrix, right, strict=True)]
    for c in range(len(rows)):
        pivot = next(i for i in range(c, len(rows)) if rows[i][c])
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [x / rows[c][c] for x in rows[c]]
        for i in range(len(rows)):
            if i != c and rows[i][c]:
                rows[i] = [x - rows[i][c] * y for x, y in zip(rows[i], rows[c], strict=True)]
    return [row[-1] for row in rows]


def closed_classes(chain):
    """The classes of a chain that are never left, by exact zeros."""
    n = len(chain)
    ways = [{i} for i in range(n)]
    for _ in range(n):
        ways = [own | {j for k in own for j in range(n) if chain[k][j]} for own in ways]
    closed = {frozenset(own) for own in ways if all(ways[j] == own for j in own)}
    return [sorted(own) for own in sorted(closed, key=min)]


class ExactProblem:
    """The product space of a problem, on fractions."""

    def __init__(self, problem):
        arms = read_arms(problem)
        for arm in arms:
            arm["moves"] = [[[p / sum(row) for p in row] for row in rows] for rows in arm["moves"]]
        self.is_average = problem.criterion.is_average
        self.discount = Fraction(1) if self.is_average else Fraction(problem.discount)
        self.pairs, self.num_arms = [], len(arms)
        for state in product(*(range(len(arm["initial"])) for arm in arms)):
            found = []
            for actions in product(*(range(len(arm["usage"][s])) for arm, s in zip(arms, state, strict=True))):
                cells = list(zip(arms, state, actions, strict=True))
                used = [sum(each) for each in zip(*(arm["usage"][s][u] for arm, s, u in cells), strict=True)]
                if all(own <= b + 1e-9 for own, b in zip(used, problem.budget.tolist(), strict=True)):
                    row = [Fraction(1)]
                    for arm, s, u in cells:
                        row = [p * q for p in row for q in arm["moves"][s][u]]
                    found.append((row, [arm["rewards"][s][u] for arm, s, u in cells]))
            self.pairs.append(found)
        self.initial = [Fraction(1)]
        for arm in arms:
            self.initial = [p * q for p in self.initial for q in arm["initial"]]

    def evaluate(self, chain, rewards):
        """The mean from each state (0 if discounted), and the bias or the value."""
        n = len(chain)
        system = [[(i == j) - self.discount * chain[i][j] for j in range(n)] for i in range(n)]
        means = [Fraction(0)] * n
        if self.is_average:
            classes = closed_classes(chain)
            inside = {i for own in classes for i in own}
            # Means: constant on each class, harmonic elsewhere.
            harmonic = [system[i] if i not in inside else [Fraction(i == j) for j in range(n)] for i in range(n)]
            right = [Fraction(0)] * n
            for own in classes:
                balance = [[(i == j) - chain[i][j] for i in own] for j in own[:-1]] + [[Fraction(1)] * len(own)]
                shares = solve_linear(balance, [Fraction(0)] * (len(own) - 1) + [Fraction(1)])
                for i in own:
                    right[i] = sum(p * rewards[j] for p, j in zip(shares, own, strict=True))
            means = solve_linear(harmonic, right)
            for own in classes:
                system[own[0]] = [Fraction(own[0] == j) for j in range(n)]
            rewards = [r - g for r, g in zip(rewards, means, strict=True)]
            rewards = [Fraction(0) if any(i == own[0] for own in classes) else r for i, r in enumerate(rewards)]
        return means, solve_linear(system, rewards)

    def best(self, weights):
        """(arm,) values of a policy that is best from every state, and the (state,) means or values by the weights."""
        n = len(self.pairs)
        worth = [[sum(w * r for w, r in zip(weights, pair[1], strict=True)) for pair in own] for own in self.pairs]
        picks = [0] * n
        while True:
            chain = [own[k][0] for own, k in zip(self.pairs, picks, strict=True)]
            means, values = self.evaluate(chain, [own[k] for own, k in zip(worth, picks, strict=True)])
            ahead = [[_dot(pair[0], means) for pair in own] for own in self.pairs]
            better = [_switch(own, k) for own, k in zip(ahead, picks, strict=True)]
            if better == picks:
                gains = [
                    [
                        r + self.discount * _dot(pair[0], values) if mean == own_means[k] else None
                        for r, pair, mean in zip(rewards, own, own_means, strict=True)
                    ]
                    for rewards, own, own_means, k in zip(worth, self.pairs, ahead, picks, strict=True)
                ]
                better = [_switch(own, k) for own, k in zip(gains, picks, strict=True)]
            if better == picks:
                break
            picks = better
        found = []
        for arm in range(self.num_arms):
            means_of, values_of = self.evaluate(
                chain, [own[k][1][arm] for own, k in zip(self.pairs, picks, strict=True)]
            )
            found.append(_dot(self.initial, means_of if self.is_average else values_of))
        return found, means if self.is_average else values

    def optimum(self, a, b):
        """The largest a min v + b sum v; of two arms unless a is 0. None if a best mean depends on the start."""
        if a == 0:
            values, means = self.best([b] * self.num_arms)
            return None if self._start_matters(means) else b * sum(values)

        def line(at):
            values, means = self.best([b + a * at, b + a * (1 - at)])
            return None if self._start_matters(means) else values

        def height(values, at):
            return (b + a * at) * values[0] + (b + a * (1 - at)) * values[1]

        left, right = line(Fraction(0)), line(Fraction(1))
        if left is None or right is None:
            return None
        if left[0] >= left[1]:
            return height(left, 0)
        if right[0] <= right[1]:
            return height(right, 1)
        while True:
            slopes = a * (left[0] - left[1]), a * (right[0] - right[1])
            at = (height(left, 0) - height(right, 0)) / (slopes[1] - slopes[0])
            values = line(at)
            if values is None or height(values, at) == height(left, at) or values[0] == values[1]:
                return None if values is None else height(values, at)
            left, right = (values, right) if values[0] < values[1] else (left, values)

    def _start_matters(self, means):
        if not self.is_average:
            return False
        seen = {i for i, p in enumerate(self.initial) if p}
        for _ in means:
            seen |= {j for i in seen for row, _ in self.pairs[i] for j, p in enumerate(row) if p}
        return len({means[i] for i in seen}) > 1


def _dot(row, values):
    return sum((p * v for p, v in zip(row, values, strict=True) if p), Fraction(0))


def _switch(worth, pick):
    """The first best, if it is better than what is picked; what is None cannot be picked."""
    best = max(w for w in worth if w is not None)
    return worth.index(best) if best > worth[pick] else pick
