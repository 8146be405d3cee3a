"""Transactions that the store shares with users' own tables.

- `transact`: a user's function writes inside the commit of a checkpoint.
- `guard`: limits what such a function may do on the connection it is given.
- `caller_transaction`: a start or an emit of the store inside a transaction of the caller.
"""
