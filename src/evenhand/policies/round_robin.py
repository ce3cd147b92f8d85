"""EQR, equal resources: every arm is served once a round, whatever its state."""

from collections.abc import Mapping, Sequence

import numpy as np

from evenhand.checks import as_generator
from evenhand.display import counted
from evenhand.errors import PolicyError
from evenhand.model.coupled import CoupledMDP
from evenhand.model.explanations import DecisionStep, ServiceOrder
from evenhand.model.policy import check_arrays
from evenhand.model.simulator import Problem
from evenhand.model.stateful_policy import Actor, Memory, Remembered, RememberingPolicy, read_memory
from evenhand.typing import Array, ArrayLike, Floats, Indices, Ints, Rng


class RoundRobin(RememberingPolicy):
    """Serves the arms in turn; with unit usage and budget b, each arm once every N / b steps (the paper's EQR).

    The reading taken: each episode has its own random order of the arms for all its rounds. A step serves the
    arms at the head of the order while the head fits the budget that is left; an arm that does not fit waits at the
    head for the next step, so no arm loses a turn. The served arm takes the action that uses the largest share of
    the budget among those that fit a whole step's budget in its present state (the first such action on a tie), and
    an arm for which nothing fits loses its turn. The policy remembers the order and the next arm.
    """

    exchangeable = True
    kind = "round-robin"
    depends_on_step = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.services = _services(problem)

    def to_arrays(self) -> dict[str, Array]:
        """Return no arrays: it follows from the problem."""
        return {}

    @classmethod
    def from_arrays(cls, problem: CoupledMDP, arrays: dict[str, Array]) -> "RoundRobin":
        """Return the policy of a problem."""
        check_arrays(arrays)
        return cls(problem)

    def resized(self, problem: CoupledMDP, types: Sequence[int] | None = None) -> "RoundRobin":
        """Return the policy for other numbers of arms; see `BasePolicy.resized`."""
        return RoundRobin(problem)

    def explain(self, decision: DecisionStep) -> list[str]:
        """(arm,) the place of each arm in the round, after this step."""
        actor, number = decision.actor, len(decision.states)
        assert isinstance(actor, RoundRobinActor)
        waits = (np.argsort(actor.order[0]) - actor.head[0]) % number
        texts = [f"its turn comes after {counted(wait, 'other')}" if wait else "it is next" for wait in waits.tolist()]
        served = decision.served.tolist()
        return ["its turn has come in the round" if busy else text for busy, text in zip(served, texts, strict=True)]

    def service_order(self, step: int = 0) -> ServiceOrder:
        """Return an order without ranks."""
        return ServiceOrder((), "every arm in turn, whatever its state", ranked=True)

    def start(self, num_episodes: int, rng: Rng = None) -> "RoundRobinActor":
        """Return an actor at the first step of `num_episodes` episodes."""
        order = np.argsort(as_generator(rng).random((num_episodes, self.problem.num_arms)), axis=1)
        return RoundRobinActor(self, order, np.zeros(num_episodes, dtype=np.int64))

    def resume(self, memory: Mapping[str, ArrayLike]) -> "RoundRobinActor":
        """Return an actor that continues where another one was; its memory is `order` and `head`.

        Args:
            memory: (episode, arm) the order of the arms in each episode, and (episode,) who comes next in it.
        """
        arms = self.problem.num_arms
        like = {"order": Remembered(("episode", "arm"), arms), "head": Remembered(("episode",), arms)}
        read = read_memory(memory, like, {"arm": arms})
        if (np.sort(read["order"], axis=1) != np.arange(arms)).any():
            raise PolicyError("memory: 'order' has some arm twice")
        return RoundRobinActor(self, read["order"], read["head"])


class RoundRobinActor(Actor):
    """The turn of each episode in a batch."""

    def __init__(self, policy: RoundRobin, order: Ints, head: Ints) -> None:
        super().__init__(len(order))
        self.policy, self.order, self.head = policy, order, head

    def memory(self) -> Memory:
        """(episode, arm) `order` of the arms, and (episode,) `head`, who comes next in it."""
        return {"order": self.order.copy(), "head": self.head.copy()}

    def choose(self, states: Indices, rng: np.random.Generator) -> Indices:
        """Serve the next arms of every episode."""
        problem, types = self.policy.problem, self.policy.problem.types
        actions = types.idle[problem.type_of_arm, states].copy()
        budget = np.repeat(problem.budget_limit[None], len(states), axis=0)
        several, limits = len(self.policy.services) > 1, np.where(problem.budget > 0, problem.budget, 1.0)
        episodes = np.arange(len(states))
        live = np.ones(len(states), dtype=np.bool_)
        for _ in range(problem.num_arms):
            arm = self.order[episodes, self.head]
            kind, state = problem.type_of_arm[arm], states[episodes, arm]
            # Of what must be spent, that of which most is left.
            most = (budget / limits)[:, problem.spends_all].argmax(axis=1) if several else 0
            action = self.policy.services[most, kind, state]
            need = types.usage[kind, state, action]
            live &= (need <= budget).all(axis=1)
            rows = episodes[live]
            if len(rows) == 0:
                break
            actions[rows, arm[rows]] = action[rows]
            budget[rows] -= need[rows]
            self.head[rows] = (self.head[rows] + 1) % problem.num_arms
        return actions


def _services(problem: Problem) -> Indices:
    """(choice, type, state) the action with the largest share of the budget that fits on its own.

    Of every budget that must be spent, in its order, an action that uses one unit of it and nothing else; see
    `CoupledMDP.check_spend`.
    """
    types, budget = problem.types, problem.budget
    shares: Floats = types.usage / np.where(budget > 0, budget, 1.0)
    if problem.spends_all.any():
        must = shares[..., problem.spends_all]
        single = (must > 0) & ((types.usage > 0).sum(axis=-1) == 1)[..., None]
        worth = np.where(single, 1 / np.where(must > 0, must, 1.0), 0.0)
    else:
        worth = shares.max(axis=-1)[..., None]
    worth = np.where(types.valid[..., None], worth, -1.0)
    return np.asarray(np.moveaxis(worth.argmax(axis=2), -1, 0), dtype=np.int32)
