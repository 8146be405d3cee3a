"""Experiments in which the server of the HTTP API is killed."""
