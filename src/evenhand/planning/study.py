"""Studies: policies on several problems and sizes with several seeds, resumable, with bounds and paired tests.

A study consists of cells, one per problem, size and policy, and one per problem and size for the upper bound. A cell
depends on its arguments alone, so neither the backend nor an interruption changes a result. With `path` every finished
cell is a file of that folder; its name is a digest of all that the cell depends on (`study_files`).

Paired tests. Every policy meets the same random numbers under the same seed, so differences of two policies by seed
have smaller errors than either welfare, and need no assumption on the welfare. p-values are those of Student's t test
of the mean difference, or of the sign test; Holm's correction (1979) holds the chance of any false difference among all
tests of a call below the level: the i-th smallest of m is multiplied by m - i + 1, and never falls below one before it.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, Unpack

import numpy as np
from scipy.special import stdtr

from evenhand.checks import read_different, read_seeds
from evenhand.display import FrameLibrary, Shown, as_frame, counted, from_report, progress_or_none, with_progress_bar
from evenhand.errors import EvenhandError, InvalidInputError
from evenhand.evaluation.evaluate import Evaluation, Method
from evenhand.model import CoupledMDP, Policy, StatefulPolicy, Welfare, read_welfare
from evenhand.model.simulator import Problem, check_problem
from evenhand.parallel import Pool
from evenhand.planning.compare import best_bound, evaluate_one, none_applies
from evenhand.planning.policy_registry import Chosen, is_file, make_policy
from evenhand.planning.solution import Solution, check_bound
from evenhand.planning.solve import METHODS, solve
from evenhand.planning.study_files import StudyFolder, digest
from evenhand.planning.task import FAILURES, Effort, SolveMethod, current_effort, limited_effort
from evenhand.problems import build
from evenhand.typing import Floats, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ProblemChoice: TypeAlias = str | tuple[str, Mapping[str, object]] | Problem | Callable[[int], Problem]
"""A built-in problem by name, or name and parameters; a problem; or a function of the size."""

PolicyChoice: TypeAlias = "Chosen | SolveMethod | Callable[[Problem], Any]"
"""A policy by name, file or object; `solve` or a method of it; or a function of the problem."""

Quantity: TypeAlias = Literal["share", "gap", "welfare"]
"""Quantity of a figure or table: share of the upper bound, gap to it, or welfare."""


# -- the result ------------------------------------------------------------------------------------------------------


class StudyRow(NamedTuple):
    """One policy on one problem of one size."""

    problem: str
    """Name of the problem."""

    size: int
    """Size of the problem: its number of arms, unless the problem is a function of something else."""

    policy: str
    """Name of the policy."""

    runs: tuple[dict[str, Any], ...]
    """Figures per seed, as of `Evaluation.to_dict`; a single one if they are exact."""

    upper_bound: float | None
    """No policy has more welfare than this; None if no bound is known."""

    @property
    def exact(self) -> bool:
        """True if the figures are exact."""
        return bool(self.runs[0]["exact"])

    def mean_of(self, figure: str) -> float:
        """Mean of a figure over the seeds."""
        return float(np.mean([run[figure] for run in self.runs]))

    @property
    def welfare(self) -> float:
        """Mean welfare over the seeds."""
        return self.mean_of("welfare")

    @property
    def welfare_stderr(self) -> float:
        """Its standard error, from those within the seeds; 0 when exact."""
        return float(np.sqrt(np.sum(np.square([run["welfare_stderr"] for run in self.runs]))) / len(self.runs))

    @property
    def share_of_bound(self) -> float:
        """Welfare as a share of the upper bound; NaN without a positive bound."""
        return self.welfare / self.upper_bound if self.upper_bound is not None and self.upper_bound > 0 else math.nan

    @property
    def gap(self) -> float:
        """Relative gap `(upper bound - welfare) / |upper bound|`, also for costs; NaN for a bound of 0."""
        return math.nan if not self.upper_bound else (self.upper_bound - self.welfare) / abs(self.upper_bound)

    @property
    def gap_stderr(self) -> float:
        """Standard error of the gap, and of the share."""
        return self.welfare_stderr / abs(self.upper_bound) if self.upper_bound else math.nan

    def by_seed(self, seeds: Sequence[int]) -> Floats:
        """(seed,) welfare."""
        return np.broadcast_to([run["welfare"] for run in self.runs], len(seeds))


class PairedTest(NamedTuple):
    """Difference of two policies on one problem."""

    problem: str
    """Name of the problem."""

    size: int
    """Size of the problem."""

    first: str
    """Name of one policy."""

    second: str
    """Name of the other."""

    difference: float
    """Mean over the seeds of the welfare of the first less that of the second."""

    stderr: float
    """Standard error of the mean difference; 0 if both are exact."""

    p: float
    """p-value of this test alone: two-sided; 0 for a difference of exact values."""

    p_holm: float
    """p-value corrected for all tests of the call."""


@dataclass(frozen=True)
class PairedTests(Shown):
    """Paired tests of a study, corrected together."""

    test: str
    """`t` or `sign`."""

    num_seeds: int
    """Number of seeds."""

    rows: tuple[PairedTest, ...]
    """One per problem, size and pair of policies."""

    def __repr__(self) -> str:
        few = sum(row.p_holm < 0.05 for row in self.rows)
        return f"PairedTests({counted(len(self.rows), f'{self.test} test')}, {few} significant at 5 % after Holm)"

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return one row per test.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        return as_frame({name: [getattr(row, name) for row in self.rows] for name in PairedTest._fields}, library)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the JSON form: one object per test."""
        return [row._asdict() for row in self.rows]


