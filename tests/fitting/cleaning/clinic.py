"""A messy clinic: a weekly panel of known truth, written as people write records."""

from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

import numpy as np

STATES = ("on treatment", "shaky", "stopped")
ACTIONS = ("none", "call", "visit")
TRUTH = np.array(
    [
        [[0.85, 0.12, 0.03], [0.92, 0.07, 0.01], [0.95, 0.04, 0.01]],
        [[0.20, 0.55, 0.25], [0.40, 0.48, 0.12], [0.60, 0.34, 0.06]],
        [[0.02, 0.08, 0.90], [0.06, 0.19, 0.75], [0.15, 0.35, 0.50]],
    ]
)
"""(state, action, next_state) probabilities, the same in all clinics."""

VARIANTS = {
    "on treatment": ("On treatment", "on  treatment", "on treatmnt", "ON TREATMENT"),
    "shaky": ("Shaky", "shakey", "SHAKY "),
    "stopped": ("Stopped", "stoped", "stopped.", " stopped"),
}


@dataclass(frozen=True)
class Clinic:
    """A file, and the counts that a perfect reader would find."""

    text: str
    counts: np.ndarray
    num_rows: int


def messy_clinic(seed: int = 0, num_arms: int = 120, num_weeks: int = 25) -> Clinic:
    """Records with semicolons, decimal commas, spelling variants, blanks, duplicates, ties, a Tuesday, wrong states."""
    rng = np.random.default_rng(seed)
    clinics = ("Hill", "Lake", "Port")
    lines = ["Outreach records 2025;;;;;", "", "Patient;Week of;Clinic;Condition;Contact;Weight"]
    counts = np.zeros((3, 3, 3), dtype=np.int64)
    rows = 0
    for arm in range(num_arms):
        name, clinic = f"P{arm:03d}", clinics[arm % 3]
        state = int(rng.integers(3))
        known = []
        for week in range(num_weeks):
            action = int(rng.choice(3, p=(0.6, 0.25, 0.15)))
            monday = date(2025, 1, 6) + timedelta(weeks=week)
            shown_day = monday + timedelta(days=1) if rng.random() < 0.01 else monday
            text = STATES[state]
            if rng.random() < 0.08:
                text = str(rng.choice(VARIANTS[text]))
            blank = rng.random() < 0.03
            if blank:
                text = str(rng.choice(("", "?", "n/a")))
            shown = name.lower() if rng.random() < 0.02 else name
            kind = "" if rng.random() < 0.01 else clinic
            weight = f"{rng.normal(60, 9):.1f}".replace(".", ",")
            line = f"{shown};{shown_day:%d/%m/%Y};{kind};{text};{ACTIONS[action]};{weight}"
            if rng.random() < 0.004:  # a tie: a first entry that was corrected
                lines.append(line.replace(f";{text};", f";{STATES[int(rng.integers(3))]};") + "")
                rows += 1
            lines.append(line)
            rows += 1
            if rng.random() < 0.01:
                lines.append(line)
                rows += 1
            known.append((week, None if blank else state, action))
            state = int(rng.choice(3, p=TRUTH[state, action]))
        for (_, one, action), (_, other, _) in pairwise(known):
            if one is not None and other is not None:
                counts[one, action, other] += 1
    lines.insert(50, "P001;13/01/2025;Lake;xx;none;60,0")
    lines.insert(90, ";;;;;")
    lines.insert(95, ";03/02/2025;Hill;shaky;none;61,0")
    return Clinic("\n".join(lines) + "\n", counts, rows + 2)
