"""Experiments with workers in several languages: Go, TypeScript and Python, over HTTP and on the store."""