@dataclass(frozen=True)
class Study(Shown):
    """Policies on several problems and sizes."""

    welfare: str
    """Name of the welfare."""

    seeds: tuple[int, ...]
    """Seeds of the simulations."""

    rows: tuple[StudyRow, ...]
    """One per problem, size and policy that applies, in this order."""

    left_out: dict[str, str]
    """Policies and bounds that are missing, with the reason."""

    def __repr__(self) -> str:
        names = [dict.fromkeys(row[column] for row in self.rows) for column in range(3)]
        problems, sizes, policies = (len(some) for some in names)
        parts = counted(problems, "problem"), counted(sizes, "size"), counted(policies, "policy", "policies")
        return f"Study({', '.join(parts)}, {counted(len(self.seeds), 'seed')}, by {self.welfare})"

    def to_frame(self, library: FrameLibrary | None = None, by_seed: bool = False) -> Any:
        """Return one row per problem, size and policy: welfare, its error, the bound, and the share of it.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
            by_seed: whether to return one row per seed instead.
        """
        records = []
        for row in self.rows:
            bound = math.nan if row.upper_bound is None else row.upper_bound
            known = {"problem": row.problem, "size": row.size, "policy": row.policy}
            singles = [row._replace(runs=(run,)) for run in row.runs * (len(self.seeds) if row.exact else 1)]
            for place, one in enumerate(singles if by_seed else [row]):
                record: dict[str, Any] = known | ({"seed": self.seeds[place]} if by_seed else {})
                record |= {"welfare": one.welfare, "welfare_stderr": one.welfare_stderr}
                record |= {name: one.mean_of(name) for name in ("mean", "worst", "gini_coefficient")}
                record |= {"upper_bound": bound, "share_of_bound": one.share_of_bound, "gap": one.gap}
                record |= {"exact": one.exact}
                records.append(record | {name: one.runs[0][name] for name in ("episodes", "horizon")})
        return as_frame({name: [record[name] for record in records] for name in records[0]}, library)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, with the figures of every seed."""
        rows = [row._asdict() | {"welfare": row.welfare, "welfare_stderr": row.welfare_stderr} for row in self.rows]
        return {"welfare": self.welfare, "seeds": list(self.seeds), "rows": rows, "left_out": self.left_out}

    def tests(self, test: Literal["t", "sign"] = "t", against: str | None = None) -> PairedTests:
        """Test the differences between policies, paired by seed, with Holm's correction over all of them.

        Args:
            test: `t` (Student's t test of the mean difference) or `sign` (sign test, without an assumption on the
                distribution; it needs at least six seeds to find anything at 5 %).
            against: policy that every other one is compared with; by default all pairs.
        """
        if test not in ("t", "sign"):
            raise InvalidInputError(f"test: expected 't' or 'sign', got {test!r}")
        if against not in (None, *(row.policy for row in self.rows)):
            raise InvalidInputError(f"against: no policy of this study is called {against!r}")
        found = []
        for _, several in itertools.groupby(self.rows, lambda row: row[:2]):
            for one, other in itertools.combinations(several, 2):
                first, second = (other, one) if one.policy == against else (one, other)
                if against in (None, second.policy):
                    found.append(self._test(first, second, test))
        corrected = holm([row.p for row in found])
        rows = tuple(row._replace(p_holm=p) for row, p in zip(found, corrected, strict=True))
        return PairedTests(test, len(self.seeds), rows)

    def _test(self, first: StudyRow, second: StudyRow, test: str) -> PairedTest:
        """One test, not yet corrected."""
        values = [row.by_seed(self.seeds) for row in (first, second)]
        gains, known = values[0] - values[1], first.exact and second.exact
        gains = np.where(np.abs(gains) <= 1e-9 * np.abs(values).max(), 0.0, gains)  # rounding
        number = len(self.seeds)
        if number < 2 and not known:
            raise InvalidInputError("tests: simulated policies are compared by seed; run the study with several seeds")
        stderr = 0.0 if known else float(gains.std(ddof=1) / np.sqrt(number))
        if not gains.any() or known:
            p = 1.0 if not gains.any() else 0.0
        elif test == "t":
            p = float(2 * stdtr(number - 1, -abs(gains.mean()) / stderr)) if stderr else 0.0
        else:
            fewer, signs = min((gains > 0).sum(), (gains < 0).sum()), (gains != 0).sum()
            p = min(1.0, 2 * sum(math.comb(int(signs), k) for k in range(fewer + 1)) / 2.0 ** int(signs))
        return PairedTest(*first[:2], first.policy, second.policy, float(gains.mean()), stderr, p, p)

    def plot(self, quantity: Quantity = "share") -> "Figure":
        """Return curves against the size, one per policy and one panel per problem, with 95 % error bars.

        Args:
            quantity: `share` (of the upper bound), `gap` (to the bound, also for costs) or `welfare`, with the bound
                as a line.
        """
        figure: Figure = from_report("studies", "study_figure")(self, quantity)
        return figure

    def to_latex(self, quantity: Quantity = "welfare") -> str:
        """Return a LaTeX table for the package booktabs: one row per problem and size, the best policy in bold.

        Args:
            quantity: `welfare`, or in percent of the upper bound `share` or `gap`, with standard errors.
        """
        text: str = from_report("studies", "study_latex")(self, quantity)
        return text


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method, in the given order."""
    order, least, found = sorted(range(len(p)), key=p.__getitem__), 0.0, [0.0] * len(p)
    for place, test in enumerate(order):
        found[test] = least = max(least, min(1.0, (len(p) - place) * p[test]))
    return found


