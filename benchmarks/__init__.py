"""Benchmarks: what the parts of an iteration cost, as ratios to a limit that is measured in the same run."""
