"""Small random problems of every kind, as Hypothesis strategies and as a fixed list by seed.

Symmetric, typed and all different; one to three actions, one or two resources, two or three states, one to four arms;
usage by state; budgets of nothing and of more than enough; moves without chance; states that are never left; groups;
floors; discounts of 0, 1 and nearly 1. Sizes are drawn first and kept small, so that nothing is thrown away.
"""

import numpy as np
from hypothesis import strategies as st

from evenhand.model import Arm, CoupledMDP

CRITERIA = ("discounted", "average", "finite:3")
DISCOUNTS = (0.0, 0.5, 0.9, 0.99, 0.999)
KINDS = ("symmetric", "typed", "different")
MOVES = ("any", "sparse", "certain", "absorbing")


class Draw:
    """Where numbers come from: Hypothesis, or a generator with a seed."""

    def __init__(self, integer):
        self.integer = integer
        """From the least and the most, both included."""

    def choice(self, options):
        return options[self.integer(0, len(options) - 1)]

    def chance(self, one_in):
        return self.integer(1, one_in) == one_in

    def law(self, size):
        """Eighths, not all of them zero."""
        weights = np.array([self.integer(0, 8) for _ in range(size)], dtype=float)
        weights[self.integer(0, size - 1)] += 1
        return weights / weights.sum()


def draw_moves(draw, num_states, num_actions):
    """(state, action, next_state)."""
    kind = draw.choice(MOVES)
    rows = np.zeros((num_states, num_actions, num_states))
    for s in range(num_states):
        for a in range(num_actions):
            rows[s, a] = (
                draw.law(num_states) if kind != "certain" else np.eye(num_states)[draw.integer(0, num_states - 1)]
            )
    if kind == "sparse":
        rows[0, 0], rows[-1, -1] = np.eye(num_states)[-1], np.eye(num_states)[0]
    if kind == "absorbing":
        rows[-1] = np.eye(num_states)[-1]
    return rows


def draw_usage(draw, num_states, num_actions, num_resources, servable=False):
    """(action, resource), or by state; the first action is idle, and if `servable` the second uses one of the first."""
    shape = (num_states, num_actions, num_resources) if draw.chance(3) else (num_actions, num_resources)
    usage = np.zeros(shape)
    for cell in np.ndindex(*shape):
        usage[cell] = 0 if cell[-2] == 0 else draw.integer(0, 2)
    if servable:
        usage[..., 1, :] = np.eye(num_resources)[0]
    return usage


def draw_arm(draw, num_states, num_actions, num_resources, least_reward=0, servable=False):
    rewards = np.array([[draw.integer(least_reward, 8) for _ in range(num_actions)] for _ in range(num_states)]) / 8
    return Arm(
        transitions=draw_moves(draw, num_states, num_actions),
        rewards=rewards,
        usage=draw_usage(draw, num_states, num_actions, num_resources, servable),
        initial=draw.law(num_states),
    )


def draw_counts(draw, kind, most_arms):
    if kind == "symmetric":
        return [draw.integer(1, most_arms)]
    if kind == "different":
        return [1] * draw.integer(2, min(3, most_arms))
    first = draw.integer(2, most_arms - 1)
    return [first, draw.integer(1, most_arms - first)]


def draw_budget(draw, num_resources, num_arms, servable=False):
    kind = draw.choice(("scarce", "scarce", "some", "plenty", "plenty" if servable else "none"))
    amounts = {"scarce": 1, "some": 2, "none": 0, "plenty": 2 * num_arms}
    return [float(amounts[kind]) for _ in range(num_resources)]


def draw_problem(
    draw, kind=None, most_arms=4, most_pairs=400, least_reward=0, floors=None, groups=True, discounts=None
):
    """A problem whose product space has at most `most_pairs` pairs even if the budget did not bind.

    Floors sum to less than 1, and one unit serves an arm: they can be kept.
    """
    kind = kind or draw.choice(KINDS)
    counts = draw_counts(draw, kind, most_arms)
    num_arms, num_resources = sum(counts), draw.integer(1, 2)
    with_floors = draw.chance(2) if floors is None else floors
    actions = (2, 3) if with_floors else (1, 2, 3)
    shapes = [(s, a) for s in (2, 3) for a in actions if (s * a) ** num_arms <= most_pairs] or [(2, 2)]
    arms = [draw_arm(draw, *draw.choice(shapes), num_resources, least_reward, with_floors) for _ in counts]
    return CoupledMDP(
        arms,
        budget=draw_budget(draw, num_resources, num_arms, with_floors),
        discount=draw.choice(discounts or DISCOUNTS),
        counts=counts,
        groups=[draw.choice(("north", "south", "")) for _ in counts] if groups else (),
        floors=[draw.integer(0, 3) / 16 for _ in counts] if with_floors else None,
    )


@st.composite
def problems(draw, **limits):
    """Problems as `draw_problem` makes them."""
    return draw_problem(Draw(lambda least, most: draw(st.integers(least, most))), **limits)


def seeded_problem(seed, **limits):
    """The same, from a seed."""
    rng = np.random.default_rng(seed)
    return draw_problem(Draw(lambda least, most: int(rng.integers(least, most + 1))), **limits)


def replaced(problem, **changes):
    """A problem with some of its fields changed."""
    blocks = [problem.arms[b] for b in range(len(problem.counts))]
    kept = ("budget", "discount", "counts", "resources", "groups", "floors", "over")
    return CoupledMDP(**({"arms": blocks} | {key: getattr(problem, key) for key in kept} | changes))


