"""Result of a fit: the model, its posterior and its diagnostics.

The problem has one block per type, or per type and group. Blocks of one type have its name and its rows, in any group.
The initial distribution of a block is that of the last recorded states of its arms. Unknown rows are refused.
"""

import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted
from evenhand.errors import Fault, ModelError
from evenhand.fitting.diagnostics import Diagnostics, diagnose
from evenhand.fitting.log import Log
from evenhand.fitting.model_terms import Terms
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.posterior_files import Named, posterior_path, save_posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.model.arm import Arm
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import save, write_atomically
from evenhand.model.labels import quoted
from evenhand.typing import Array, Bools, Floats, Ints

if TYPE_CHECKING:
    from evenhand.fitting.clusters import Clusters
    from evenhand.fitting.ctmc.rates import Rates


@dataclass(frozen=True, eq=False)
class FitResult(Shown):
    """A model fitted to records."""

    log: Log
    """The records."""

    moves: Moves
    """Transition counts."""

    posterior: Posterior
    """Posterior of the transitions; unknown rows are NaN in its mean."""

    terms: Terms
    """Rewards, usage, budget and objective."""

    log_likelihood: float
    """Log-likelihood of the records under the model's transitions."""

    clusters: "Clusters | None" = None
    """Types found by clustering; None without clustering."""

    estimated: tuple[str, ...] = ()
    """Notes on the estimates."""

    passed: Bools | None = None
    """(type, state, action) pairs without a row that are estimated from the times between rows; None for none."""

    rates: "Rates | None" = None
    """Rates of jumps, sojourn times and hazard ratios, if times are irregular."""

    @cached_property
    def problem(self) -> CoupledMDP:
        """The fitted problem, as `save` writes it.

        Raises:
            ModelError: there are unobserved pairs without a statement.
        """
        return build_problem(self.log, self.posterior.mean, self.terms)

    @property
    def named(self) -> Named:
        """The posterior with its names and numbers of observations, as `save` writes it."""
        log = self.log
        return Named(self.posterior, log.types, log.states, log.actions, self.moves.departures)

    @cached_property
    def unseen(self) -> Bools:
        """(type, state, action) unobserved pairs: without moves of the type, and not passed between two rows."""
        return self.moves.unseen if self.passed is None else self.moves.unseen & ~self.passed

    @property
    def unseen_anywhere(self) -> Bools:
        """(type, state, action) pairs that are unobserved in every type, or unknown in this one."""
        nowhere = np.broadcast_to(self.unseen.all(axis=0), self.unseen.shape)
        return np.asarray(nowhere | (self.unseen & np.isnan(self.posterior.mean).any(axis=-1)))

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Diagnostics of the records; computed on first access, always alike."""
        # (type, state) reward of a step under the idle action, or the mean of the other types.
        worth = self.terms.rewards[:, :, 0]
        if np.isnan(worth).any() and not np.isnan(worth).all(axis=0).any():
            worth = np.where(np.isnan(worth), np.nanmean(worth, axis=0), worth)
        informative = np.isfinite(worth).all() and np.ptp(worth, axis=1).any()
        reasons = None if self.clusters is None else self.clusters.reasons
        posterior, given = self.posterior, worth if informative else None
        return diagnose(self.log, self.moves, posterior, 0, given, reasons, self.rates)

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions and remarks of reading, estimation and defaults."""
        return self.log.notes + self.estimated + self.terms.notes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, and its posterior beside it (`model.posterior.npz`); both, or nothing.

        Types found by clustering are written beside it as well (`model.members.csv`).

        Args:
            path: a `.toml`, `.json` or `.npz` file; an existing one is replaced.

        Raises:
            ModelError: there are unobserved pairs without a statement.
        """
        problem, file = self.problem, Path(path)
        named = self.named
        if file.suffix.lower() not in (".toml", ".json", ".npz"):
            save(problem, file)  # raises on an unknown suffix
        with tempfile.TemporaryDirectory() as folder:  # errors are found before anything is written
            whole = Path(folder) / f"model{file.suffix}"
            save(problem, whole)
            save_posterior(named, posterior_path(whole))
            # The model comes last: a posterior of another model is refused.
            write_atomically(posterior_path(file), posterior_path(whole).read_bytes())
            if self.clusters is not None:
                self.clusters.write(file.with_suffix(".members.csv"))
            write_atomically(file, whole.read_bytes())

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per possible transition: its count, estimate and interval.

        Args:
            library: `pandas` or `polars`; by default pandas if it is installed, else polars.
        """
        mean, (lower, upper) = self.posterior.mean, self.interval
        places = tuple(np.argwhere((self._counts > 0) | (np.nan_to_num(mean) > 0)).T)
        log = self.log
        names = {"type": log.types, "state": log.states, "action": log.actions, "next_state": log.states}
        figures = {"count": self._counts, "probability": mean, "lower": lower, "upper": upper}
        keys = zip(names.items(), places, strict=True)
        columns: dict[str, list[Any]] = {key: [known[i] for i in place] for (key, known), place in keys}
        return as_frame(columns | {key: array[places].tolist() for key, array in figures.items()}, library)

    @cached_property
    def _counts(self) -> Ints:
        """(type, state, action, next_state) moves of one step; all consecutive pairs of rows if times are irregular."""
        return self.moves.counts if self.log.regular else self.moves.pairs

    @cached_property
    def interval(self) -> tuple[Floats, Floats]:
        """Credible intervals of 95 %: lower and upper ends, shaped as the transitions."""
        return self.posterior.interval(0.95)

    def to_dict(self) -> dict[str, Any]:
        """JSON form; unknown values are null."""
        log, blocks, (lower, upper) = self.log, blocks_of(self.log), self.interval
        arrays: dict[str, Array] = {"transitions": self.posterior.mean, "lower": lower, "upper": upper}
        arrays |= {"counts": self._counts} if log.regular else {"counts": self._counts, "exposure": self.moves.exposure}
        arms = np.bincount(blocks.type, weights=blocks.counts, minlength=len(log.types))
        types = [
            {"name": name, "arms": int(arms[t]), **{key: array[t] for key, array in arrays.items()}}
            for t, name in enumerate(log.types)
        ]
        places = np.argwhere(self.unseen).tolist()
        found: dict[str, Any] = {
            "types": types,
            "unseen": [{"type": log.types[t], "state": log.states[s], "action": log.actions[a]} for t, s, a in places],
            "log_likelihood": self.log_likelihood,
            "states": list(log.states),
            "actions": list(log.actions),
            "step": log.step_in_words,
            "rows": len(log.arm),
            "notes": list(self.notes),
        }
        if log.group_of is not None:
            cells = zip(blocks.type.tolist(), blocks.group.tolist(), blocks.counts.tolist(), strict=True)
            found["blocks"] = [{"type": log.types[t], "group": log.groups[g], "arms": number} for t, g, number in cells]
        if self.rates is not None:
            found["rates"] = self.rates.to_dict()
        if self.clusters is not None:
            found["clusters"] = self.clusters.to_dict()
        return {**found, "diagnostics": self.diagnostics.to_dict()}

    def __repr__(self) -> str:
        log = self.log
        sizes = {"row": len(log.arm), "arm": len(log.arms), "type": len(log.types)}
        sizes |= {"state": len(log.states), "action": len(log.actions)}
        unseen = f", {counted(int(self.unseen.sum()), 'pair')} never seen" if self.unseen.any() else ""
        return f"FitResult({', '.join(counted(number, name) for name, number in sizes.items())}{unseen})"


