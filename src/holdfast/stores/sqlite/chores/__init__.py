"""Chores: the work of keepers, and the delivery of events. Each chore runs in slices, one commit each.

- `keeper`: the verbs emit, deliver and tick.
- `timeouts`: expired leases, runs out of time, waits that are due.
- `inbox`: the recorded events.
- `delivery`: hands an event to the runs that wait for it.
- `children`: work that a run's last commit left to do for its parent, its children and its waits.
- `purge`: removes expired runs, events and workers for good.
"""
