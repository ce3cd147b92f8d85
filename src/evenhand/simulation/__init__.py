"""Play: one vectorised step for a batch of episodes.

simulate (every arm on its own), simulate_counts (crowds, at a cost that does not grow with the number of arms),
Rollout, check_policy (for authors of policies).
"""

from evenhand.simulation.checking import check_policy
from evenhand.simulation.counts import simulate_counts
from evenhand.simulation.rollout import Rollout, simulate

__all__ = ["Rollout", "check_policy", "simulate", "simulate_counts"]
