"""Maintenance by a crew with parts: machines share the crew's hours and the parts in store.

A machine of type i is in condition 1 (as new) to S (failed), and makes output worth g_i (1 − x²) in a step,
where x = (s − 1)/(S − 1) is its wear. In every step it is

    operated   full output; wears by one state with probability q_i, a failed one stays failed;
    repaired   half the output; one state better with probability p (`repair_success`), else as it was;
    replaced   no output; as new.

A repair is long work with few parts, a replacement quick work with many: (crew hours, parts) are (2, 1) and
(1, 3). So neither budget can be planned without the other. Repair and replacement cost output today for
output later: a policy that maximises today's output only never maintains anything. Types run from lightly worn with
low stakes to heavily worn with high stakes: q_i evenly from 0.15 to 0.35, g_i evenly from 0.6 to 1; a single
type has q = 0.25, g = 1.

References: repairmen allotted to deteriorating machines as restless bandits: A. Abbou and V. Makis, "Group
maintenance: a restless bandits approach", INFORMS Journal on Computing 31(4), 2019; imperfect repair: D.
Ruiz-Hernández et al., "Multi-machine preventive maintenance scheduling with imperfect interventions: a
restless bandit approach", Computers & Operations Research 119, 2020; several actions and resources as a
weakly coupled problem: D. Adelman and A. Mersereau, "Relaxations of weakly coupled stochastic dynamic
programs", Operations Research 56(3), 2008. The numbers are this library's.
"""

import numpy as np

from evenhand.checks import check_memory
from evenhand.model.arm import ArmTables
from evenhand.model.coupled import MOST_ARMS, CoupledMDP
from evenhand.problems._arguments import Arguments
from evenhand.problems.random_arms import even_split
from evenhand.typing import Floats

_ACTIONS = ("operate", "repair", "replace")
_USAGE = ((0.0, 0.0), (2.0, 1.0), (1.0, 3.0))  # (crew hours, parts)
_OUTPUT_SHARE = (1.0, 0.5, 0.0)


def crew_maintenance(
    num_arms: int = 10,
    num_states: int = 4,
    num_types: int = 3,
    crew_hours: float | None = None,
    parts: float | None = None,
    repair_success: float = 0.8,
    discount: float = 0.95,
) -> CoupledMDP:
    """Machines are repaired or replaced by one crew from one store: three actions that share two resources.

    Args:
        num_arms: number of machines, spread evenly over the types.
        num_states: number of conditions of a machine, the last one failed.
        num_types: number of types, which differ in wear and in the worth of output; 1 makes them all alike.
        crew_hours: hours in a step (a repair takes 2, a replacement 1); by default 0.4 per machine, and at
            least what one repair takes.
        parts: parts in a step (a repair takes 1, a replacement 3); by default 0.3 per machine, and at least
            what one replacement takes.
        repair_success: chance that a repair makes a machine one state better.
        discount: value of a reward one step later.

    Example:
        >>> import evenhand as eh
        >>> eh.problems.crew_maintenance(num_arms=6, num_types=2)
        CoupledMDP(6 arms, 2 types, 2 resources, discount 0.95)
    """
    given = Arguments()
    sound = given.whole("num_arms", num_arms, most=MOST_ARMS)
    given.whole("num_states", num_states, least=2)
    given.whole("num_types", num_types, most=num_arms if sound else None, why="a type has at least one machine")
    for name, value in {"crew_hours": crew_hours, "parts": parts}.items():
        if value is not None:
            given.number(name, value)
    given.number("repair_success", repair_success, most=1)
    given.number("discount", discount, below=1)
    given.raise_if_any("crew-maintenance")

    size = 8.0 * num_types * num_states * 3 * (2 * num_states + 3)
    check_memory(size, f"{num_types} types of machines of {num_states} states", "Use fewer types.")
    budget = [
        max(2, num_arms * 4 // 10) if crew_hours is None else crew_hours,
        max(3, num_arms * 3 // 10) if parts is None else parts,
    ]
    return CoupledMDP(
        arms=_machines(num_types, num_states, repair_success),
        budget=np.array(budget, dtype=np.float64),
        discount=discount,
        counts=even_split(num_arms, num_types),
        resources=("crew hours", "parts"),
    )


def _machines(num_types: int, num_states: int, repair_success: float) -> ArmTables:
    """One arm per type."""
    position = np.linspace(0, 1, num_types) if num_types > 1 else np.array([0.5])
    wear = 0.15 + 0.2 * position
    stakes = 0.6 + 0.4 * position if num_types > 1 else np.ones(1)
    output = 1 - np.linspace(0, 1, num_states) ** 2
    states = ("as new", *(f"worn {step}" for step in range(1, num_states - 1)), "failed")
    return ArmTables(
        transitions=_transitions(wear, num_states, repair_success),
        rewards=stakes[:, None, None] * output[None, :, None] * np.array(_OUTPUT_SHARE),
        usage=np.tile(np.array(_USAGE), (num_types, num_states, 1, 1)),
        initial=np.full((num_types, num_states), 1 / num_states),
        labels=tuple((f"type {index}", states, _ACTIONS) for index in range(1, num_types + 1)),
    )


def _transitions(wear: Floats, num_states: int, repair_success: float) -> Floats:
    """(type, state, action, next_state) probabilities, for wear probabilities (type,)."""
    state = np.arange(num_states)
    same = np.eye(num_states)
    worse, better = same[np.minimum(state + 1, num_states - 1)], same[np.maximum(state - 1, 0)]
    rule = np.zeros((len(wear), num_states, len(_ACTIONS), num_states))
    rule[:, :, 0] = (1 - wear)[:, None, None] * same + wear[:, None, None] * worse
    rule[:, :, 1] = (1 - repair_success) * same + repair_success * better
    rule[:, :, 2, 0] = 1.0
    return rule
