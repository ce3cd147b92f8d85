"""The plan for the worst draws: a mixture of plans that does well where the records leave room for bad luck.

With V_k[d] the values of plan k in draw d, the shares theta of a mixture (drawn once, at the start) maximise

    tail_q  =  the mean of the worst q D of   W(sum_k theta_k V_k[d]),   d = 1 .. D

which `solvers.mixtures.tail` does for given plans. Plans are added where the tail asks for them. At its optimum draws
have weights pi_d (those above the tail 0, those below 1/(q D)), and a plan would help that has a larger
sum_d pi_d g_d.V[d]; to find the best such plan is as hard as a problem whose transitions are not known to whoever acts,
so the oracle plans for the mean world of the weights,

    P^pi = sum_d pi_d P_d

and whether it helps is seen by weighing it in all draws. The search begins with the plan for the model itself (and its
parts), the plans for some draws and the named policies that need no relaxation, so that the result is never worse than
any of them in the draws it was chosen on; how much of the gain lasts is told by draws that were held out.

No policy that does not know the world has a larger tail than the tail of the worlds' own bounds: w_d <= u_d for all d
implies tail_q(w) <= tail_q(u), with u_d by the fluid relaxation of draw d.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evenhand.display import Shown
from evenhand.errors import EvenhandError
from evenhand.evaluation.worlds import Worlds, WorldValues, mixed
from evenhand.model.composite import Mixture, components_for_good
from evenhand.model.policy import Policy, Starting
from evenhand.planning.draws import Candidates, upper_bounds
from evenhand.planning.solution import Part
from evenhand.solvers.mixtures.tail import TailOptimum, best_tail, tail_mean
from evenhand.typing import Floats

MOST_ROUNDS = 5
"""Rounds in which plans are added."""

LEAST_GAIN = 1e-5
"""What a round must gain, relative to the tail, for another one."""

DIGITS = 4
"""Of shares."""

MOST_BOUNDED = 2e5
"""Draws times the size of the types' tables up to which every draw gets a bound."""


class Trade(NamedTuple):
    """What the robust plan has for what it gives up, in some draws."""

    plain_mean: float
    """Mean welfare of the plan for the model itself."""

    robust_mean: float
    """Mean welfare of the robust plan."""

    plain_tail: float
    """Mean welfare of the former in its worst draws."""

    robust_tail: float
    """Mean welfare of the latter in its worst draws."""

    @property
    def cost(self) -> float:
        """What the robust plan costs on average, as a share of the mean; negative where it gains."""
        return _share(self.plain_mean - self.robust_mean, self.plain_mean)

    @property
    def gain(self) -> float:
        """What it gains in the worst draws, as a share of the mean there."""
        return _share(self.robust_tail - self.plain_tail, self.plain_tail)

    def to_dict(self) -> dict[str, float]:
        """The JSON form."""
        return {**self._asdict(), "cost": self.cost, "gain": self.gain}


def _share(difference: float, whole: float) -> float:
    return difference / abs(whole) if whole else float(np.sign(difference)) * np.inf if difference else 0.0


@dataclass(frozen=True, eq=False)
class Robust(Shown):
    """What was gained in the worst draws, and what for."""

    share: float
    """The share of the draws that is maximised over."""

    num_draws: int
    """Draws on which the plan was chosen."""

    seen: Trade
    """In the draws on which it was chosen."""

    held_out: Trade | None
    """In as many others; None where the posterior is a sample too small to hold some out."""

    bound: float | None
    """No policy has a larger mean in its worst draws than this, of those it was chosen on; None where it is dear."""

    num_plans: int
    """Plans among which was chosen."""

    rounds: int
    """Rounds in which plans were added."""

    parts: tuple[Part, ...]
    """The plans that are mixed, the largest share first."""

    def __repr__(self) -> str:
        return f"Robust({self.words})"

    @property
    def trade(self) -> Trade:
        """In held-out draws where there are some, else in those seen."""
        return self.seen if self.held_out is None else self.held_out

    @property
    def words(self) -> str:
        """What it costs and gains, in a sentence."""
        where = "in draws it was chosen on" if self.held_out is None else "in draws that no choice has seen"
        if len(self.parts) == 1 and self.parts[0].name == "plan":
            return "no mixture does better in the worst draws than the plan for the model itself"
        cost, gain = self.trade.cost, self.trade.gain
        gains = f"gains {_percent(gain)}" if gain >= 0 else f"loses {_percent(-gain)}"
        costs = f"costs {_percent(cost)} on average and {gains}"
        if cost <= 0:
            costs = f"gains {_percent(-cost)} on average and {gains.removeprefix('gains ')}"
        return f"{costs} in the worst {_percent(self.share)} of draws ({where})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "share": self.share,
            "draws": self.num_draws,
            "seen": self.seen.to_dict(),
            "held_out": None if self.held_out is None else self.held_out.to_dict(),
            "upper_bound": self.bound,
            "plans": self.num_plans,
            "rounds": self.rounds,
            "parts": [{"policy": part.name, "share": part.share} for part in self.parts],
            "words": self.words,
        }


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if abs(share) >= 5e-6 else "0 %"


class RobustPlan(NamedTuple):
    """The plan for the worst draws."""

    policy: Policy | Starting
    """What acts."""

    found: WorldValues
    """Its values in the draws on which it was chosen."""

    facts: Robust
    """What it gains, and what it costs."""


