"""The worker: it claims runs, keeps their leases and executes them; its keeper does the chores."""
