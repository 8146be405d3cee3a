"""Experiments with export and import."""
