"""The optimum of a tiny problem in exact arithmetic: the product-space program by a simplex method on fractions.

For discounted values and Gini weights that are equal but for the first, W(v) = a min_n v_n + b sum_n v_n:

    maximise    a t + b sum_n v_n          over x(s, u) >= 0 for joint states s and joint actions u within the budget
    subject to  sum_u x(s, u) - discount sum_{s', u'} p(s | s', u') x(s', u') = initial(s)
                t + slack_n = v_n = sum r_n(s_n, u_n) x(s, u)

Every double is a fraction, so nothing is rounded anywhere: what this says of numbers of any size is so. Transitions and
first states are taken as the doubles they are. It begins at the policy that idles (a basis, with the row of the
worst-off for t) and takes Bland's rule, which ends.
"""

from fractions import Fraction
from itertools import product


def read_arms(problem):
    """Arms as fractions: (transitions, rewards, usage, initial, idle action of each state)."""
    found = []
    for block, count in enumerate(problem.counts):
        arm = problem.arms[block]
        table = {
            "moves": [[[Fraction(p) for p in row] for row in rows] for rows in arm.transitions.tolist()],
            "rewards": [[Fraction(r) for r in row] for row in arm.rewards.tolist()],
            "usage": arm.usage.tolist(),
            "initial": [Fraction(p) for p in arm.initial.tolist()],
        }
        found += [table] * int(count)
    return found


def columns_of(problem):
    """The joint states, and of every pair within the budget its state, its column of the balance and its rewards."""
    arms, discount = read_arms(problem), Fraction(problem.discount)
    states = list(product(*(range(len(arm["initial"])) for arm in arms)))
    pairs = []
    for number, state in enumerate(states):
        for actions in product(*(range(len(arm["usage"][s])) for arm, s in zip(arms, state, strict=True))):
            used = [arm["usage"][s][u] for arm, s, u in zip(arms, state, actions, strict=True)]
            totals = [sum(each) for each in zip(*used, strict=True)]
            if any(total > b + 1e-9 * max(b, 1) for total, b in zip(totals, problem.budget.tolist(), strict=True)):
                continue
            moves = [arm["moves"][s][u] for arm, s, u in zip(arms, state, actions, strict=True)]
            column = []
            for other in states:
                chance = discount
                for row, s in zip(moves, other, strict=True):
                    chance *= row[s]
                column.append(-chance)
            column[number] += 1
            rewards = [arm["rewards"][s][u] for arm, s, u in zip(arms, state, actions, strict=True)]
            pairs.append((number, column, rewards, not any(totals)))
    initial = []
    for state in states:
        chance = Fraction(1)
        for arm, s in zip(arms, state, strict=True):
            chance *= arm["initial"][s]
        initial.append(chance)
    return initial, pairs


def best(problem, a, b):
    """The largest a min v + b sum v, a fraction.

    Args:
        problem: discounted, of two or three small arms.
        a: weight of the worst-off, not negative.
        b: weight of every arm, not negative.
    """
    initial, pairs = columns_of(problem)
    S, N = len(initial), problem.num_arms
    idle = [next(k for k, pair in enumerate(pairs) if pair[0] == s and pair[3]) for s in range(S)]
    P = len(pairs)
    # Columns: pairs, t (free in sign; split into t+ and t-), slacks; the last is the right-hand side.
    width = P + 2 + N + 1
    rows = [[Fraction(0)] * width for _ in range(S + N)]
    for k, (_, column, rewards, _) in enumerate(pairs):
        for s in range(S):
            rows[s][k] = column[s]
        for n in range(N):
            rows[S + n][k] = rewards[n]
    for s in range(S):
        rows[s][-1] = initial[s]
    for n in range(N):
        rows[S + n][P], rows[S + n][P + 1], rows[S + n][P + 2 + n] = Fraction(-1), Fraction(1), Fraction(-1)
    costs = [Fraction(b) * sum(pair[2]) for pair in pairs] + [Fraction(a), -Fraction(a)] + [Fraction(0)] * (N + 1)
    basis = [-1] * (S + N)
    for s in range(S):
        _pivot(rows, costs, basis, next(r for r in range(S) if basis[r] < 0 and rows[r][idle[s]]), idle[s])
    # Rows of values now read  -t+ + t- - slack_n = -v_n(idle); the smallest of v is t, the others have slack.
    worst = max(range(N), key=lambda n: rows[S + n][-1])
    _pivot(rows, costs, basis, S + worst, P if rows[S + worst][-1] <= 0 else P + 1)
    for n in range(N):
        if n != worst:
            _pivot(rows, costs, basis, S + n, P + 2 + n)
    assert all(row[-1] >= 0 for row in rows)
    while (entering := next((j for j in range(width - 1) if costs[j] > 0), None)) is not None:
        ratios = [(row[-1] / row[entering], basis[r], r) for r, row in enumerate(rows) if row[entering] > 0]
        _pivot(rows, costs, basis, min(ratios)[2], entering)
    return -costs[-1]


def _pivot(rows, costs, basis, r, j):
    """Make a column that of a unit vector, in the rows and in the costs."""
    pivot = rows[r][j]
    row = rows[r] = [x / pivot for x in rows[r]]
    some = [k for k, x in enumerate(row) if x]
    for other in [*(rows[i] for i in range(len(rows)) if i != r), costs]:
        if factor := other[j]:
            for k in some:
                other[k] -= factor * row[k]
    basis[r] = j
