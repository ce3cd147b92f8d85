"""An oracle for every objective: the product of all arms by plain loops, and one program over what policies attain.

It is written from the mathematics alone and shares no code with the library; of a problem it reads nothing but arrays.
Joint states x, joint actions u within the budget, P(x' | x, u) = prod_n p_n, initial law mu = prod_n mu_n. What the
policies attain is a polytope  { z >= 0 : A z = b }  under every criterion (history and chance make no difference):

    discounted   z = q,      sum_u q(x,u) - gamma sum P(x|y,u) q(y,u) = (1-gamma) mu(x);  V_n = sum r_n q / (1-gamma)
    finite:T     z = (q_t),  sum_u q_0 = mu,  sum_u q_{t+1}(x,u) = sum P(x|y,u) q_t(y,u); V_n = sum gamma^t r_n q_t
    average      z = (q, h), sum_u q(x,u) - sum P(x|y,u) q(y,u) = 0,
                             sum_u q(x,u) + sum_u h(x,u) - sum P(x|y,u) h(y,u) = mu(x);   V_n = sum r_n q

The last is the multichain program of Hordijk and Kallenberg (Management Science 25, 1979; Math. of OR 9, 1984): its q
are the long-run frequencies that policies reach from mu, whatever the chains. The share of time in which arm n is
served is linear in z as well, and a floor is one row. Members of welfare are m = V, or the mean of V over each group.
With L_k(m) the sum of the k smallest,

    rank-weighted   sum_k (w_k - w_{k+1}) L_k(m),    L_k(m) = max_t  k t - sum_i (t - m_i)^+        one linear program
    leximin         L_1 first, then L_2 among the best of L_1, ...  (Ogryczak)                       one program a stage
    any concave W   max theta,  theta <= W(m_j) + g_j.(m - m_j)                                      Kelley's cuts
    alpha           begins where Clarabel ends, and is then proved by cuts like any other

so each answer comes with a value that a policy has and a bound that none exceeds.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import cvxpy as cp
import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import connected_components

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
FITS = 1e-9
CLOSED = 1e-9
"""The relative gap at which cutting planes stop."""


@dataclass(frozen=True)
class PlainArm:
    transitions: np.ndarray  # (state, action, next_state)
    rewards: np.ndarray  # (state, action)
    usage: np.ndarray  # (state, action, resource)
    initial: np.ndarray  # (state,)

    @property
    def served(self):
        """(state, action) 1 where something is used."""
        return (self.usage > 0).any(axis=2).astype(float)


@dataclass(frozen=True)
class Optimum:
    welfare: float
    """What the best policy has."""
    bound: float
    """What no policy exceeds; equal to `welfare` but for rounding."""
    values: np.ndarray
    """(arm,) of one best policy."""
    members: np.ndarray
    """(member,) what welfare weighs."""


class Infeasible(Exception):
    """No policy keeps the floors."""


def plain_arms(problem):
    """One entry an arm, each its own arrays."""
    blocks = [problem.arms[b] for b in range(len(problem.counts))]
    plain = [PlainArm(*(np.array(getattr(a, k)) for k in PlainArm.__annotations__)) for a in blocks]
    return [plain[b] for b, count in enumerate(problem.counts) for _ in range(count)]


def read_problem(problem, criterion="discounted", over="arms"):
    """The oracle of a CoupledMDP."""
    blocks = np.repeat(np.arange(len(problem.counts)), problem.counts)
    names = problem.groups or ("",) * len(problem.counts)
    groups = [names[b] or f"block {b}" for b in blocks]
    return Attainable(
        plain_arms(problem),
        problem.budget,
        problem.discount,
        criterion,
        groups if over == "groups" else None,
        np.asarray(problem.floors)[blocks],
    )


class ProductSpace:
    """Every joint state with every joint action that the budget allows."""

    def __init__(self, arms, budget):
        self.arms, self.budget = arms, np.asarray(budget, dtype=float)
        self.states = list(product(*(range(len(arm.rewards)) for arm in arms)))
        place = {state: i for i, state in enumerate(self.states)}
        self.pairs, self.state_of_pair = [], []
        for state in self.states:
            for action in product(*(range(arm.rewards.shape[1]) for arm in arms)):
                if self.fits(state, action):
                    self.pairs.append((state, action))
                    self.state_of_pair.append(place[state])
        self.initial = np.array([np.prod([a.initial[s] for a, s in zip(arms, x, strict=True)]) for x in self.states])

    def cells(self, state, action):
        return zip(self.arms, zip(state, action, strict=True), strict=True)

    def fits(self, state, action):
        used = sum(arm.usage[cell] for arm, cell in self.cells(state, action))
        return bool((used <= self.budget * (1 + FITS)).all())

    @cached_property
    def rewards(self):
        """(arm, pair)."""
        return np.array([[arm.rewards[cell] for arm, cell in self.cells(*pair)] for pair in self.pairs]).T

    @cached_property
    def served(self):
        """(arm, pair) 1 where the arm is given something."""
        return np.array([[arm.served[cell] for arm, cell in self.cells(*pair)] for pair in self.pairs]).T

    @cached_property
    def moves(self):
        """(pair, next state) probabilities."""
        rows = []
        for pair in self.pairs:
            law = np.ones(1)
            for arm, cell in self.cells(*pair):
                law = np.kron(law, arm.transitions[cell])
            rows.append(law)
        return sparse.csr_matrix(np.array(rows))

    @cached_property
    def belongs(self):
        """(state, pair) 1 where the pair is of the state."""
        shape = (len(self.states), len(self.pairs))
        return sparse.csr_matrix((np.ones(len(self.pairs)), (self.state_of_pair, np.arange(shape[1]))), shape)

    @cached_property
    def num_end_components(self):
        """How many maximal sets of states some policy can stay in for ever, going everywhere within.

        With one of them every weighting's best long-run mean is the same from everywhere.
        """
        size, state_of = len(self.states), np.array(self.state_of_pair)
        support = self.moves.toarray() > 0
        kept = np.ones(len(self.pairs), dtype=bool)
        while True:
            graph = np.zeros((size, size))
            np.add.at(graph, state_of[kept], support[kept].astype(float))
            _, part = connected_components(sparse.csr_matrix(graph), directed=True, connection="strong")
            stays = np.array([bool((part[row] == part[x]).all()) for row, x in zip(support, state_of, strict=True)])
            if (kept == (kept & stays)).all():
                return len(np.unique(part[state_of[kept]]))
            kept &= stays


class Attainable:
    """What all policies together attain under a criterion, and the best of it for any welfare."""

    def __init__(self, arms, budget, discount, criterion="discounted", groups=None, floors=None):
        self.space = ProductSpace(arms, budget)
        self.discount, self.criterion = float(discount), criterion
        self.floors = np.zeros(len(arms)) if floors is None else np.asarray(floors, dtype=float)
        self.averaging = _averaging(groups, len(arms))
        kind, _, steps = criterion.partition(":")
        self.flow, self.entry, self.means_of, self.served_of, self.total = {
            "discounted": self._discounted,
            "average": self._average,
            "finite": lambda: self._finite(int(steps)),
        }[kind]()

    def _discounted(self):
        space, left = self.space, 1 - self.discount
        flow = space.belongs - self.discount * space.moves.T
        return flow, left * space.initial, space.rewards, space.served, 1 / left

    def _average(self):
        space = self.space
        still = space.belongs - space.moves.T
        flow = sparse.bmat([[still, None], [space.belongs, still]])
        entry = np.concatenate([np.zeros(len(space.states)), space.initial])
        nothing = np.zeros_like(space.rewards)
        return flow, entry, np.hstack([space.rewards, nothing]), np.hstack([space.served, nothing]), 1.0

    def _finite(self, steps):
        space = self.space
        weights = [self.discount**t for t in range(steps)]
        rows = [[None] * steps for _ in range(steps)]
        for t in range(steps):
            rows[t][t] = space.belongs
            if t:
                rows[t][t - 1] = -space.moves.T
        entry = np.concatenate([space.initial, np.zeros((steps - 1) * len(space.states))])
        shares = np.array(weights) / sum(weights)
        means, served = (np.hstack([share * table for share in shares]) for table in (space.rewards, space.served))
        return sparse.bmat(rows), entry, means, served, sum(weights)

    @cached_property
    def members_of(self):
        """(member, variable) the members in units of a step, so that programs are well scaled: m = total * this."""
        return self.averaging @ self.means_of

    @property
    def num_members(self):
        return len(self.averaging)

    # One linear program over z, the members m and what else a welfare needs: maximise c.(m, e) with F (m, e) <= h.

    def _maximise(self, gain, rows=None, limits=None, lowest=None, with_floors=True):
        """The best z and (m, e), and the best gain.

        gain: (member + extra,); rows: (row, member + extra); lowest: (extra,) lower bounds of the extra variables.
        """
        num_z, num_m = self.flow.shape[1], self.num_members
        extra = len(gain) - num_m
        blank = sparse.csr_matrix((self.flow.shape[0], num_m + extra))
        ties = sparse.csr_matrix(np.hstack([self.members_of, -np.eye(num_m), np.zeros((num_m, extra))]))
        equal = sparse.vstack([sparse.hstack([self.flow, blank]), ties], format="csr")
        below, most = [], []
        if with_floors and self.floors.any():
            below.append(np.hstack([-self.served_of, np.zeros((len(self.floors), num_m + extra))]))
            most.append(-self.floors)
        if rows is not None and len(rows):
            below.append(np.hstack([np.zeros((len(rows), num_z)), np.asarray(rows)]))
            most.append(np.asarray(limits))
        found = linprog(
            np.concatenate([np.zeros(num_z), -np.asarray(gain, dtype=float)]),
            A_ub=sparse.csr_matrix(np.vstack(below)) if below else None,
            b_ub=np.concatenate(most) if below else None,
            A_eq=equal,
            b_eq=np.concatenate([self.entry, np.zeros(num_m)]),
            bounds=[(0, None)] * num_z + [(None, None)] * num_m + [(x, None) for x in (lowest or [None] * extra)],
            method="highs",
            options=TIGHT,
        )
        if found.status == 2:
            raise Infeasible(f"the largest common floor is {self.largest_common_floor()}")
        assert found.status == 0, found.message
        return found.x[:num_z], found.x[num_z:], -found.fun

    @cached_property
    def feasible(self):
        """Whether some policy keeps the floors."""
        try:
            self._maximise(np.zeros(self.num_members))
        except Infeasible:
            return False
        return True

    def largest_common_floor(self, arms=None):
        """The largest share of time in which all arms (those that have a floor, unless told) can be served."""
        chosen = np.flatnonzero(self.floors > 0) if arms is None else np.asarray(arms)
        num_z, size = self.flow.shape[1], len(chosen)
        found = linprog(
            np.append(np.zeros(num_z), -1.0),
            A_ub=np.hstack([-self.served_of[chosen], np.ones((size, 1))]),
            b_ub=np.zeros(size),
            A_eq=sparse.hstack([self.flow, sparse.csr_matrix((self.flow.shape[0], 1))], format="csr"),
            b_eq=self.entry,
            method="highs",
            options=TIGHT,
        )
        if found.status == 2:
            raise Infeasible("with any floors: some members cannot be held together")
        assert found.status == 0, found.message
        return max(0.0, -found.fun)

    def _optimum(self, z, welfare, bound):
        """From units of a step; an interior z may be better than allowed by the last digits."""
        values = self.total * (self.means_of @ z)
        welfare, bound = self.total * float(welfare), self.total * float(bound)
        return Optimum(min(welfare, bound), bound, values, self.averaging @ values)

    def best(self, welfare):
        """The optimum of a welfare, by its text or as an object with a call and a supergradient.

        Under `leximin` the members are sorted from the worst, and the welfare is the worst.
        """
        if not isinstance(welfare, str):
            return self.best_concave(
                lambda m: float(welfare(self.total * m)) / self.total,
                lambda m: welfare.supergradient(self.total * m),
            )
        kind, _, rest = welfare.partition(":")
        if kind == "leximin":
            return self.best_leximin()
        if kind in ("alpha", "nash"):
            return self.best_alpha(float(rest or 1))
        return self.best_rank_weighted(rank_weights(welfare, self.num_members))

    def best_linear(self, weights):
        """The best weighted sum of members."""
        z, _, best = self._maximise(np.asarray(weights, dtype=float))
        return self._optimum(z, best, best)

    def _partial_sums(self):
        """(k, member + extra) L_k as linear forms of (m, t_k, d_ik), the rows they need, and the lowest extras."""
        n = self.num_members
        width = 2 * n + n * n
        forms, rows = np.zeros((n, width)), []
        for k in range(n):
            forms[k, n + k] = k + 1
            for i in range(n):
                excess = 2 * n + k * n + i
                forms[k, excess] = -1
                row = np.zeros(width)
                row[n + k], row[i], row[excess] = 1, -1, -1  # t_k - m_i <= d_ik
                rows.append(row)
        return forms, rows, [None] * n + [0.0] * (n * n)

    def best_rank_weighted(self, weights):
        """The best sum of w_k m_(k), weights falling from the worst on."""
        forms, rows, lowest = self._partial_sums()
        falls = weights - np.append(weights[1:], 0.0)
        z, _, best = self._maximise(falls @ forms, rows, np.zeros(len(rows)), lowest)
        return self._optimum(z, np.sort(self.members_of @ z) @ weights, best)

    def best_leximin(self, slack=1e-10):
        """The best sorted vector: the worst first, then the second worst, ..."""
        forms, rows, lowest = self._partial_sums()
        rows, limits, sums = list(rows), [0.0] * len(rows), []
        for form in forms:
            z, _, best = self._maximise(form, rows, limits, lowest)
            sums.append(best)
            rows.append(-form)
            limits.append(-best + slack * max(1.0, abs(best)))
        ordered = self.total * np.diff([0.0, *sums])
        return Optimum(float(ordered[0]), float(ordered[0]), self.total * (self.means_of @ z), ordered)

    def best_alpha(self, alpha):
        """The best certainty equivalent; every member must be able to be positive at once."""

        def welfare(m):
            m = np.asarray(m)
            return float(np.exp(np.log(m).mean()) if alpha == 1 else (m ** (1 - alpha)).mean() ** (1 / (1 - alpha)))

        def gradient(m):
            return (welfare(m) / np.asarray(m)) ** alpha / len(m)

        return self.best_concave(welfare, gradient, start=self._clarabel(alpha), above=0.0)

    def _clarabel(self, alpha):
        """Nearly the best z, by an interior point method."""
        z, m = cp.Variable(self.flow.shape[1], nonneg=True), cp.Variable(self.num_members)
        limits = [self.flow @ z == self.entry, m == self.members_of @ z]
        if self.floors.any():
            limits.append(self.served_of @ z >= self.floors)
        gain = cp.sum(cp.log(m)) if alpha == 1 else cp.sum(cp.power(m, 1 - alpha)) / (1 - alpha)
        tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
        with warnings.catch_warnings():  # what is inaccurate is mended by the cuts
            warnings.simplefilter("ignore", UserWarning)
            cp.Problem(cp.Maximize(gain), limits).solve(solver=cp.CLARABEL, **tight)
        if z.value is None:
            raise Infeasible(f"the largest common floor is {self.largest_common_floor()}")
        return np.maximum(z.value, 0.0)

    def best_concave(self, welfare, supergradient, start=None, above=-np.inf, most_rounds=300):
        """Kelley's cutting planes, with cuts also half way back to the best point so far; all in units of a step.

        above: every member of the domain is above this; cuts are made there only.
        """
        n = self.num_members
        best_z = self._maximise(np.ones(n) / n)[0] if start is None else start
        best, rows, limits, points = float(welfare(self.members_of @ best_z)), [], [], [self.members_of @ best_z]
        for _ in range(most_rounds):
            for m in points:  # theta - g.m <= W(m_j) - g.m_j
                slope = np.asarray(supergradient(m), dtype=float)
                rows.append(np.append(-slope, 1.0))
                limits.append(float(welfare(m)) - slope @ m)
            z, _, bound = self._maximise(np.append(np.zeros(n), 1.0), rows, limits)
            tried = [share * z + (1 - share) * best_z for share in (1.0, 0.5, 0.1)]
            inside = [trial for trial in tried if (self.members_of @ trial).min() > above]
            found, first = max((float(welfare(self.members_of @ trial)), -i) for i, trial in enumerate(inside))
            points = [self.members_of @ trial for trial in inside[:2]]
            if found > best:
                best, best_z = found, inside[-first]
            if bound - best <= CLOSED * max(1e-3, abs(bound)):
                return self._optimum(best_z, best, bound)
        raise AssertionError(f"no certificate after {most_rounds} rounds: {best} to {bound}")

    def best_means(self, weights):
        """(state,) the best long-run mean of a weighting of arms from every joint state, by the dual program.

        min sum g  over g, v  with  g(x) >= sum P g,  g(x) + v(x) >= r + sum P v.
        """
        space = self.space
        away = (space.belongs.T - space.moves).tocsr()
        none = sparse.csr_matrix(away.shape)
        found = linprog(
            np.append(np.ones(len(space.states)), np.zeros(len(space.states))),
            A_ub=sparse.bmat([[-away, none], [-space.belongs.T, -away]], format="csr"),
            b_ub=np.append(np.zeros(len(space.pairs)), -np.asarray(weights) @ space.rewards),
            bounds=(None, None),
            method="highs",
            options=TIGHT,
        )
        assert found.status == 0, found.message
        return found.x[: len(space.states)]


def _averaging(groups, num_arms):
    """(member, arm) what each member is the mean of."""
    if groups is None:
        return np.eye(num_arms)
    names = list(dict.fromkeys(groups))
    picked = np.array([[float(group == name) for group in groups] for name in names])
    return picked / picked.sum(axis=1, keepdims=True)


def rank_weights(text, number):
    """(rank,) the weights of a rank-weighted welfare, the worst first."""
    kind, _, rest = text.partition(":")
    numbers = [float(x) for x in rest.split(",")] if rest else []
    if kind == "utilitarian":
        weights = np.ones(number)
    elif kind == "maximin":
        weights = np.array([1.0] + [numbers[0] if numbers else 0.0] * (number - 1))
    elif kind == "gini" and len(numbers) == 1:
        weights = numbers[0] ** -np.arange(number, dtype=float)
    elif kind == "gini":
        weights = np.array(numbers)
    else:
        raise ValueError(text)
    return weights / weights.sum()


def welfare_of(welfare, members):
    """The welfare of some members, by its text or as an object."""
    members = np.sort(np.asarray(members, dtype=float))
    if not isinstance(welfare, str):
        return float(welfare(members))
    kind, _, rest = welfare.partition(":")
    if kind == "leximin":
        return float(members[0])
    if kind in ("alpha", "nash"):
        alpha = float(rest or 1)
        if alpha == 1:
            return float(np.exp(np.log(members).mean()))
        return float((members ** (1 - alpha)).mean() ** (1 / (1 - alpha)))
    return float(rank_weights(welfare, len(members)) @ members)
