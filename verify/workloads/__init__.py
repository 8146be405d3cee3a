"""Workflows and load that the experiments execute while something breaks."""