# -- running a study -------------------------------------------------------------------------------------------------


class StudyOptions(TypedDict, total=False):
    """Options that `study` passes to `evaluate`."""

    num_episodes: int
    """Episodes per seed if a policy must be simulated; 1000 by default."""

    horizon: int | None
    """Steps per episode; by default the criterion's own."""

    method: Method
    """`auto`, `exact` or `monte-carlo`."""


class _Cell(NamedTuple):
    """A cell: the bound of a problem if it has no policy."""

    problem: Problem
    welfare: Welfare
    policy: "PolicyChoice | None"
    seeds: tuple[int, ...]
    options: StudyOptions
    effort: Effort
    folder: StudyFolder | None
    key: str


@with_progress_bar
def study(
    problems: "ProblemChoice | Sequence[ProblemChoice] | Mapping[str, ProblemChoice]",
    policies: "PolicyChoice | Sequence[PolicyChoice] | Mapping[str, PolicyChoice]",
    sizes: Sequence[int] | None = None,
    welfare: str | Welfare | None = None,
    seeds: int | Sequence[int] = 5,
    path: str | PathLike[str] | None = None,
    backend: str | Pool | None = None,
    progress: Progress | bool | None = None,
    **options: Unpack[StudyOptions],
) -> Study:
    """Evaluate policies on several problems and sizes with several seeds, beside the upper bound of each problem.

    Args:
        problems: names of built-in problems, pairs of a name and parameters, problems, simulators, and functions of the
            size; one, a list, or a mapping from names of one's own.
        policies: names and files of policies, policies, `solve` or a method of it (such as `fluid`, or a `SolveMethod`
            with settings), and functions of the problem that return a policy, such as its class; one, a list, or a
            mapping.
        sizes: sizes to play: the number of arms of built-in problems, or the argument of a function. By default every
            problem as it is.
        welfare: the welfare, as text or object; by default each problem's own.
        seeds: number of seeds, from 0 on, or the seeds themselves. Every policy gets the same random numbers. Exact
            values have none, and are computed once.
        path: folder of the finished cells, made if it does not exist. The same call continues an interrupted study; a
            changed argument computes the cells that depend on it. On a cluster all machines must see the folder.
        backend: where cells are computed: `threads:2`, `processes:2`, `ray`, `ray://host:port`, or a pool; by default
            this process, one after the other. Results do not depend on it.
        progress: True shows a bar; a function is called with the current task and the share done.
        options: `num_episodes` (per seed), `horizon` and `method` of `evaluate`.

    Example:
        >>> import evenhand as eh
        >>> found = eh.study("machine-replacement", ["whittle", "never-act"], sizes=[2, 4])
        >>> found
        Study(1 problem, 2 sizes, 2 policies, 5 seeds, by gini:2)
    """
    if unknown := set(options) - set(StudyOptions.__annotations__):
        raise InvalidInputError(f"study: unknown option {min(unknown)!r}")
    numbers, chosen = tuple(read_seeds(seeds, 0)), _named(policies, "policies")
    folder = None if path is None else StudyFolder.open(Path(path))
    places, cells, names, welfares = [], list[_Cell](), [], set()
    for name, size, problem in _sized(_named(problems, "problems"), sizes):
        welfares.add((weighed_by := read_welfare(problem, welfare)).name)
        for label, policy in {"": None, **chosen}.items():
            own = None if policy is None else (_content(policy), options)
            key = "" if folder is None else digest(problem, weighed_by, current_effort(), own)
            cells.append(_Cell(problem, weighed_by, policy, numbers, options, current_effort(), folder, key))
            names.append(f"{name}, size {size}, {label or 'upper bound'}")
            places.append((name, size, label))
    with Pool(backend) as pool:
        pool.check_picklable({name: cell[:3] for name, cell in zip(names, cells, strict=True)})
        results = pool.map(_compute, cells, names, progress_or_none(progress))
    refused = {name: found for name, found in zip(names, results, strict=True) if isinstance(found, EvenhandError)}
    triples = zip(places, cells, results, strict=True)
    done = [(place, cell, found) for place, cell, found in triples if isinstance(found, dict)]
    rows = _rows(done)
    if not rows:
        raise none_applies(refused)
    return Study(", ".join(sorted(welfares)), numbers, rows, {name: str(error) for name, error in refused.items()})