def arm_of(transitions, rewards, usage=((0.0,), (1.0,)), initial=None):
    return Arm(
        np.array(transitions, dtype=float), np.array(rewards, dtype=float), np.array(usage, dtype=float), initial
    )


WEARING = arm_of([[[0.8, 0.2], [0.9, 0.1]], [[0, 1], [0.9, 0.1]]], [[1.0, 0.5], [0.2, 0.4]])
SLOW = arm_of([[[0.9, 0.1], [1, 0]], [[0.05, 0.95], [0.6, 0.4]]], [[0.9, 0.3], [0.1, 0.3]], initial=[0.7, 0.3])
FAILING = arm_of(  # three states; the last is left only if served
    [[[0.5, 0.5, 0], [1, 0, 0]], [[0, 0.5, 0.5], [0.5, 0.5, 0]], [[0, 0, 1], [0.25, 0.5, 0.25]]],
    [[1.0, 0.75], [0.75, 0.5], [0.125, 0.25]],
)
TURNING = arm_of(
    [[[0, 1], [1, 0]], [[1, 0], [0, 1]]], [[1.0, 0.5], [0.25, 0.75]], initial=[0.5, 0.5]
)  # no chance at all
DYING = arm_of([[[0.75, 0.25], [1, 0]], [[0, 1], [0, 1]]], [[1.0, 0.5], [0.125, 0.25]], initial=[1, 0])  # may never die
FADING = arm_of([[[0.5, 0.5], [0.75, 0.25]], [[0, 1], [0, 1]]], [[1.0, 1.25], [0.125, 0.5]], initial=[1, 0])  # must die
CLOCK = arm_of([[[0, 1], [0, 1]], [[1, 0], [1, 0]]], [[0.25, 1.0], [0.25, 0.5]], initial=[0.5, 0.5])  # ticks anyhow
FORK = arm_of(  # served at the start it goes the good way, for ever
    [[[0, 1, 0], [0, 0, 1]], [[0, 1, 0], [0, 1, 0]], [[0, 0, 1], [0, 0, 1]]],
    [[0.5, 0.5], [0.25, 0.375], [1.0, 0.75]],
    initial=[0.75, 0.25, 0],
)
REPAIRS = arm_of(  # two resources, three actions, use by state
    [[[0.5, 0.5], [0.75, 0.25], [1, 0]], [[0.125, 0.875], [0.5, 0.5], [0.875, 0.125]]],
    [[1.0, 0.75, 0.5], [0.25, 0.375, 0.125]],
    [[[0, 0], [1, 0], [1, 1]], [[0, 0], [1, 1], [2, 1]]],
)
PARTS = arm_of(
    [[[0.75, 0.25], [0.5, 0.5]], [[0.25, 0.75], [1, 0]]], [[0.5, 0.25], [0.125, 0.75]], [[0, 0], [0, 1]], [0.25, 0.75]
)

REPAIRS_ALONE = arm_of(REPAIRS.transitions, REPAIRS.rewards, [[0], [1], [2]])

FIXED = {
    "symmetric": lambda: CoupledMDP([FAILING], [1], 0.9, counts=[3]),
    "one arm": lambda: CoupledMDP([FAILING], [1], 0.95),
    "four alike": lambda: CoupledMDP([WEARING], [2], 0.5, counts=[4]),
    "typed": lambda: CoupledMDP([WEARING, SLOW], [1], 0.9, counts=[2, 1], groups=["a", "b"]),
    "typed, groups across": lambda: CoupledMDP(
        [WEARING, SLOW, WEARING], [1], 0.8, counts=[1, 2, 1], groups=["a", "b", "b"]
    ),
    "different": lambda: CoupledMDP([WEARING, SLOW, FAILING], [1], 0.9, groups=["a", "", "a"]),
    "two resources": lambda: CoupledMDP([REPAIRS, PARTS], [2, 1], 0.7, counts=[2, 1], groups=["", "parts"]),
    "two resources, alike": lambda: CoupledMDP([REPAIRS], [2, 2], 0.9, counts=[3]),
    "no discount to speak of": lambda: CoupledMDP([WEARING, SLOW], [1], 0.999, groups=["", ""]),
    "only now": lambda: CoupledMDP([SLOW, FAILING], [1], 0.0, groups=["all", "all"]),
    "nothing to give": lambda: CoupledMDP([WEARING, SLOW], [0], 0.9, counts=[2, 1]),
    "more than enough": lambda: CoupledMDP([SLOW, REPAIRS_ALONE], [9], 0.9, counts=[1, 2], groups=["a", "a"]),
    "turning": lambda: CoupledMDP([TURNING], [1], 0.9, counts=[2]),
    "turning and wearing": lambda: CoupledMDP([TURNING, WEARING], [1], 0.8, groups=["", ""]),
    "dying": lambda: CoupledMDP([DYING, WEARING], [1], 0.9, groups=["a", "b"]),
    "clocks": lambda: CoupledMDP([CLOCK], [1], 0.9, counts=[2]),
    "forks": lambda: CoupledMDP([FORK, WEARING], [1], 0.8, counts=[2, 1], groups=["a", ""]),
    "fading": lambda: CoupledMDP([FADING, SLOW], [1], 0.9, counts=[2, 1], groups=["a", "b"]),
}
"""By hand, with values above 0 whatever is done. The long run of dying, clocks and forks may depend on the start."""