def robust_plan(candidates: Candidates, share: float, held_out: Worlds | None) -> RobustPlan:
    """The mixture of plans with the best mean welfare in the worst draws.

    Args:
        candidates: plans that are weighed; one is called `plan`, the one for the model itself. Others are added.
        share: of the draws, above 0 and at most 1.
        held_out: draws in which it is reported.
    """
    optimum, rounds = _search(candidates, share)
    plain = candidates.names.index("plan")
    shares = _settled(candidates, optimum, share, plain)
    kept = np.flatnonzero(shares > 0)
    policy = _mix(candidates, shares)
    found = _values(candidates, shares)
    order = kept[np.argsort(-shares[kept], kind="stable")]
    facts = Robust(
        share=share,
        num_draws=len(candidates.worlds),
        seen=_trade(candidates, candidates.found[plain], found, share, denoise=False),
        held_out=None if held_out is None else _held_out(candidates, policy, held_out, share),
        bound=_bound(candidates, share),
        num_plans=len(candidates.names),
        rounds=rounds,
        parts=tuple(Part(candidates.names[i], float(shares[i])) for i in order),
    )
    return RobustPlan(policy, found, facts)


def _search(candidates: Candidates, share: float) -> tuple[TailOptimum, int]:
    """The best mixture, adding plans for the mean world of its weights until that gains nothing."""
    optimum = _master(candidates, share)
    for rounds in range(1, MOST_ROUNDS + 1):
        before = len(candidates.names)
        candidates.add_plans(candidates.worlds.mean(optimum.weights), f"the worst draws, round {rounds}")
        if len(candidates.names) == before:
            return optimum, rounds
        found = _master(candidates, share)
        gain, optimum = found.value - optimum.value, found if found.value > optimum.value else _padded(optimum, found)
        if gain <= LEAST_GAIN * abs(optimum.value):
            return optimum, rounds
    return optimum, MOST_ROUNDS


def _padded(optimum: TailOptimum, found: TailOptimum) -> TailOptimum:
    """The same mixture with no share of the plans that were added."""
    return optimum._replace(shares=np.pad(optimum.shares, (0, len(found.shares) - len(optimum.shares))))


def _master(candidates: Candidates, share: float) -> TailOptimum:
    rows = candidates.draws()
    objective = rows[0].objective
    values = np.stack([objective.members(row.found.values) for row in rows], axis=-1)
    return best_tail(values, candidates.welfare, objective.sizes, share)


def _settled(candidates: Candidates, optimum: TailOptimum, share: float, plain: int) -> Floats:
    """(plan,) shares of few digits; those of the plan for the model where rounding, or nothing, makes others better."""
    alone = np.zeros(len(optimum.shares))
    alone[plain] = 1.0
    rounded = np.round(optimum.shares, DIGITS)
    tried: list[Floats] = [alone, rounded / rounded.sum(), optimum.shares]
    tails = [tail_mean(candidates.row("", _values(candidates, shares)).seen, share) for shares in tried]
    enough = LEAST_GAIN * abs(tails[0])
    if max(tails[1:]) <= tails[0] + 1e-2 * enough:
        return alone
    return tried[1] if tails[1] >= tails[2] - enough and tails[1] > tails[0] else tried[2]


def _values(candidates: Candidates, shares: Floats) -> WorldValues:
    kept = np.flatnonzero(shares > 0)
    return mixed([candidates.found[i] for i in kept], shares[kept], candidates.worlds.problem)


def _mix(candidates: Candidates, shares: Floats) -> Policy | Starting:
    """One policy; parts that are mixtures themselves are taken apart."""
    parts: list[Policy | Starting] = []
    weights: list[float] = []
    for i in np.flatnonzero(shares > 0).tolist():
        inner, own = components_for_good(candidates.policies[i])
        parts += inner
        weights += (shares[i] * own).tolist()
    return parts[0] if len(parts) == 1 else Mixture(parts, np.array(weights) / sum(weights))


def _trade(candidates: Candidates, plain: WorldValues, robust: WorldValues, share: float, denoise: bool) -> Trade:
    rows = [candidates.row("", found) for found in (plain, robust)]
    draws = [row.welfare if denoise else row.seen for row in rows]
    return Trade(rows[0].mean, rows[1].mean, tail_mean(draws[0], share), tail_mean(draws[1], share))


def _held_out(candidates: Candidates, policy: Policy | Starting, worlds: Worlds, share: float) -> Trade:
    """Both plans in draws that no choice has seen, played on random numbers of their own."""
    plain = candidates.policies[candidates.names.index("plan")]
    told = ["weighing held-out draws: the plan", "weighing held-out draws: the robust plan"]
    before, after = candidates.weigh([plain, policy], told, worlds, candidates.seed + 1)
    for found in (before, after):
        if isinstance(found, EvenhandError):
            raise found
    assert isinstance(before, WorldValues)
    assert isinstance(after, WorldValues)
    return _trade(candidates, before, after, share, denoise=True)


def _bound(candidates: Candidates, share: float) -> float | None:
    """The tail of the draws' own bounds."""
    worlds = candidates.worlds
    if len(worlds) * worlds.problem.types.transitions.size > MOST_BOUNDED:
        return None
    bounds = upper_bounds(worlds, candidates.welfare, candidates.progress, candidates.sweep)
    return None if bounds is None else tail_mean(bounds, share)
