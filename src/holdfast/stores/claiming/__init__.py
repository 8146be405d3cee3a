"""Rules of claiming that all stores share, without any I/O.

`rules` finds the registry entry and the limits that apply to a run. `capacity` computes how many more runs
they allow. `shares` decides which tenant is next where tenants have weights.
"""
