"""Play: one vectorised step for a batch of episodes.

simulate (every arm on its own), simulate_counts (crowds, at a cost that does not grow with the number of arms),
Rollout, check_policy (for authors of policies).
"""

from typing import TYPE_CHECKING

from evenhand._lazy import attach
from evenhand.simulation.counts import simulate_counts
from evenhand.simulation.policy_check import check_policy
from evenhand.simulation.rollout import Rollout, simulate

if TYPE_CHECKING:
    from evenhand.simulation.events import simulate_events

__getattr__, __dir__ = attach(__name__, __file__)

__all__ = ["Rollout", "check_policy", "simulate", "simulate_counts"]
