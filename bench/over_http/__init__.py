"""Benchmarks of workers over HTTP, in Python, Go and TypeScript."""
