"""Benchmarks that count the instructions of the processor, which do not depend on other work."""
