"""Bulk operations: one verb on every run that a filter matches, as a durable run of the engine itself."""
