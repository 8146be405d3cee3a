"""The machine: each move of a run, written once as pure Python over a small view of the rows.

| moves | file |
|---|---|
| start | starting.py; the next run of a chain: chains.py |
| claim, renew, lease_states, show_running | claiming.py |
| checkpoint, advance, park, complete, fail, retry, release | moves.py, commit.py, steps.py |
| deliver, lapse: a wait gets its outcome | settling.py; the effect on its run: waking.py |
| decide | deciding.py; its texts and checks: gates.py |
| cancel, pause, resume, rewind, retry_run, set_priority, delete, restore | people.py |
| append_step, and the way of a plan from row to row | plans.py |
| expire, time_out | chores.py |
| leave, left, went_on, come_back, arrive, drop_arrived: a run goes to another store | relocating.py |
| import_runs | carrying.py |
| work that a commit left to do: tell the parent, cancel children, look at waits | children.py |
| the end of a run, whatever ends it | ending.py |
| a pause because of costs, and the budget that ends it | budgets.py |

The docstrings of the moves are a part of the contract: `contract/` points at them by name.

No move does I/O, uses SQL or reads a clock. A store offers a `View` (view.py) over its rows (rows.py), inside
one transaction, and writes the changed rows. Memory, SQLite and Redis share these moves. Postgres has its own
moves in SQL. The contract suite and tests/laws compare the two.
"""
