"""Draws the pictures of the documentation; every number in them is computed here and now.

python docs/make_images.py writes docs/images. A test draws them again and compares the words in them.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh

IDEAS = {
    "utilitarian": "utilitarian\nthe best mean",
    "gini:1.2": "gini:1.2\nthe worst-off count more",
    "maximin": "maximin\nonly the worst-off count",
}
COLOURS = ("#0072B2", "#B35900", "#00795A")
INK, GREY = "#1c1c1c", "#6b6b6b"


def draw_all(folder: Path) -> list[Path]:
    """Draw every picture into a folder."""
    import matplotlib as mpl

    mpl.use("svg")
    settings = {
        "svg.hashsalt": "evenhand",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 11,
        "text.color": INK,
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": GREY,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(settings):
        return [
            draw_comparison(folder / "comparison.svg"),
            draw_packages(folder / "packages.svg"),
            draw_study(folder / "study.svg"),
        ]


def draw_comparison(file: Path) -> Path:
    """Values of the groups of a small problem under three ideas of fairness."""
    from matplotlib import pyplot as plt

    problem = eh.problems.health_outreach(num_arms=6, num_states=2, num_groups=3, budget=1)
    solutions = [eh.solve(problem, welfare=idea) for idea in IDEAS]
    values = np.array([solution.unit_values for solution in solutions])
    means = [solution.values.mean() for solution in solutions]
    figure, axes = plt.subplots(figsize=(8.6, 4.2), layout="constrained")
    width = 0.24
    for group, colour in enumerate(COLOURS):
        place = np.arange(len(IDEAS)) + (group - 1) * (width + 0.02)
        bars = axes.bar(place, values[:, group], width, color=colour, label=f"group {group + 1}")
        axes.bar_label(bars, fmt="%.2f", padding=-15, color="white", fontsize=10, fontweight="bold")
    for place, (mean, solution) in enumerate(zip(means, solutions, strict=True)):
        axes.plot([place - 0.42, place + 0.42], [mean, mean], color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        price = (means[0] - mean) / abs(means[0])
        axes.annotate(
            f"worst-off {solution.values.min():.2f}\nmean {mean:.2f}, {100 * price:.1f} % given up",
            (place, 15.6),
            ha="center",
            va="top",
            fontsize=10,
        )
    axes.set_xticks(range(len(IDEAS)), IDEAS.values())
    axes.set_ylim(0, 15.8)
    axes.set_yticks(range(0, 13, 2))
    axes.set_ylabel("value of a person: discounted\nsteps with the programme")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 0.62), frameon=False)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
    return file


PACKAGES = {  # name: (column, row, content)
    "files": (0, 2, "model files"),
    "problems": (0, 1, "problems\nnamed instances"),
    "records": (0, 0, "records"),
    "model": (1, 1.5, "model\nproblem, objective"),
    "fitting": (1, 0, "fitting\nlog, counts, posterior"),
    "solvers": (2, 2, "solvers\nexact, Whittle, fluid"),
    "learning": (2, 1, "learning\nfrom a simulator"),
    "uncertainty": (2, 0, "uncertainty\nscenarios"),
    "planning": (3, 2, "planning\nsolve, compare, Plan"),
    "policies": (3, 1, "policies"),
    "evaluation": (3, 0, "evaluation\nsimulated, exact"),
    "report": (4, 2, "report, cli\none Summary"),
    "programme": (4, 1, "programme\nstore, API, page"),
}
FLOWS = """files model, problems model, records fitting, fitting model, fitting uncertainty, model solvers,
    model learning, solvers planning, learning policies, planning policies, policies evaluation, uncertainty evaluation,
    planning report, planning programme"""


def draw_packages(file: Path) -> Path:
    """Flow of data between the packages."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9.6, 3.6), layout="constrained")
    axes.set(xlim=(-0.5, 4.5), ylim=(-0.4, 2.4))
    axes.axis("off")
    boxes = {}
    for name, (column, row, content) in PACKAGES.items():
        colour = GREY if name in ("files", "records") else COLOURS[0]
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": colour, "linewidth": 1.2}
        boxes[name] = axes.text(column, row, content, ha="center", va="center", fontsize=9.5, bbox=box)
    figure.canvas.draw()
    for flow in FLOWS.split(","):
        start, end = flow.split()
        arrow = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 2, "shrinkB": 2}
        patches = {"patchA": boxes[start].get_bbox_patch(), "patchB": boxes[end].get_bbox_patch()}
        axes.annotate("", PACKAGES[end][:2], PACKAGES[start][:2], arrowprops=arrow | patches)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
    return file


def draw_study(file: Path) -> Path:
    """Curves of the tutorial's study: its cells up to the figure are run."""
    page = (Path(__file__).resolve().parent / "tutorial-study.md").read_text(encoding="utf-8")
    cells = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(next(cell for cell in cells if "def clinic" in cell), names)
    study = next(cell for cell in cells if "eh.study(" in cell)
    exec(study.replace('path="study",', "").partition("frame =")[0], names)
    names["found"].plot("share").savefig(file, metadata={"Date": None})
    return file


if __name__ == "__main__":
    draw_all(Path(__file__).resolve().parent / "images")