def _named(given: Any, argument: str) -> dict[str, Any]:
    """Problems or policies by name."""
    if isinstance(given, Mapping):
        if strange := [name for name in given if not isinstance(name, str) or not name]:
            raise InvalidInputError(f"{argument}: expected texts as names, got {strange[0]!r}")
        found = dict(given)
    else:
        listed = given if isinstance(given, list) or _is_several(given) else [given]
        labels = [_label(one) for one in listed]
        if twice := [label for place, label in enumerate(labels) if label in labels[:place]]:
            raise InvalidInputError(f"{argument}: {twice[0]!r} twice; give a mapping from names of your own")
        found = dict(zip(labels, listed, strict=True))
    if not found or any(one is None for one in found.values()):
        raise InvalidInputError(f"{argument}: expected at least one, and none that is None")
    return found


def _is_several(given: Any) -> bool:
    """Return whether a tuple is one of problems or policies, and not a name with its parameters."""
    return isinstance(given, tuple) and not (len(given) == 2 and isinstance(given[1], Mapping))


def _label(one: Any) -> str:
    """Name of a problem or policy that was given without one."""
    if isinstance(one, tuple) and not _is_several(one):
        own = ", ".join(f"{name}={value}" for name, value in one[1].items())
        return f"{one[0]} ({own})" if own else str(one[0])
    if isinstance(one, SolveMethod):
        return f"solve ({one.name})"
    return str(one) if isinstance(one, (str, PathLike)) else getattr(one, "__name__", type(one).__name__)


def _content(policy: Any) -> Any:
    """Return what a policy depends on: of a file its bytes."""
    file = isinstance(policy, PathLike) or (isinstance(policy, str) and is_file(policy))
    return Path(policy).read_bytes() if file and Path(policy).is_file() else policy


def _sized(problems: Mapping[str, Any], sizes: Sequence[int] | None) -> "list[tuple[str, int, Problem]]":
    """Names, sizes and problems."""
    found = []
    for name, given in problems.items():
        label, parameters = given if isinstance(given, tuple) else (given, {})
        for size in [None] if sizes is None else read_different(sizes, "sizes", least=1):
            if isinstance(label, str):
                made: Any = build(label, {**parameters, **({} if size is None else {"num_arms": size})})
            elif size is None or hasattr(given, "num_arms"):
                made = given
                if size is not None:
                    raise InvalidInputError(f"problems: {name} has one size; give a function of the size instead")
            else:
                made = given(size) if callable(given) else given
            if callable(made):
                raise InvalidInputError(
                    f"problems: {name} is a function of the size; give sizes, such as sizes=[10, 20]"
                )
            check_problem(made, f"study(...), problem {name}")
            found.append((name, made.num_arms if size is None else size, made))
    return found


