"""Value of information (EVPI, EVPPI) of transition rows.

Plans k have the welfare w_kd in scenario d. Without information the best choice is the plan b with the best mean. With
perfect information the best plan of each scenario is chosen, which adds on average

    total  =  mean_d max_k (w_kd - w_bd)                       (expected value of perfect information)

With information on one row x (a type, state and action) the plan is chosen by what x says about the others:

    value(x)  =  E max_k E[w_k - w_b | x]                      (of partial perfect information)

The inner expectation is a regression of w_k - w_b on the row's drawn probabilities (Strong, Oakley and Brennan, Medical
Decision Making 34, 2014), here on their values and squares. A regression that has seen the scenario which it predicts
finds value where there is none; so it is cross-fitted in ten parts, the plan is chosen by the prediction, and its
actual gain counts:

    value(x)  ~  mean_d gain_{k(x_d), d},      k(x_d) chosen without d

This is the gain of a learned rule, at most that of the best rule: on average an estimate from below, at most `total`
for every row, and around 0 for an uninformative row. There are finitely many plans, so `total` is an estimate from
below, too. Simulation errors of the differences are removed as in `scenario_evaluation`.

Of many rows of value 0 some lie two standard errors above 0. A row is named in words if Holm's step-down test of all
rows rejects 0, and if its value is a notable share of the welfare.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from evenhand.display import FrameLibrary, Shown, as_frame
from evenhand.typing import Floats
from evenhand.uncertainty.scenario_evaluation import ScenarioValues, difference
from evenhand.uncertainty.scenarios import Scenarios


class RowValue(NamedTuple):
    """Value of partial perfect information on one row, not negative, and its standard error."""

    type: str
    state: str
    action: str
    value: float
    stderr: float

    @property
    def name(self) -> str:
        """Type, state and action as text."""
        return ", ".join(part for part in (self.type, self.state, self.action) if part)


@dataclass(frozen=True, eq=False)
class ValueOfInformation(Shown):
    """Expected gain in welfare from better knowledge of the transitions.

    `total`: value of perfect information on all rows; no row has more. `welfare`: mean welfare of the best plan without
    it. `best`: name of that plan. `num_plans`, `num_draws`: plans to choose from, and scenarios. `rows`: by value, the
    largest first.
    """

    total: float
    welfare: float
    best: str
    num_plans: int
    num_draws: int
    rows: tuple[RowValue, ...]

    def __repr__(self) -> str:
        first = f", most of it by {self.significant[0].name}" if self.significant else ""
        return f"ValueOfInformation(all rows {self.total:.3g} of {self.welfare:.6g}{first})"

    @cached_property
    def significant(self) -> tuple[RowValue, ...]:
        """Rows whose value is significantly positive among all rows, and a notable share of the welfare."""
        p_values = [_p_value(row, self.num_draws) for row in self.rows]
        rejected = []
        # Rounded, so that equal p-values have the same order on every machine.
        for rank, row in enumerate(sorted(range(len(p_values)), key=lambda i: (round(p_values[i], 12), i))):
            if p_values[row] > 0.05 / (len(p_values) - rank):  # familywise error rate (Holm, 1979)
                break
            rejected.append(row)
        # Collecting records has a cost: a row must add a thousandth of the welfare.
        return tuple(self.rows[i] for i in sorted(rejected) if self.rows[i].value >= 1e-3 * abs(self.welfare))

    @property
    def words(self) -> str:
        """Recommendation of what to record, in a sentence."""
        if self.total <= 1e-6 * abs(self.welfare):
            return "better knowledge of the transitions would not change the plan"
        share = f"{100 * self.total / abs(self.welfare):.2g} %" if self.welfare else f"{self.total:.3g}"
        if not self.significant:
            return f"perfect information would add {share}; no single row stands out"
        rows = "; ".join(row.name for row in self.significant[:3])
        return f"record more of: {rows} (perfect information would add {share})"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per transition row: type, state, action, value and its standard error.

        Args:
            library: `pandas` or `polars`; the one that is installed by default.
        """
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in RowValue._fields}, library)

    def to_dict(self, max_rows: int | None = None) -> dict[str, Any]:
        """Return the JSON form, with at most so many rows; all by default."""
        return {
            "total": self.total,
            "welfare": self.welfare,
            "best": self.best,
            "plans": self.num_plans,
            "words": self.words,
            "rows": [row._asdict() | {"stands_out": row in self.significant} for row in self.rows[:max_rows]],
        }


