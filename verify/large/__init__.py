"""Experiments with many runs and with the largest legal values."""
