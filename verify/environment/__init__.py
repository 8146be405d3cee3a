"""The environment of an experiment: store, ledger, worker processes, and readers of the CLI."""
