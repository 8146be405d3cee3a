"""Checks after an experiment: the evidence, the invariants, and the report."""
