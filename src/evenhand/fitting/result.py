"""Result of a fit: the model, its posterior and its diagnostics."""

import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.display import FrameLibrary, Shown, as_frame, counted
from evenhand.fitting.diagnostics import Diagnostics, diagnose
from evenhand.fitting.log import Log
from evenhand.fitting.model_builder import blocks_of, build_problem, num_arms
from evenhand.fitting.model_terms import Terms
from evenhand.fitting.posterior import Posterior
from evenhand.fitting.posterior_files import Named, posterior_path, save_posterior
from evenhand.fitting.transition_counts import Moves
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import save, write_atomically
from evenhand.typing import Bools, Floats, Ints

if TYPE_CHECKING:
    from evenhand.fitting.clusters import Clusters

SUFFIXES = (".toml", ".json", ".npz")
"""Suffixes of model files."""

LEVEL = 0.95
"""Level of the reported intervals."""


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

    @cached_property
    def problem(self) -> CoupledMDP:
        """The fitted problem, as `save` writes it.

        Raises:
            ModelError: there are unobserved pairs without a statement.
        """
        return build_problem(self.log, self.posterior.mean, self.terms)

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
        found = self.clusters
        return diagnose(
            self.log,
            self.moves,
            self.posterior,
            worth=self._worth,
            types_found=found is not None,
            why_no_effects="" if found is None else found.why_no_effects,
        )

    @property
    def _worth(self) -> Floats | None:
        """(type, state) reward of a step under the idle action; None if unknown or constant."""
        worth = self.terms.rewards[:, :, 0]
        return worth if np.isfinite(worth).all() and np.ptp(worth, axis=1).any() else None

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
        named = Named(self.posterior, self.log.types, self.log.states, self.log.actions)
        if file.suffix.lower() not in SUFFIXES:
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
        places = np.argwhere((self._counts > 0) | (np.nan_to_num(mean) > 0))
        t, s, a, s2 = places.T
        log = self.log
        return as_frame(
            {
                "type": [log.types[i] for i in t],
                "state": [log.states[i] for i in s],
                "action": [log.actions[i] for i in a],
                "next_state": [log.states[i] for i in s2],
                "count": self._counts[t, s, a, s2].tolist(),
                "probability": mean[t, s, a, s2].tolist(),
                "lower": lower[t, s, a, s2].tolist(),
                "upper": upper[t, s, a, s2].tolist(),
            },
            library,
        )

    @cached_property
    def _counts(self) -> Ints:
        """(type, state, action, next_state) moves of one step; all consecutive pairs of rows if times are irregular."""
        return self.moves.counts if self.log.regular else self.moves.pairs

    @cached_property
    def interval(self) -> tuple[Floats, Floats]:
        """Credible intervals of 95 %: lower and upper ends, shaped as the transitions."""
        return self.posterior.interval(LEVEL)

    def to_dict(self) -> dict[str, Any]:
        """JSON form; unknown values are null."""
        lower, upper = self.interval
        arrays = {"transitions": self.posterior.mean, "lower": lower, "upper": upper}
        arms = num_arms(self.log)
        names = self.log.types, self.log.states, self.log.actions
        return {
            "types": [
                {
                    "name": name,
                    "arms": int(arms[t]),
                    "counts": self._counts[t],
                    **({} if self.log.regular else {"exposure": self.moves.exposure[t]}),
                    **{key: array[t] for key, array in arrays.items()},
                }
                for t, name in enumerate(self.log.types)
            ],
            "unseen": [
                dict(zip(("type", "state", "action"), (names[i][k] for i, k in enumerate(pair)), strict=True))
                for pair in np.argwhere(self.unseen).tolist()
            ],
            "log_likelihood": self.log_likelihood,
            "states": list(self.log.states),
            "actions": list(self.log.actions),
            "step": self.log.step_in_words,
            "rows": len(self.log.arm),
            "notes": list(self.notes),
            **({} if self.log.group_of is None else {"blocks": self._blocks()}),
            **({} if self.clusters is None else {"clusters": self.clusters.to_dict()}),
            "diagnostics": self.diagnostics.to_dict(),
        }

    def _blocks(self) -> list[dict[str, Any]]:
        """Number of arms per type and group."""
        found = blocks_of(self.log)
        return [
            {"type": self.log.types[t], "group": self.log.groups[g], "arms": number}
            for t, g, number in zip(found.type.tolist(), found.group.tolist(), found.counts.tolist(), strict=True)
        ]

    def __repr__(self) -> str:
        log = self.log
        sizes = (len(log.arm), "row"), (len(log.arms), "arm"), (len(log.types), "type"), (len(log.states), "state")
        unseen = f", {counted(int(self.unseen.sum()), 'pair')} never seen" if self.unseen.any() else ""
        return (
            f"FitResult({', '.join(counted(*size) for size in sizes)}, {counted(len(log.actions), 'action')}{unseen})"
        )