def _compute(cell: _Cell, tell: Progress | None = None) -> dict[str, Any] | EvenhandError:
    """The figures of a cell, read or computed; or the error that prevents them."""
    known: dict[str, Any] = {} if cell.folder is None else cell.folder.read(cell.key)
    try:
        with limited_effort(**vars(cell.effort)):
            found = _bounded(cell, known, tell) if cell.policy is None else _played(cell, known, tell)
    except FAILURES as error:
        return error
    if cell.folder is not None and found != known:
        cell.folder.write(cell.key, found)
    return found


def _bounded(cell: _Cell, known: dict[str, Any], tell: Progress | None) -> dict[str, Any]:
    """The upper bound of a problem."""
    if known:
        return known
    reasons: dict[str, str] = {}
    value = best_bound(cell.problem, cell.welfare, reasons, tell)[0]
    return {"upper_bound": value, "reason": next(iter(reasons.values()), "")}


def _played(cell: _Cell, known: dict[str, Any], tell: Progress | None) -> dict[str, Any]:
    """The figures of a policy by seed; those that are known are not computed again."""
    runs, bound = dict(known.get("runs", {})), known.get("upper_bound")
    missing = [] if "exact" in runs else [seed for seed in cell.seeds if str(seed) not in runs]
    if missing:
        policy, bound = _make(cell, tell)
    for turn, seed in enumerate(missing):
        part = None if tell is None else partial(_tell_part, tell, turn, len(missing))
        found = evaluate_one((cell.problem, policy, {"welfare": cell.welfare, "rng": seed, **cell.options}), part)
        if not isinstance(found, Evaluation):
            raise found
        least = found.welfare
        if found.truncation_bound:  # what lies beyond the horizon may be lost
            least = float(found.objective(found.unit_values - found.truncation_bound))
        runs["exact" if found.exact else str(seed)] = {**found.figures(), "least_welfare": least}
        if found.exact:
            break
    return {"runs": runs, "upper_bound": bound}


def _tell_part(tell: Progress, turn: int, number: int, what: str, share: float) -> None:
    tell(what, (turn + share) / number)


def _make(cell: _Cell, tell: Progress | None) -> "tuple[Policy | StatefulPolicy, float | None]":
    """The policy of a cell, and the upper bound that comes with it if it is solved."""
    given: Any = cell.policy
    if isinstance(given, str) and not is_file(given) and given in ("solve", *METHODS):
        # `whittle` is a policy and a method, which plays that policy.
        given = given if given == "whittle" else SolveMethod("auto" if given == "solve" else given)
    if isinstance(given, SolveMethod):
        given = solve(cell.problem, cell.welfare, given, progress=tell)  # type: ignore[arg-type]
    elif isinstance(given, type) or (callable(given) and not isinstance(given, (Policy, StatefulPolicy))):
        given = given(cell.problem)
    bound = given.upper_bound if isinstance(given, Solution) else None
    return make_policy(cell.problem, given, cell.welfare), bound


def _rows(done: Sequence[tuple[tuple[str, int, str], _Cell, dict[str, Any]]]) -> tuple[StudyRow, ...]:
    """Rows with the best bound of each problem, which no policy exceeds by more than chance."""
    bounds: dict[tuple[str, int], float] = {}
    for (name, size, _), _, found in done:
        if found["upper_bound"] is not None:
            bounds[name, size] = min(found["upper_bound"], bounds.get((name, size), math.inf))
    rows = []
    for (name, size, label), cell, found in done:
        if cell.policy is None:
            continue
        runs, bound = found["runs"], bounds.get((name, size))
        own = (runs["exact"],) if "exact" in runs else tuple(runs[str(seed)] for seed in cell.seeds)
        for run in own:
            if bound is not None and isinstance(cell.problem, CoupledMDP):
                check_bound(cell.problem, run["least_welfare"], run["welfare_stderr"], run["episodes"], bound)
        rows.append(StudyRow(name, size, label, own, bound))
    return tuple(rows)
