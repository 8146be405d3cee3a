"""Benchmarks of the Redis store alone."""
