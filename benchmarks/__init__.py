"""Side-by-side benchmarks: `make bench`, or `python -m benchmarks NAME...`. Times are shown as ratios, never asserted."""