def _p_value(row: RowValue, num_draws: int) -> float:
    """Return the one-sided p-value of a value of 0."""
    if row.value <= 0 or num_draws < 2:
        return 1.0
    return float(stdtr(num_draws - 1, -row.value / row.stderr)) if row.stderr > 0 else 0.0


def value_of_information(scenarios: Scenarios, plans: Sequence[ScenarioValues]) -> ValueOfInformation:
    """Return the value of information on each transition row.

    Args:
        scenarios: the scenarios.
        plans: values, over these scenarios, of the plans to choose from.
    """
    means = np.array([plan.mean for plan in plans])
    # Of plans that are equal up to rounding, the first.
    best = int(np.argmax(np.round(means / (np.abs(means).max() or 1.0), 10)))
    gains = np.stack([difference(plan, plans[best]) for plan in plans])  # (plan, scenario)
    total = float(np.maximum(gains.max(axis=0), 0.0).mean())
    rows = [RowValue(*_names(scenarios, place), *_row_value(gains, probabilities))
            for place, probabilities in _uncertain_rows(scenarios)]  # fmt: skip
    rows.sort(key=lambda row: -float(f"{row.value:.9g}"))
    return ValueOfInformation(total, float(means[best]), plans[best].policy, len(plans), len(scenarios), tuple(rows))


def _uncertain_rows(scenarios: Scenarios) -> list[tuple[tuple[int, int, int], Floats]]:
    """Return each (source, state, action) whose row varies, with its (scenario, regressor) probabilities."""
    drawn = scenarios.transitions
    varies = drawn.std(axis=0) > 1e-12
    found = []
    for source, state, action in np.argwhere(varies.any(axis=-1)).tolist():
        columns = np.flatnonzero(varies[source, state, action])[:-1]  # they sum to 1: the last is redundant
        found.append(((source, state, action), drawn[:, source, state, action][:, columns]))
    return found


def _names(scenarios: Scenarios, place: tuple[int, int, int]) -> tuple[str, str, str]:
    """Return the names of a row's type, state and action; numbers if they have none."""
    source, state, action = place
    block = int(np.flatnonzero(scenarios.source_of_block == source)[0])
    labels = scenarios.problem.tables.labels
    name, states, actions = labels[block] if labels else ("", (), ())
    return (
        name or f"type {source}",
        states[state] if states else f"state {state}",
        actions[action] if actions else f"action {action}",
    )


def _row_value(gains: Floats, probabilities: Floats, folds: int = 10) -> tuple[float, float]:
    """Return the gain of choosing by a row, and its standard error.

    Args:
        gains: (plan, scenario) gains over the best plan without information.
        probabilities: (scenario, regressor) probabilities of the row.
        folds: parts of the scenarios, each predicted from the others.
    """
    number = gains.shape[1]
    features = _standardised(probabilities)
    # Squares if there are 20 scenarios per coefficient.
    if features.shape[1] * 40 <= number:
        features = np.column_stack([features, _standardised(np.square(features))])
    fold, chosen = np.arange(number) % folds, np.zeros(number)
    for part in range(folds):
        test = fold == part
        predicted = _ridge_prediction(features[~test], gains[:, ~test], features[test])
        chosen[test] = np.take_along_axis(gains[:, test], predicted.argmax(axis=0)[None], axis=0)[0]
    return max(0.0, float(chosen.mean())), float(chosen.std(ddof=1) / np.sqrt(number))


def _standardised(columns: Floats) -> Floats:
    return np.asarray((columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-300))


def _ridge_prediction(features: Floats, gains: Floats, at: Floats) -> Floats:
    """Return the (plan, scenario) gains that a ridge regression with penalty 1e-3 per scenario predicts."""
    centre, level = features.mean(axis=0), gains.mean(axis=1, keepdims=True)
    apart = features - centre
    squares = apart.T @ apart + 1e-3 * len(features) * np.eye(apart.shape[1])
    slopes = np.linalg.solve(squares, apart.T @ (gains - level).T)
    return np.asarray(level + ((at - centre) @ slopes).T)
