"""Verbs in the caller's own transaction: start, emit and transact on the caller's connection or engine."""
