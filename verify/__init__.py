"""Kill it, crash it, sabotage it, and count: promises are checked against a ledger outside the store."""
