"""Draws the pictures of the documentation; every number in them is computed here and now.

python docs/make_images.py writes docs/images. A test draws them again and compares the words in them.
"""

from pathlib import Path

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
        return [draw_comparison(folder / "comparison.svg")]


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


if __name__ == "__main__":
    draw_all(Path(__file__).resolve().parent / "images")
