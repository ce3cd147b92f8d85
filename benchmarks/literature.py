"""Policies on the instances of the literature, beside the published results: docs/literature.md.

    python -m benchmarks.literature                    measure what is missing, then write tables and pictures
    python -m benchmarks.literature --minutes 7        stop after so many minutes; the next call continues
    python -m benchmarks.literature --only solve,id    these policies only; --spend all, --sizes 100,1000 likewise
    python -m benchmarks.literature --quick            a few small cells, printed and not written
    python -m benchmarks.literature --draw             write tables and pictures of what is measured

Every cell (instance, rule of the budget, number of arms, policy) is a line of `results.jsonl`, which is appended to.
`solve` is the default plan by the method fluid; its value is of episodes that no choice has seen. Named policies are
played for RUNS runs of STEPS steps, the first quarter of which does not count.
"""

import argparse
import json
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

import evenhand as eh

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "literature.md"
PLACE = PAGE.parent / "measured" / "literature"
RUNS, STEPS = 10, 2000
SIZES = (10, 30, 100, 300, 500, 1000)
NAMED = ("lp-index", "id", "ftva", "set-expansion", "two-set", "lp-update", "whittle")
INSTANCES: dict[str, Callable[[int], eh.CoupledMDP]] = {
    "three-states-1": lambda n: eh.problems.three_states(n, 1),
    "three-states-2": lambda n: eh.problems.three_states(n, 2),
    "three-states-3": lambda n: eh.problems.three_states(n, 3),
    "eight-states-plain": lambda n: eh.problems.eight_states(n, "plain"),
    "eight-states": lambda n: eh.problems.eight_states(n),
    "non-sa": lambda n: eh.problems.non_sa(n),
    "non-indexable": lambda n: eh.problems.non_indexable(n),
}
PUBLISHED = ("three-states-2", "eight-states", "non-sa")
"""Instances with published results under the average; 500 arms are played only there."""
GROUPS = (("counterexample", 10), ("counterexample", 20), ("maternal", 20), ("maternal", 40))

Cell = dict[str, Any]


# -- cells -----------------------------------------------------------------------------------------------------------


def cells() -> Iterator[Cell]:
    """Everything that is measured, the quickest first."""
    for instance, budget in GROUPS:
        yield {"instance": f"{instance} {budget}", "policy": "solve"}
    yield from ({"instance": "bayesian-bandit", "arms": n, "policy": "solve"} for n in (150, 600, 4800))
    for policy in (*NAMED, "solve", "optimum"):
        for size in SIZES if policy != "optimum" else SIZES[:4]:
            for instance in INSTANCES:
                for spend in ("all", "at most") if size != 500 else ("all",) if instance in PUBLISHED else ():
                    if policy != "optimum" or size == SIZES[0] or instance.startswith(("three", "non-ind")):
                        yield {"instance": instance, "spend": spend, "arms": size, "policy": policy}
    for instance in PUBLISHED:
        for policy in ("id as published", "id"):
            yield {"instance": instance, "spend": "all", "arms": 100, "policy": policy, "equality": True}


def problem_of(cell: Cell) -> eh.CoupledMDP:
    """The instance of a cell."""
    name = cell["instance"]
    if "arms" not in cell:
        kind, budget = name.split()
        return eh.problems.equitable(kind, int(budget))
    if name == "bayesian-bandit":
        return eh.problems.bayesian_bandit(cell["arms"])
    problem = INSTANCES[name](cell["arms"])
    return problem.with_spend("all") if cell["spend"] == "all" else problem


def measured(cell: Cell) -> Cell:
    """The cell with its value, error, bound and seconds; with the reason if the policy does not apply."""
    problem, name, start = problem_of(cell), cell["policy"], time.perf_counter()
    welfare = "maximin" if "arms" not in cell else "utilitarian"
    try:
        if name in ("solve", "optimum"):
            found = eh.solve(problem, welfare, "fluid" if name == "solve" else "counts")
            bound = found.upper_bound if name == "solve" else eh.bound(problem, welfare).upper_bound
            figures = {"value": found.welfare, "error": found.welfare_stderr or 0.0, "bound": bound}
            figures["parts"] = [part.name for part in found.parts]
        else:
            policy = eh.make_policy(problem, name.split()[0], welfare)
            policy = policy.with_redraw(None) if "published" in name else policy
            if "equality" in cell:
                figures = inequality(eh.simulate(problem, policy, 20, STEPS, 0).returns)
            else:
                found = eh.evaluate(problem, policy, welfare, RUNS, STEPS, 0, "monte-carlo")
                bound = eh.bound(problem, welfare).upper_bound
                figures = {"value": found.welfare, "error": found.welfare_stderr, "bound": bound}
    except eh.errors.EvenhandError as error:
        figures = {"reason": str(error)}
    return cell | figures | {"seconds": round(time.perf_counter() - start, 1)}


