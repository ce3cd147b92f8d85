"""Where work runs: one seam, on this machine or on a Ray cluster. Those who hand over shards do not know which."""
