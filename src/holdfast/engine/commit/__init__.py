"""The write path of a worker: the journal of each run, the buffer before it, group commit for all runs."""
