"""From raw records to a model in at most two commands, in every layout; intervals hold the truth at their level."""

import numpy as np
import pytest

from ..fitting.simulated_records import CASES

RAW = [pytest.param(case, id=case.__name__) for case in CASES]


def fitted(evenhand, case, folder, rng):
    """(entry, 4) lower end, estimate, upper end and truth of the entries that are neither 0 nor 1."""
    made = case(folder, rng)
    if made.records:
        accept = made.imported or ("--accept",)
        assert evenhand("import", *made.records, "--out", "log.csv", *accept, "--quiet").code == 0
    found = evenhand("fit", made.log, *made.fit, "--json", "--quiet").json
    assert tuple(found["states"]) == made.states
    entries = []
    for kind in found["types"]:
        figures = [np.array(kind[name], dtype=float) for name in ("lower", "transitions", "upper")]
        for action, truth in made.truth.items():
            matters = (truth > 0) & (truth < 1)
            own = [figure[:, found["actions"].index(action)][matters] for figure in figures]
            entries += np.column_stack([*own, truth[matters]]).tolist()
    return np.array(entries)


@pytest.mark.parametrize("case", RAW)
def test_raw_records_become_a_model(evenhand, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lower, mean, upper, truth = fitted(evenhand, case, tmp_path, np.random.default_rng(5)).T
    assert len(truth) >= 2
    assert (np.abs(mean - truth) <= upper - lower).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", RAW)
def test_intervals_hold_the_truth_at_their_level(evenhand, case, tmp_path, monkeypatch):
    """Over 300 replications; entries of one row are dependent, so the share is compared by replication."""
    shares = []
    for number in range(300):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        lower, _, upper, truth = fitted(evenhand, case, folder, np.random.default_rng(1000 + number)).T
        shares.append(np.mean((lower <= truth + 1e-12) & (truth <= upper + 1e-12)))
    error = np.std(shares) / np.sqrt(len(shares))
    print(f"{case.__name__}: coverage {np.mean(shares):.4f} ± {error:.4f}")
    assert 0.93 - 2 * error <= np.mean(shares) <= 0.97 + 2 * error
