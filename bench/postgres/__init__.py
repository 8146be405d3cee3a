"""Benchmarks of the Postgres store alone."""
