"""Side-by-side benchmarks: `make bench`, or `python -m benchmarks NAME...`. Ratios in one run, never asserted."""
