"""Machine replacement: which of the deteriorating machines are replaced, when only a few can be in a step.

A machine is in one of the states 1 (as new) to S (worn out). Let D be the rule of deterioration,

    D(s, s) = p_m,  D(s, s + 1) = 1 − p_m  for s < S,      D(S, S) = 1,

R the state after a successful replacement, and p_s the probability that a replacement succeeds. Then

    p(·|s, operate) = D(s, ·),      p(·|s, replace) = p_s R + (1 − p_s) D(s, ·),

with R = D(1, ·) when the new machine deteriorates in the same step ("then-deteriorate"), or state 1 surely
("pure"). A cost c(s) of operation and of replacement is one of

    linear s − 1,   quadratic (s − 1)²,   exponential e^(s−1),   rccc ρ (S − 1)²,   random U[0, 1],

and the reward is r(s, a) = 1 − c_a(s) / max c, the maximum over states and actions. A replacement uses one
unit of the only resource.

Code names: p_m `stay_probability`, p_s `reset_probability`, ρ `replacement_cost_ratio`.
Reference: N. Akbarzadeh and A. Mahajan, "Restless bandits with controlled restarts: indexability and
computation of Whittle index", CDC 2019, with the cost functions of the generalized-Gini paper that this
library follows.
"""

from typing import Literal, TypeAlias, get_args

import numpy as np

from evenhand.checks import check_memory
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP
from evenhand.problems._arguments import Arguments
from evenhand.typing import Floats

CostKind: TypeAlias = Literal["linear", "quadratic", "exponential", "rccc", "random"]
"""Cost as a function of the state."""

Reset: TypeAlias = Literal["then-deteriorate", "pure"]
"""Deterioration of a new machine in the step of its replacement."""

Preset: TypeAlias = Literal["exponential-rccc", "quadratic-rccc"]
"""The two pairs of costs that the paper's tables are about."""

PAPERS_WELFARE = "gini:2"
"""Welfare of the paper, the default of these problems."""

_ACTIONS = ("operate", "replace")
_MOST_STATES = 10_000
"""Largest number of states."""

_MOST_EXPONENTIAL_STATES = 700  # e^(s-1) is finite in doubles up to s = 710
"""Largest number of states with exponential costs."""

_MIXED_KINDS: tuple[CostKind, ...] = ("linear", "quadratic", "exponential", "random")


def machine_replacement(
    num_arms: int = 5,
    num_states: int = 3,
    operating_cost: CostKind = "exponential",
    replacement_cost: CostKind = "rccc",
    budget: float = 1,
    discount: float = 0.95,
    stay_probability: float = 0.8,
    reset_probability: float = 1.0,
    reset: Reset = "then-deteriorate",
    replacement_cost_ratio: float = 1.5,
    preset: Preset | None = None,
    seed: int = 0,
) -> CoupledMDP:
    """Identical machines wear out, and at most `budget` of them are replaced in a step.

    Args:
        num_arms: number of machines.
        num_states: number of states of wear.
        operating_cost: cost of operating as a function of the state.
        replacement_cost: cost of replacing as a function of the state.
        budget: number of machines that may be replaced per step.
        discount: value of a reward one step later.
        stay_probability: chance that an operated machine does not wear in a step.
        reset_probability: chance that a replacement succeeds; else the machine deteriorates as if operated.
        reset: deterioration of a new machine in the step of its replacement.
        replacement_cost_ratio: cost rccc, as a multiple of the largest quadratic cost.
        preset: the costs of the paper's tables, in place of operating_cost and replacement_cost.
        seed: seed of random costs; without effect otherwise.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.machine_replacement(num_arms=5, operating_cost="exponential", budget=1)
        CoupledMDP(5 arms, identical, 1 resource, discount 0.95)
    """
    given = Arguments()
    given.whole("num_arms", num_arms, most=MOST_ARMS)
    kinds = _cost_kinds(operating_cost, replacement_cost, preset, given)
    _check_num_states(num_states, "exponential" in kinds, given)
    given.number("budget", budget)
    given.number("discount", discount, below=1)
    given.number("stay_probability", stay_probability, most=1)
    given.number("reset_probability", reset_probability, most=1)
    given.choice("reset", reset, get_args(Reset))
    given.number("replacement_cost_ratio", replacement_cost_ratio, least=1e-6)
    given.whole("seed", seed, least=0)
    given.raise_if_any("machine-replacement")

    draws = np.random.default_rng(seed).random((2, 1, num_states))
    costs = [_cost(kind, draw, replacement_cost_ratio) for kind, draw in zip(kinds, draws, strict=True)]
    arms = _machines(
        np.stack(costs, axis=-1),
        np.array([stay_probability], dtype=np.float64),
        reset_probability,
        reset,
        ["machine"],
    )
    return CoupledMDP(
        arms=arms,
        budget=[budget],
        discount=discount,
        counts=[num_arms],
        welfare=PAPERS_WELFARE,
    )