def build_problem(log: Log, transitions: Floats, terms: Terms) -> CoupledMDP:
    """Build the problem.

    Args:
        log: the records.
        transitions: (type, state, action, next_state) probabilities; none may be NaN.
        terms: rewards, usage, budget and objective.

    Raises:
        ModelError: rows are unknown, or the parts are inconsistent; with every fault.
    """
    unknown = np.asarray(np.isnan(transitions).any(axis=-1))
    if unknown.any():
        ways = [f"{counted(int(unknown.sum()), 'pair has', 'pairs have')} no records"]
        if unknown[:, :, 1:].any():
            ways.append('give `unseen`: "idle" (as the idle action), "forbid" (never chosen), or a table of rows')
        if unknown[:, :, 0].any():
            idle = quoted(log.actions[0])
            ways.append(f"for the idle action, {idle}, give a table, `only_worse` for the worst state, or `absorbing`")
        pairs = [Fault("", name) for name in log.pair_names(unknown)]
        raise ModelError([Fault("", "; ".join(ways), stands_for=0), *pairs], "the records")
    if (unknown := np.isnan(terms.rewards)).any():
        raise ModelError([Fault("", f"{name}: has no reward") for name in log.pair_names(unknown)], "rewards")
    blocks = blocks_of(log)
    names = {"states": log.states, "actions": log.actions}
    arms = [
        Arm(transitions[t], terms.rewards[t], terms.usage[t], initial, log.types[t], **names)
        for t, initial in zip(blocks.type.tolist(), blocks.initial, strict=True)
    ]
    groups = [log.groups[g] for g in blocks.group.tolist()] if log.groups else ()
    options = {"resources": terms.resources, "counts": blocks.counts, "groups": groups, **terms.objective}
    return CoupledMDP(arms, terms.budget, **options)


class Blocks(NamedTuple):
    """Active arms: one block per type, or per type and group."""

    type: Ints
    """(block,) its type."""

    group: Ints
    """(block,) its group; 0 if the records have none."""

    counts: Ints
    """(block,) number of arms."""

    initial: Floats
    """(block, state) shares of last recorded states."""


def blocks_of(log: Log) -> Blocks:
    """Blocks by type, then by group; those without arms are left out.

    Args:
        log: the records.
    """
    stays = np.ones(log.num_arms, dtype=bool) if log.left is None else ~log.left
    group = np.zeros(log.num_arms, dtype=np.int64) if log.group_of is None else log.group_of.astype(np.int64)
    number = max(len(log.groups), 1)
    cells, block = np.unique((log.type_of * number + group)[stays], return_inverse=True)
    numbers = np.zeros((len(cells), len(log.states)))
    np.add.at(numbers, (block, log.state[log.is_last][stays]), 1.0)
    counts = numbers.sum(axis=1)
    return Blocks(cells // number, cells % number, counts.astype(np.int64), np.asarray(numbers / counts[:, None]))
