"""Experiments that break things on purpose: promises are checked against a ledger outside the store."""
