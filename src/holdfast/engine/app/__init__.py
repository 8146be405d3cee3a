"""The objects that users hold: the app, its client verbs, the sync API, one tenant's app, handles.

Each verb (start, cancel, approve, set a limit, …) is a method in one of these modules and ends in one call
of the store.
"""
