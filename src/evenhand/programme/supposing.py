"""What if: the best policy for those who take part, with another budget or another welfare; nothing is kept of it."""

from typing import Any

from evenhand.planning.solve import solve
from evenhand.programme.programme import Programme
from evenhand.programme.solving import METHOD, Certificate, facts_of, numbers_of
from evenhand.typing import Progress


def suppose(
    programme: Programme,
    *,
    budget: Any = None,
    welfare: str | None = None,
    seconds: float | None = None,
    progress: Progress | bool | None = None,
) -> Certificate:
    """What the best policy would be worth, by type and group.

    Args:
        programme: whose roster and model are meant.
        budget: what there would be at every step, as `CoupledMDP.with_budget` takes it; as the model says when absent.
        welfare: what would be fair; the programme's own when absent.
        seconds: how long it may take, about; until nothing is gained when absent.
        progress: called now and then with what is being done and the share done.

    Raises:
        InvalidInput: nobody takes part, or the budget or the welfare is not sound.
    """
    problem, arms, seed = programme.present_problem()
    supposed = problem if budget is None else problem.with_budget(budget)
    solution = solve(supposed, welfare, method=METHOD, seconds=seconds, progress=progress, rng=seed)
    return Certificate.of(facts_of(solution, "", numbers_of(arms))["certificate"])
