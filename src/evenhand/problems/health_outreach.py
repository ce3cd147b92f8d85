"""Health outreach: whom do health workers contact, so that people stay with a health programme?

A person is engaged, (wavering,) or lapsed. Left alone, a person in a group g drifts by a rule I_g, which with
three states is

                 engaged   wavering        lapsed
    engaged        k        1 − k            0
    wavering       u        1 − u − d        d
    lapsed         0        w              1 − w

and with two states [[k, 1 − k], [w, 1 − w]]. A contact a lands with probability e_a(s), and then leads to the
state h_a(s); otherwise the person drifts as if left alone:

    p(s'|s, a) = (1 − e_a(s)) I_g(s, s') + e_a(s) [s' = h_a(s)].

A call takes one unit of worker time; it lifts by one state, and lands half as often on the lapsed, for they
do not pick up. With three states there is also a visit, which takes three units, lands more often, and wins
the person back at once. A step's reward is 1 engaged, 1/2 wavering, 0 lapsed. So a contact never harms, and a
better state is never the worse one to start from, as the literature assumes.

References: the two-state problem with calls is that of A. Mate et al., "Field study in deploying restless
multi-armed bandits: assisting non-profits in improving maternal and child health", AAAI 2022; its three
states follow A. Biswas et al., "Learn to intervene: an adaptive learning policy for restless bandits in
application to preventive healthcare", IJCAI 2021; contacts of several strengths and prices are in J. Killian,
A. Perrault and M. Tambe, "Beyond 'to act or not to act': fast Lagrangian approaches to general multi-action
restless bandits", AAMAS 2021. The numbers here are illustrative: drawn from plausible ranges, not from any
programme's data.
"""

from typing import Literal, get_args

import numpy as np

from evenhand.checks import check_memory
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP
from evenhand.problems._arguments import Arguments
from evenhand.problems.random_arms import even_split
from evenhand.typing import Floats

NumStates = Literal[2, 3]
"""Without or with a wavering state between engaged and lapsed."""

_STATES = {2: ("engaged", "lapsed"), 3: ("engaged", "wavering", "lapsed")}
_ACTIONS = {2: ("wait", "call"), 3: ("wait", "call", "visit")}
_WORKER_TIME = {2: (0.0, 1.0), 3: (0.0, 1.0, 3.0)}
_REWARDS = {2: (1.0, 0.0), 3: (1.0, 0.5, 0.0)}
_INITIAL = {2: (0.6, 0.4), 3: (0.5, 0.3, 0.2)}


def health_outreach(
    num_arms: int = 100,
    budget: float | None = None,
    discount: float = 0.95,
    num_states: NumStates = 3,
    num_groups: int = 3,
    seed: int = 0,
) -> CoupledMDP:
    """People drift away from a health programme, and workers have little time to call or visit them.

    The groups' dynamics are illustrative, drawn from plausible ranges; they are not data of a programme.

    Args:
        num_arms: number of people, spread evenly over the groups.
        budget: units of worker time in a step (a call takes 1, a visit 3); by default a tenth of num_arms,
            and at least what one contact takes.
        discount: value of a reward one step later.
        num_states: 2 is engaged and lapsed, with calls; 3 adds wavering, and visits.
        num_groups: number of groups of people with different dynamics.
        seed: seed of the random numbers of the groups.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.health_outreach(num_arms=8, num_groups=2)
        CoupledMDP(8 arms, 2 types, 1 resource, discount 0.95)
    """
    given = Arguments()
    sound = given.whole("num_arms", num_arms, most=MOST_ARMS)
    if budget is not None:
        given.number("budget", budget)
    given.number("discount", discount, below=1)
    given.choice("num_states", num_states, get_args(NumStates))
    given.whole("num_groups", num_groups, most=num_arms if sound else None, why="a group has at least one person")
    given.whole("seed", seed, least=0)
    given.raise_if_any("health-outreach")

    check_memory(800.0 * num_groups, f"{num_groups} groups", "Use fewer groups.")
    times = _WORKER_TIME[num_states]
    amount = max(times[-1], num_arms // 10) if budget is None else budget
    return CoupledMDP(
        arms=_groups(np.random.default_rng(seed), num_groups, num_states),
        budget=[amount],
        discount=discount,
        counts=even_split(num_arms, num_groups),
    )


def _groups(rng: np.random.Generator, num_groups: int, num_states: NumStates) -> ArmTables:
    """One arm per group."""
    transitions = _transitions(_drift(rng, num_groups, num_states), _landing(rng, num_groups, num_states))
    num_actions = transitions.shape[2]
    labels = (_STATES[num_states], _ACTIONS[num_states])
    rewards = np.repeat(np.array(_REWARDS[num_states])[:, None], num_actions, axis=1)
    usage = np.repeat(np.array(_WORKER_TIME[num_states])[None, :, None], num_states, axis=0)
    return ArmTables(
        transitions=transitions,
        rewards=np.repeat(rewards[None], num_groups, axis=0),
        usage=np.repeat(usage[None], num_groups, axis=0),
        initial=np.repeat(np.array([_INITIAL[num_states]]), num_groups, axis=0),
        labels=tuple((f"group {group}", *labels) for group in range(1, num_groups + 1)),
    )


def _drift(rng: np.random.Generator, num_groups: int, num_states: NumStates) -> Floats:
    """(group, state, next_state) how people move when left alone."""
    keep, up, down, back = (
        rng.uniform(*ends, num_groups) for ends in ((0.7, 0.95), (0.1, 0.3), (0.2, 0.5), (0.02, 0.1))
    )
    rule = np.zeros((num_groups, num_states, num_states))
    rule[:, 0, 0], rule[:, 0, 1] = keep, 1 - keep
    rule[:, -1, -2], rule[:, -1, -1] = back, 1 - back
    if num_states == 3:
        rule[:, 1] = np.stack([up, 1 - up - down, down], axis=-1)
    return rule


def _landing(rng: np.random.Generator, num_groups: int, num_states: NumStates) -> Floats:
    """(group, state, action) the chance e that a contact lands."""
    call, visit = rng.uniform(0.2, 0.5, num_groups), rng.uniform(0.7, 0.9, num_groups)
    picks_up = np.where(np.arange(num_states) == num_states - 1, 0.5, 1.0)
    contacts = [
        np.zeros((num_groups, num_states)),
        call[:, None] * picks_up,
        np.repeat(visit[:, None], num_states, axis=1),
    ]
    return np.stack(contacts[: len(_ACTIONS[num_states])], axis=-1)


def _transitions(drift: Floats, landing: Floats) -> Floats:
    """(group, state, action, next_state) the mixture of drifting and landing.

    Args:
        drift: (group, state, next_state) the rule without contact.
        landing: (group, state, action) the chance that a contact lands.
    """
    num_states, num_actions = landing.shape[1:]
    lifted = np.zeros((num_states, num_actions), dtype=np.int64)  # a visit leads to state 0, engaged
    lifted[:, :2] = np.maximum(np.arange(num_states) - 1, 0)[:, None]
    lands = landing[..., None]
    mixture: Floats = (1 - lands) * drift[:, :, None] + lands * np.eye(num_states)[lifted]
    return mixture
