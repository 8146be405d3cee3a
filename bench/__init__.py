"""Measured speed: ratios against the bare limit, taken in one run on one machine."""