def heterogeneous_machine_replacement(
    num_arms: int = 100,
    budget: float | None = None,
    discount: float = 0.95,
    num_states: int = 3,
    seed: int = 0,
) -> CoupledMDP:
    """Machines that all differ, in how fast they wear and in what wear costs.

    Each machine has its own stay probability, uniform from 0.5 to 0.95, and its own cost of operating:
    linear, quadratic, exponential or random. Replacing costs 1.5 (S − 1)², and each machine's costs are
    divided by its own largest one. A new machine deteriorates in the step in which it comes.

    Args:
        num_arms: number of machines.
        budget: number of machines that may be replaced per step; by default a tenth of them, at least 1.
        discount: value of a reward one step later.
        num_states: number of states of wear.
        seed: seed of the random numbers.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.heterogeneous_machine_replacement(num_arms=4)
        CoupledMDP(4 arms, 4 types, 1 resource, discount 0.95)
    """
    given = Arguments()
    given.whole("num_arms", num_arms, most=MOST_ARMS)
    _check_num_states(num_states, True, given)
    if budget is not None:
        given.number("budget", budget)
    given.number("discount", discount, below=1)
    given.whole("seed", seed, least=0)
    given.raise_if_any("heterogeneous-machine-replacement")

    _check_memory(num_arms, num_states)
    rng = np.random.default_rng(seed)
    stay = rng.uniform(0.5, 0.95, num_arms)
    kind = rng.integers(len(_MIXED_KINDS), size=num_arms)
    draws = rng.random((num_arms, num_states))
    operating = np.empty((num_arms, num_states))
    for index, name in enumerate(_MIXED_KINDS):
        rows = kind == index
        operating[rows] = _cost(name, draws[rows], 1.5)
    costs = np.stack([operating, _cost("rccc", draws, 1.5)], axis=-1)
    names = [f"machine, {_MIXED_KINDS[index]} cost" for index in kind]
    arms = _machines(costs, stay, 1.0, "then-deteriorate", names)
    amount = max(1, num_arms // 10) if budget is None else budget
    return CoupledMDP(arms=arms, budget=[amount], discount=discount, welfare=PAPERS_WELFARE)


def _cost_kinds(
    operating: CostKind, replacement: CostKind, preset: Preset | None, given: Arguments
) -> tuple[CostKind, CostKind]:
    """The costs of operating and replacing, from the preset if there is one."""
    sound = given.choice("operating_cost", operating, get_args(CostKind))
    given.choice("replacement_cost", replacement, get_args(CostKind))
    if preset is None or not given.choice("preset", preset, get_args(Preset)):
        return operating, replacement
    named: CostKind = "exponential" if preset == "exponential-rccc" else "quadratic"
    # A default cannot be distinguished from the same value written out, so only other values are seen to contradict.
    if sound and operating not in (named, "exponential"):
        given.add("operating_cost", f"'{operating}' contradicts the preset '{preset}'; give one of the two")
    if replacement in get_args(CostKind) and replacement != "rccc":
        given.add("replacement_cost", f"'{replacement}' contradicts the preset '{preset}'; give one of the two")
    return named, "rccc"


def _check_num_states(num_states: object, exponential: bool, given: Arguments) -> None:
    if exponential:
        why = "beyond, exponential costs exceed what a number can hold"
        given.whole("num_states", num_states, least=2, most=_MOST_EXPONENTIAL_STATES, why=why)
    else:
        given.whole("num_states", num_states, least=2, most=_MOST_STATES)


def _cost(kind: CostKind, draws: Floats, ratio: float) -> Floats:
    """(arm, state) costs of one kind.

    Args:
        kind: which cost function.
        draws: (arm, state) uniform numbers, used by random costs.
        ratio: what rccc multiplies the largest quadratic cost with.
    """
    wear = np.broadcast_to(np.arange(draws.shape[1], dtype=np.float64), draws.shape)
    match kind:
        case "linear":
            return wear
        case "quadratic":
            return wear**2
        case "exponential":
            return np.exp(wear)
        case "rccc":
            return np.full(draws.shape, ratio * (draws.shape[1] - 1) ** 2)
        case "random":
            return draws


def _machines(costs: Floats, stay: Floats, reset_probability: float, reset: Reset, names: list[str]) -> ArmTables:
    """Machines with costs (arm, state, action) and stay probabilities (arm,)."""
    num_arms, num_states = costs.shape[:2]
    _check_memory(num_arms, num_states)
    operate = _deterioration(stay, num_states)
    fresh = operate[:, :1] if reset == "then-deteriorate" else np.eye(1, num_states)[None]
    replace = reset_probability * fresh + (1 - reset_probability) * operate
    usage = np.broadcast_to(np.array([[0.0], [1.0]]), (num_arms, num_states, 2, 1))
    states = tuple(f"age {age}" for age in range(1, num_states + 1))
    labels = {name: (name, states, _ACTIONS) for name in names}  # shared: a million equal labels are one
    return ArmTables(
        transitions=np.stack([operate, replace], axis=2),
        rewards=1 - costs / costs.max(axis=(1, 2), keepdims=True),
        usage=usage.copy(),
        initial=np.full((num_arms, num_states), 1 / num_states),
        labels=tuple(labels[name] for name in names),
    )


def _deterioration(stay: Floats, num_states: int) -> Floats:
    """(arm, state, next_state) the rule D of wear, for stay probabilities (arm,)."""
    rule = np.zeros((len(stay), num_states, num_states))
    worn = np.arange(num_states - 1)
    rule[:, worn, worn] = stay[:, None]
    rule[:, worn, worn + 1] = 1 - stay[:, None]
    rule[:, -1, -1] = 1.0
    return rule


def _check_memory(num_arms: int, num_states: int) -> None:
    size = 8.0 * num_arms * num_states * (3 * num_states + 8)
    check_memory(size, f"{num_arms} different machines of {num_states} states", "Use fewer of them.")