def inequality(returns: np.ndarray) -> Cell:
    """First and last tenth of the arms by number, and the mean Gini coefficient of realised values."""
    number = returns.shape[1]
    ordered = np.sort(returns, axis=1)
    ranks = 2 * np.arange(1, number + 1) - number - 1
    gini = (ordered @ ranks / number / ordered.sum(axis=1)).mean()
    by_arm, tenth = returns.mean(axis=0), number // 10
    return {"first": by_arm[:tenth].mean(), "last": by_arm[-tenth:].mean(), "gini": float(gini)}


def key_of(row: Cell) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("instance", "spend", "arms", "policy", "equality"))


def read() -> dict[tuple[Any, ...], Cell]:
    """What was measured so far, by cell."""
    path = PLACE / "results.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {key_of(row): row for row in map(json.loads, lines)}


def measure(wanted: list[Cell], minutes: float, keep: bool) -> None:
    """Measure cells until the time is over."""
    begin, known = time.perf_counter(), read() if keep else {}
    for cell in wanted:
        if key_of(cell) in known or time.perf_counter() - begin > 60 * minutes:
            continue
        row = measured(cell)
        print(json.dumps(row), flush=True)
        if keep:
            PLACE.mkdir(parents=True, exist_ok=True)
            with (PLACE / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


# -- tables and pictures ---------------------------------------------------------------------------------------------


def share(row: Cell | None) -> str:
    """A cell of a table: percent of the bound, with its standard error."""
    if row is None or "value" not in row:
        return "–" if row is None else "refused"
    found, error = 100 * row["value"] / row["bound"], 100 * row["error"] / row["bound"]
    return f"{found:.2f} ± {error:.2f}" if error else f"{found:.2f}"


def averages(rows: dict[tuple[Any, ...], Cell], published: dict[str, Any], spend: str) -> str:
    """Table of the instances under a rule of the budget."""
    lines = ["| instance | N | `solve` | best named policy | best published | optimum | bound per arm |"]
    lines.append("|---|---|---|---|---|---|---|")
    for instance in INSTANCES:
        for size in SIZES:
            own = {name: rows.get((instance, spend, size, name, None)) for name in (*NAMED, "solve", "optimum")}
            named = {name: row for name, row in own.items() if name in NAMED and row and "value" in row}
            is_played = size != 500 or (instance in PUBLISHED and spend == "all")
            if not is_played or (own["solve"] is None and not named):
                continue
            best = max(named, key=lambda name: named[name]["value"], default="")
            best_named = f"`{best}` {share(named[best])}" if named else "–"
            theirs = "–"
            if spend == "all" and instance in published and size in published["sizes"]:
                place = published["sizes"].index(size)
                name = max(published[instance], key=lambda policy: published[instance][policy][place])
                theirs = f"{name} {published[instance][name][place]:.2f}"
            bound = max(row["bound"] for row in own.values() if row and "bound" in row)
            figures = share(own["solve"]), best_named, theirs, share(own["optimum"]), f"{bound:.5f}"
            lines.append(f"| `{instance}` | {size} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def groups(rows: dict[tuple[Any, ...], Cell], published: dict[str, dict[str, float]]) -> str:
    """Table of the worst groups."""
    lines = ["| instance, budget | `solve` | bound | below | their maximin | Nash | Whittle |"]
    lines.append("|---|---|---|---|---|---|---|")
    for instance, budget in GROUPS:
        row, name = rows.get((f"{instance} {budget}", None, None, "solve", None)), f"{instance} {budget}"
        if row is not None:
            theirs = [
                f"{published.get(name, {}).get(peer, float('nan')):.3f}" for peer in ("maximin", "nash", "whittle")
            ]
            below = f"{100 * (1 - row['value'] / row['bound']):.2f} ± {100 * row['error'] / row['bound']:.2f} %"
            own = f"{row['value']:.4f} ± {row['error']:.4f} | {row['bound']:.4f} | {below}"
            lines.append(f"| {instance}, {budget} | {own} | " + " | ".join(theirs).replace("nan", "–") + " |")
    return "\n".join(lines)


def horizon(rows: dict[tuple[Any, ...], Cell], published: dict[str, list[float]]) -> str:
    """Table of the Bayesian bandit."""
    lines = ["| N | `solve` | bound | published fluid priority |", "|---|---|---|---|"]
    for size, theirs in zip(published["sizes"], published["values"], strict=True):
        row = rows.get(("bayesian-bandit", None, size, "solve", None))
        own = "– | –" if row is None else f"{row['value']:.5f} ± {row['error']:.5f} | {row['bound']:.5f}"
        lines.append(f"| {size} | {own} | {theirs:.5f} |")
    return "\n".join(lines)


def equality(rows: dict[tuple[Any, ...], Cell]) -> str:
    """Table of the inequality among identical arms."""
    lines = [
        "| instance | policy | first ten arms | last ten arms | Gini of realised values |",
        "|---|---|---|---|---|",
    ]
    for key, row in rows.items():
        if key[-1] and "gini" in row:
            figures = f"{row['first']:.4f} | {row['last']:.4f} | {row['gini']:.3f}"
            lines.append(f"| `{key[0]}` | {key[3]} | {figures} |")
    return "\n".join(lines)


def draw(rows: dict[tuple[Any, ...], Cell], published: dict[str, Any]) -> None:
    """A picture per published instance: percent of the bound against N, ours with error bars, theirs dashed."""
    for instance in INSTANCES:
        figure = Figure(figsize=(6.5, 4), layout="constrained")
        axes = figure.add_subplot()
        for number, name in enumerate((*NAMED, "solve", "optimum")):
            found = [rows.get((instance, "all", size, name, None)) for size in SIZES]
            points = [
                (size, 100 * row["value"] / row["bound"], 196 * row["error"] / row["bound"])
                for size, row in zip(SIZES, found, strict=True)
                if row is not None and "value" in row and row["value"] > 0.6 * row["bound"]
            ]
            if points:
                x, y, error = zip(*points, strict=True)
                style: dict[str, Any] = {"lw": 2.5, "color": "black"} if name == "solve" else {"color": f"C{number}"}
                axes.errorbar(x, y, error, marker="o", ms=3, capsize=2, label=name, **style)
        for number, (name, values) in enumerate(published.get(instance, {}).items()):
            if max(values) > 60:
                color = f"C{NAMED.index(name)}" if name in NAMED else f"C{len(NAMED) + number}"
                axes.plot(published["sizes"], values, "--", color=color, lw=1, label=f"{name}, published")
        axes.set(xscale="log", xlabel="number of arms N", ylabel="percent of the bound", title=f"{instance}, all spent")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small", ncols=2)
        FigureCanvasSVG(figure).print_svg(PLACE / f"{instance}.svg", metadata={"Date": None})


def write() -> None:
    """Write the tables into the page, between its marks, and the pictures beside it."""
    rows, published = read(), tomllib.loads((HERE / "literature.toml").read_text("utf-8"))
    tables = {
        "all": averages(rows, published["average"], "all"),
        "at most": averages(rows, published["average"], "at most"),
        "groups": groups(rows, published["groups"]),
        "horizon": horizon(rows, published["horizon"]),
        "equality": equality(rows),
    }
    page = PAGE.read_text("utf-8")
    for name, table in tables.items():
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        page = f"{before}{mark}\n{table}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    PAGE.write_text(page, "utf-8")
    draw(rows, published["average"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--minutes", type=float, default=np.inf)
    for name in ("only", "instances", "spend", "sizes"):
        parser.add_argument(f"--{name}", default="")
    given = parser.parse_args()
    chosen = {"policy": given.only, "instance": given.instances, "spend": given.spend, "arms": given.sizes}
    wanted = [
        cell
        for cell in cells()
        if all(not texts or str(cell.get(name)) in texts.split(",") for name, texts in chosen.items())
    ]
    if given.quick:
        wanted = [
            cell for cell in wanted if cell.get("arms", 0) <= 30 and cell["policy"] in ("id", "lp-index", "solve")
        ]
        measure([cell for cell in wanted if cell["instance"] in ("three-states-2", "counterexample 20")], 10, False)
        return
    if not given.draw:
        measure(wanted, given.minutes, True)
    write()


if __name__ == "__main__":
    main()
