"""The page: one HTML file without scripts and without anything from elsewhere, for screens, phones and paper."""

from collections.abc import Sequence
from html import escape

import numpy as np

from evenhand._version import __version__
from evenhand.model.coupled import CoupledMDP
from evenhand.model.files import Location, write_atomically
from evenhand.model.objective import num_members
from evenhand.planning.compare import Comparison
from evenhand.report import figures, tables, words
from evenhand.typing import Progress

_CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1c1c1c; font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 61rem; margin: 0 auto; padding: 2rem 1.25rem 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.6rem 0 .7rem; padding-top: .9rem; border-top: 1px solid #d9d9d9; }
p, dl { margin: .6rem 0; max-width: 46rem; }
h1, p, dd, th[scope=row], figcaption { overflow-wrap: anywhere; }
.lead p { font-size: 1.1rem; }
.key { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1.4rem 0;
  max-width: none; }
.key div { border-left: 4px solid #0072B2; background: #f2f7fa; padding: .6rem .8rem; }
.key dt { margin: 0; color: #4a4a4a; font-size: .85rem; font-weight: 400; }
.key dd { margin: 0; font-size: 1.3rem; line-height: 1.35; font-weight: 650; font-variant-numeric: tabular-nums; }
.key small { display: block; color: #4a4a4a; font-size: .85rem; font-weight: 400; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid #0072B2; outline-offset: 2px; }
table { border-collapse: collapse; font-size: .92rem; line-height: 1.35;
  font-variant-numeric: tabular-nums lining-nums; }
caption { text-align: left; color: #4a4a4a; padding-bottom: .4rem; }
th, td { padding: .5rem .55rem; text-align: right; vertical-align: top; border-bottom: 1px solid #e3e3e3; }
td { white-space: nowrap; }
thead th { vertical-align: bottom; border-bottom: 2px solid #1c1c1c; font-weight: 600; font-size: .93em; }
th[scope=row], thead th:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
th[scope=row] { font-weight: 600; min-width: 13rem; max-width: 17rem; }
thead th.text, td.text { text-align: left; white-space: normal; min-width: 12rem; }
th small { display: block; font-weight: 400; color: #4a4a4a; font-size: .85em; }
abbr { font-weight: 400; color: #4a4a4a; font-size: .85em; text-decoration: none; }
tr.bound th, tr.bound td { background: #fdf3ec; color: #7a3300; font-weight: 600; }
tr.bound th small { color: #7a3300; }
.quiet { color: #4a4a4a; }
figure { margin: 1.4rem 0; max-width: 38rem; }
figure svg { display: block; width: 100%; height: auto; font-family: inherit; font-variant-numeric: tabular-nums; }
figcaption { color: #4a4a4a; font-size: .92rem; margin-top: .4rem; }
dt { font-weight: 600; margin-top: .7rem; }
dd { margin: 0; }
code { font: .92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: #f3f3f3; padding: .1em .3em;
  overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  main { padding: 1.25rem 1rem 2rem; }
  h1 { font-size: 1.5rem; }
  .lead p { font-size: 1.03rem; }
  .key { grid-template-columns: 1fr 1fr; }
  .key dd { font-size: 1.1rem; }
  th, td { padding: .45rem .5rem; }
  th[scope=row] { min-width: 7.6rem; max-width: 9rem; }
  th[scope=row] small { display: none; }
}
@page { margin: 16mm 14mm; }
@media print {
  html { font-size: 9.5pt; }
  main { max-width: none; padding: 0; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  figure, .scroll, .key, dl div { break-inside: avoid; }
  figure { max-width: 11cm; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; }
  th, td { padding: .25rem .35rem; }
  th[scope=row] { min-width: 0; }
  .key div, tr.bound th, tr.bound td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def write_comparison(
    comparison: Comparison,
    problem: CoupledMDP,
    path: Location,
    title: str | None = None,
    command: str = "",
    progress: Progress | None = None,
    seed: int | None = None,
) -> None:
    """Write the page of a comparison into a file, wholly or not at all.

    Args:
        comparison: what came out.
        problem: what it came out for.
        path: the HTML file; one that is there is replaced.
        title: the heading; one is made up when absent.
        command: what a person typed to get here, told at the end of the page.
        progress: called now and then with what is being done and the share that is done.
        seed: where the randomness started, if that is known.
    """
    page = comparison_page(comparison, problem, title, command, progress, seed)
    write_atomically(path, page.encode("utf-8", errors="replace"))
    if progress is not None:
        progress("report", 1.0)


def comparison_page(
    comparison: Comparison,
    problem: CoupledMDP,
    title: str | None = None,
    command: str = "",
    progress: Progress | None = None,
    seed: int | None = None,
) -> str:
    """The page of a comparison; arguments as of `write_comparison`."""
    heading = title or f"Comparison of {words.counted(len(comparison.rows), 'policy', 'policies')}"
    if progress is not None:
        progress("figures", 0.0)
    drawn = _figures(comparison, problem)
    if progress is not None:
        progress("report", 0.8)
    sections = [
        f'<header class="lead"><h1>{escape(heading)}</h1>{_lead(comparison, problem)}</header>',
        _key_figures(comparison, problem),
        _section("The policies side by side", _results(comparison, problem)),
        drawn,
        _section("The problem", _problem(problem)),
        _section("How to read this", _reading(comparison, problem)),
        _section("How this was made", _making(comparison, command, seed)),
    ]
    return _document(heading, "\n".join(part for part in sections if part))


def _document(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="generator" content="evenhand {__version__}">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _lead(comparison: Comparison, problem: CoupledMDP) -> str:
    return "".join(_paragraph(sentences) for sentences in words.summary(comparison, problem))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{content}\n</section>" if content else ""


def _paragraph(sentences: Sequence[str]) -> str:
    return f"<p>{escape(' '.join(sentences))}</p>"


def _definitions(entries: Sequence[tuple[str, str]]) -> str:
    """A list of terms and what is to be said of them, both escaped here."""
    items = [f"<div><dt>{escape(term)}</dt><dd>{escape(meaning)}</dd></div>" for term, meaning in entries]
    return f"<dl>{''.join(items)}</dl>"


# The parts


def _key_figures(comparison: Comparison, problem: CoupledMDP) -> str:
    if not comparison.rows:
        return ""
    best = comparison.rows[0]
    found, bound = best.evaluation, comparison.upper_bound
    sure = "exact" if found.exact else f"± {words.number(found.welfare_stderr, 2)}"
    entries = [("Best policy", best.policy, words.abbreviation_and_summary(best.policy)[0])]
    entries.append(("Its welfare", words.number(found.welfare), sure))
    if bound is not None and bound > 0:
        share = words.percent(1 - words.gap_to(bound, found.welfare), 2)
        entries.append((f"Of the {words.bound_title(comparison)}", share, f"which is {words.number(bound)}"))
    elif problem.num_arms > 1:
        entries.append(
            ("Its Gini coefficient", words.number_text(found.gini_coefficient, 3), "0 if all arms are equal")
        )
    if problem.num_arms > 1:
        note = "all arms are equal" if words.is_level(found) else f"mean {words.number(found.mean)}"
        entries.append((f"Its worst-off {words.member(problem)}", words.number(found.worst), note))
    cards = [
        f"<div><dt>{escape(term)}</dt><dd>{escape(value)}{f'<small>{escape(note)}</small>' if note else ''}</dd></div>"
        for term, value, note in entries
    ]
    return f'<dl class="key">{"".join(cards)}</dl>'


def _results(comparison: Comparison, problem: CoupledMDP) -> str:
    parts = [tables.results_table(comparison, problem)] if comparison.rows else []
    if missed := tables.floors_list(comparison, problem):
        parts += [_paragraph(["Not every policy serves all arms as often as it must:"]), missed]
    if comparison.left_out:
        count = len(comparison.left_out)
        which = "One policy does" if count == 1 else f"{count} policies do"
        parts += [_paragraph([f"{which} not apply to this problem:"]), tables.left_out_list(comparison)]
    return "\n".join(parts)


def _figures(comparison: Comparison, problem: CoupledMDP) -> str:
    if not comparison.rows:
        return ""
    bars = _figure(figures.welfare_figure(comparison), _welfare_caption(comparison))
    sections = [_section("Welfare", bars), _section("Who gets how much", _spread(comparison, problem))]
    if curves := figures.lorenz_figure(comparison):
        sections.append(_section("How evenly it is shared", _figure(curves, _lorenz_caption(comparison))))
    return "\n".join(part for part in sections if part)


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}\n<figcaption>{escape(caption)}</figcaption></figure>"


def _welfare_caption(comparison: Comparison) -> str:
    positive = all(row.evaluation.welfare >= 0 for row in comparison.rows)
    caption = "Longer is better." if positive else "Further to the right is better."
    if any(not row.evaluation.exact for row in comparison.rows):
        caption += " Black whiskers are 95\u00a0% confidence intervals of simulated figures."
    if comparison.upper_bound is not None:
        caption += f" The dashed line is the {words.bound_title(comparison)}: no policy can get beyond it."
    return caption


def _spread(comparison: Comparison, problem: CoupledMDP) -> str:
    if problem.num_arms == 1:
        return ""
    drawing = figures.spread_figure(comparison, problem)
    if drawing is None:
        return _paragraph([_level_words(comparison, problem)])
    figure = _figure(drawing, _spread_caption(comparison, problem))
    table = tables.values_table(comparison, problem)
    note = '<p class="quiet">The worst-off type of each policy is in bold.</p>' if table else ""
    return f"{figure}\n{table}\n{note}\n{tables.groups_table(comparison, problem)}".rstrip()


def _level_words(comparison: Comparison, problem: CoupledMDP) -> str:
    alike = "All arms are identical, and" if problem.is_symmetric else "Although the arms differ,"
    policies = "every policy" if len(comparison.rows) > 1 else "the policy"
    return (
        f"{alike} {policies} gives each arm the same value: nobody is worse off than anybody else, and welfare, "
        "mean and worst arm are one number."
    )


def _spread_caption(comparison: Comparison, problem: CoupledMDP) -> str:
    found = [row.evaluation for row in comparison.rows]
    dots, bands = any(map(figures.shows_dots, found)), not all(map(figures.shows_dots, found))
    caption = "One row a policy, worse-off arms to the left; the thin line runs from the worst to the best arm."
    if dots:
        grouped = problem.num_types < problem.num_arms and any(each.by_type for each in found)
        caption += " A dot is an arm" + (", or all arms of a type that fare alike." if grouped else ".")
    if bands:
        caption += " The thick line holds the middle half of the arms."
    errors = [float(each.unit_stderr.max()) for each in found if not each.exact]
    if errors and np.isfinite(errors).all():
        caption += f" Simulated values have standard errors of up to {words.number(max(errors), 2)}."
    return caption


def _lorenz_caption(comparison: Comparison) -> str:
    shown = len(figures.lorenz_rows(comparison.rows))
    which = " Shown are the best, the most equal and the most unequal policy." if shown < len(comparison.rows) else ""
    return (
        "Sort the arms from worst to best and add up what they have: the further a curve hangs below the straight "
        f"line, the more unequal the shares.{which}"
    )


def _problem(problem: CoupledMDP) -> str:
    return f"{_definitions(words.problem_words(problem))}\n{tables.types_table(problem)}".rstrip()


def _reading(comparison: Comparison, problem: CoupledMDP) -> str:
    name = words.shortened(comparison.welfare.name, 60)
    entries = [
        ("Policy", "A rule that decides at every step which arms are served, and how."),
        (
            f"Welfare ({name})",
            "One number for how well all arms do, fairness included; policies are ranked by it. "
            + words.welfare_words(comparison.welfare, num_members(problem), words.member(problem)),
        ),
    ]
    if comparison.upper_bound is not None:
        entries.append(_bound_entry(comparison))
    entries += [
        (
            f"Mean and worst {words.member(problem)}",
            f"The average value of the {words.member(problem)}s, and the value of the one that is worst off.",
        ),
        (
            "Gini coefficient",
            "How unequal the values are: 0 when all arms have the same, near 1 when one of many has everything. "
            "It says nothing about how much there is to share: a policy can be very equal and bad for all.",
        ),
        ("Budget used", f"The share of what could be used that was used{words.weights_of_time(problem)}."),
        *_precision(comparison),
        ("Time", "How long it took to measure the policy, not to run it in practice."),
    ]
    return _definitions(entries)


def _bound_entry(comparison: Comparison) -> tuple[str, str]:
    if comparison.bound_name == "optimum":
        return "Optimum", "The largest welfare that any policy whatever can have, by an exact computation."
    kind = f" (here by the method “{comparison.bound_name}”)" if comparison.bound_name else ""
    return (
        "Upper bound",
        f"A number that provably no policy can exceed{kind}. The true optimum is at or below it, "
        "so a policy may be closer to the best than it seems.",
    )


def _precision(comparison: Comparison) -> list[tuple[str, str]]:
    """Exact, simulated and cut off: only what occurs on this page."""
    found = [row.evaluation for row in comparison.rows]
    entries = []
    if any(each.exact for each in found):
        entries.append(("Exact", "Computed by solving equations: no chance is involved."))
    if not all(each.exact for each in found):
        entries.append(
            (
                "Standard error",
                "The policy was played many times by simulation, and the figure is the average. The true one is "
                "most likely (95\u00a0%) within two standard errors of it. All policies met the same chance events.",
            )
        )
        if left_out := words.truncation_words(found):
            entries.append(left_out)
    return entries


def _making(comparison: Comparison, command: str, seed: int | None) -> str:
    parts = []
    if command:
        parts.append(f"<p>This page was made by the command <code>{escape(command)}</code>.</p>")
    sentences = [f"It was computed with evenhand {__version__}.", *_plays(comparison)]
    if seed is not None:
        sentences.append(f"Randomness started from the seed {seed}: the same seed gives the same figures.")
    return "\n".join([*parts, _paragraph(sentences)])


def _plays(comparison: Comparison) -> list[str]:
    found = [row.evaluation for row in comparison.rows]
    exact = sum(each.exact for each in found)
    lengths = sorted({(each.num_episodes or 0, each.horizon or 0) for each in found if not each.exact})
    sentences = []
    if exact:
        sentences.append(f"{words.counted(exact, 'policy was', 'policies were')} evaluated exactly.")
    for episodes, horizon in lengths:
        count = sum((each.num_episodes, each.horizon) == (episodes, horizon) for each in found)
        plays = f"{words.counted(episodes, 'episode')} of {words.counted(horizon, 'step')}"
        sentences.append(f"{words.counted(count, 'policy was', 'policies were')} simulated: {plays} each.")
    return sentences
