"""Benchmarks: ratios against the bare limit, measured in one run on one machine."""
